#include "cli/target.h"

#include <cstdlib>

#include "lab/cluster/cluster.h"

namespace twofold::cli {
namespace {

Error nothing_named(const char* option) {
  return {
      Fault::invalid,
      std::string("which system? Give --data DIR, the directory of its twofold up, or ") + option};
}

Result<Named> parse_rm(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return Error{Fault::invalid,
                 "--rm takes NAME=HOST:PORT, like payments=127.0.0.1:7402, not " + text};
  }
  auto address = parse_address(text.substr(equals + 1));
  if (!address) return address.error();
  return Named{text.substr(0, equals), std::move(*address)};
}

}  // namespace

// The environment's value is the option's default: what CLI11 itself takes from the environment
// wins over an option given to a subcommand.
CLI::Option* add_data_option(CLI::App& command, std::string& data) {
  if (const char* found = std::getenv("TWOFOLD_DATA")) data = found;
  return command
      .add_option(
          "--data", data,
          "The data directory of a system started by twofold up; without it, TWOFOLD_DATA of the "
          "environment")
      ->type_name("DIR");
}

void add_target(CLI::App& command, Target& target, Finds finds) {
  add_data_option(command, target.data);
  if (finds != Finds::resource_managers) {
    command
        .add_option("--coordinator", target.coordinator,
                    "The coordinator's address, instead of --data")
        ->type_name("HOST:PORT");
  }
  if (finds != Finds::coordinator) {
    command
        .add_option("--rm", target.rms,
                    "A resource manager's name and address, instead of --data; may be repeated")
        ->type_name("NAME=HOST:PORT");
  }
}

Result<Address> coordinator_address(const Target& target) {
  if (!target.coordinator.empty()) return parse_address(target.coordinator);
  if (target.data.empty()) return nothing_named("--coordinator HOST:PORT");
  auto state = lab::read_cluster_state(target.data);
  if (!state) return state.error();
  const auto* member = state->find(lab::kCoordinator);
  if (!member) return Error{Fault::not_found, target.data + "/cluster.json names no coordinator"};
  return parse_address(member->address);
}

Result<std::vector<Named>> rm_addresses(const Target& target) {
  std::vector<Named> found;
  for (const auto& text : target.rms) {
    auto named = parse_rm(text);
    if (!named) return named.error();
    found.push_back(std::move(*named));
  }
  if (!found.empty()) return found;
  if (target.data.empty()) return nothing_named("--rm NAME=HOST:PORT");
  auto state = lab::read_cluster_state(target.data);
  if (!state) return state.error();
  for (const auto& member : state->members) {
    if (member.name == lab::kCoordinator) continue;
    auto address = parse_address(member.address);
    if (!address) return address.error();
    found.push_back({member.name, std::move(*address)});
  }
  return found;
}

Result<Address> rm_address(const Target& target, const std::string& name) {
  auto all = rm_addresses(target);
  if (!all) return all.error();
  std::string choices;
  for (auto& named : *all) {
    if (named.name == name) return std::move(named.address);
    choices += (choices.empty() ? "" : ", ") + named.name;
  }
  return Error{Fault::not_found,
               "there is no resource manager named " + name + ": choose one of " + choices};
}

}  // namespace twofold::cli
