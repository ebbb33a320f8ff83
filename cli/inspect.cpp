// scan, in-doubt, locks, stats: asked of the processes themselves, so they work while the
// coordinator is down.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/target.h"
#include "client/client.h"
#include "lab/cluster/cluster.h"
#include "protocol/convert.h"

namespace twofold::cli {
namespace {

constexpr std::chrono::seconds kInspectAnswerMax{10};
constexpr std::size_t kKeysShown = 4;

struct InspectOptions {
  Target target;
  std::string name;
  std::string prefix;
  bool json = false;
};

Result<wire::Frame> ask(const Named& rm, wire::Frame request) {
  auto answer = client::call_once(rm.address, std::move(request), kInspectAnswerMax, rm.name);
  if (!answer) return Error{answer.error().fault, rm.name + ": " + answer.error().message};
  return answer;
}

Result<wire::Frame> ask_named(const InspectOptions& options, wire::Frame request) {
  auto address = rm_address(options.target, options.name);
  if (!address) return address.error();
  return ask({options.name, std::move(*address)}, std::move(request));
}

// ---- scan
// ------------------------------------------------------------------------------------------

int scan(const InspectOptions& options) {
  wire::Frame request;
  request.mutable_scan()->set_prefix(options.prefix);
  auto answer = ask_named(options, std::move(request));
  if (!answer) return fail(answer.error());
  const auto& found = answer->scan_answer();
  json::array entries;
  Table table({"key", "value"});
  for (const auto& entry : found.entries()) {
    if (options.json) {
      entries.push_back(json::object{{"key", entry.key()}, {"value", to_json(entry.value())}});
    } else {
      table.add({entry.key(), to_text(entry.value())});
    }
  }
  if (options.json) {
    print_json(entries);
  } else {
    table.print();
    print_line(plural(static_cast<std::uint64_t>(found.entries_size()), "key"));
  }
  if (found.prepared() > 0) {
    note(plural(found.prepared(), "prepared branch") +
         " (in doubt, or about to commit) not looked at: see twofold in-doubt");
  }
  if (!found.truncated()) return 0;
  return fail({Fault::full, options.name +
                                " has more keys than fit into scan_bytes_max; these are the "
                                "first. Narrow the scan with --prefix"});
}

// ---- in-doubt
// --------------------------------------------------------------------------------------

std::string some_keys(const wire::InDoubtBranch& branch) {
  std::string text;
  for (int i = 0; i < branch.keys_size() && i < static_cast<int>(kKeysShown); ++i) {
    text += (i > 0 ? ", " : "") + branch.keys(i);
  }
  const auto more = branch.keys_size() - static_cast<int>(kKeysShown);
  return more > 0 ? text + fmt::format(", and {} more", more) : text;
}

json::object in_doubt_json(const std::string& rm, const wire::InDoubtBranch& branch) {
  json::array keys;
  for (const auto& key : branch.keys()) keys.emplace_back(key);
  json::object object{{"rm", rm},
                      {"id", id_text(branch.xid().gtrid())},
                      {"gtrid", gtrid_text(branch.xid().gtrid())},
                      {"node", branch.node()},
                      {"age_ms", branch.age_ms()},
                      {"keys", std::move(keys)}};
  if (const auto xid = from_wire(branch.xid())) object["xid"] = to_text(*xid);
  return object;
}

// Everybody is asked, even if somebody does not answer.
int in_doubt(const InspectOptions& options) {
  auto rms = rm_addresses(options.target);
  if (!rms) return fail(rms.error());
  if (!options.name.empty()) {
    if (auto named = rm_address(options.target, options.name); !named) return fail(named.error());
  }
  int status = 0;
  json::array whole;
  std::string answered;  // who is certain to hold nothing
  Table table({"participant", "coordinator", "age", "transaction", "keys it holds", "gtrid"},
              {false, false, true});
  for (const auto& rm : *rms) {
    if (!options.name.empty() && rm.name != options.name) continue;
    wire::Frame request;
    request.mutable_in_doubt();
    auto answer = ask(rm, std::move(request));
    if (!answer) {
      status = fail(answer.error());
      continue;
    }
    if (answer->in_doubt_answer().branches().empty()) {
      answered += (answered.empty() ? "" : ", ") + rm.name;
    }
    for (const auto& branch : answer->in_doubt_answer().branches()) {
      if (options.json) whole.push_back(in_doubt_json(rm.name, branch));
      table.add({rm.name, branch.node(), age(branch.age_ms()), id_text(branch.xid().gtrid()),
                 some_keys(branch), gtrid_text(branch.xid().gtrid())});
    }
  }
  if (options.json) {
    print_json(whole);
    return status;
  }
  if (table.rows() > 0) table.print();
  if (status != 0 && !answered.empty()) {
    print_line("nothing is in doubt at " + answered);
  } else if (status == 0 && table.rows() == 0) {
    print_line("nothing is in doubt");
  }
  return status;
}

// ---- locks
// -----------------------------------------------------------------------------------------

json::array holders_json(const google::protobuf::RepeatedPtrField<wire::LockHolder>& holders) {
  json::array list;
  for (const auto& holder : holders) {
    list.push_back(json::object{{"id", id_text(holder.xid().gtrid())},
                                {"gtrid", gtrid_text(holder.xid().gtrid())},
                                {"mode", holder.exclusive() ? "exclusive" : "shared"},
                                {"age_ms", holder.age_ms()},
                                {"prepared", holder.prepared()}});
  }
  return list;
}

void add_lock_rows(Table& table, const std::string& key, const char* role,
                   const google::protobuf::RepeatedPtrField<wire::LockHolder>& holders) {
  for (const auto& holder : holders) {
    table.add({key, role, holder.exclusive() ? "exclusive" : "shared", age(holder.age_ms()),
               id_text(holder.xid().gtrid()), holder.prepared() ? "in doubt" : "",
               gtrid_text(holder.xid().gtrid())});
  }
}

int locks(const InspectOptions& options) {
  wire::Frame request;
  request.mutable_locks();
  auto answer = ask_named(options, std::move(request));
  if (!answer) return fail(answer.error());
  json::array whole;
  Table table({"key", "", "mode", "age", "transaction", "", "gtrid"}, {false, false, false, true});
  for (const auto& entry : answer->locks_answer().entries()) {
    if (options.json) {
      whole.push_back(json::object{{"key", entry.key()},
                                   {"holders", holders_json(entry.holders())},
                                   {"waiters", holders_json(entry.waiters())}});
      continue;
    }
    add_lock_rows(table, entry.key(), "held", entry.holders());
    add_lock_rows(table, entry.key(), "waits", entry.waiters());
  }
  if (options.json) {
    print_json(whole);
  } else if (table.rows() > 0) {
    table.print();
  } else {
    print_line("no locks are held at " + options.name);
  }
  if (answer->locks_answer().truncated()) note("there are more locks than are shown here");
  return 0;
}

// ---- stats
// -----------------------------------------------------------------------------------------

json::object stats_json(const wire::StatsAnswer& stats) {
  json::object numbers, histograms, texts;
  for (const auto& number : stats.numbers()) numbers[number.name()] = number.value();
  for (const auto& text : stats.texts()) texts[text.name()] = text.value();
  for (const auto& histogram : stats.histograms()) {
    histograms[histogram.name()] = json::object{
        {"count", histogram.count()}, {"mean", histogram.mean()}, {"p50", histogram.p50()},
        {"p90", histogram.p90()},     {"p99", histogram.p99()},   {"p999", histogram.p999()},
        {"max", histogram.max()}};
  }
  return {{"numbers", std::move(numbers)},
          {"histograms", std::move(histograms)},
          {"texts", std::move(texts)}};
}

void print_stats(const std::string& name, const wire::StatsAnswer& stats) {
  const auto number = [](std::uint64_t value) { return grouped(static_cast<std::int64_t>(value)); };
  print_line(name);
  for (const auto& text : stats.texts()) print_line("  " + text.name() + ": " + text.value());
  for (const auto& entry : stats.numbers()) {
    if (entry.value() != 0) print_line("  " + entry.name() + ": " + grouped(entry.value()));
  }
  Table table({"  histogram", "count", "mean", "p50", "p90", "p99", "p99.9", "max"},
              {false, true, true, true, true, true, true, true});
  for (const auto& h : stats.histograms()) {
    if (h.count() == 0) continue;
    table.add({"  " + h.name(), number(h.count()), fmt::format("{:.0f}", h.mean()), number(h.p50()),
               number(h.p90()), number(h.p99()), number(h.p999()), number(h.max())});
  }
  if (table.rows() > 0) table.print();
  print_line("");
}

// The coordinator and the resource managers that `options` names, or all.
Result<std::vector<Named>> servers(const InspectOptions& options) {
  std::vector<Named> found;
  const bool has_coordinator = !options.target.data.empty() || !options.target.coordinator.empty();
  const bool has_rms = !options.target.data.empty() || !options.target.rms.empty();
  if (has_coordinator) {
    auto address = coordinator_address(options.target);
    if (!address) return address.error();
    found.push_back({std::string(lab::kCoordinator), std::move(*address)});
  }
  if (has_rms || !has_coordinator) {
    auto rms = rm_addresses(options.target);
    if (!rms) return rms.error();
    for (auto& rm : *rms) found.push_back(std::move(rm));
  }
  if (options.name.empty()) return found;
  std::erase_if(found, [&](const Named& named) { return named.name != options.name; });
  if (found.empty()) {
    return Error{Fault::not_found, "there is no process named " + options.name + " in this system"};
  }
  return found;
}

bool is_resource_manager(const wire::StatsAnswer& stats) {  // a coordinator has no kind
  return std::any_of(stats.texts().begin(), stats.texts().end(),
                     [](const auto& text) { return text.name() == "kind"; });
}

int stats(const InspectOptions& options) {
  auto all = servers(options);
  if (!all) return fail(all.error());
  int status = 0;
  json::object whole;
  for (const auto& server : *all) {
    wire::Frame request;
    request.mutable_stats();
    // The coordinator's own name is its node's, so it is not asked to confirm it.
    auto answer = server.name == lab::kCoordinator
                      ? client::call_once(server.address, std::move(request), kInspectAnswerMax)
                      : ask(server, std::move(request));
    if (answer && server.name == lab::kCoordinator && is_resource_manager(answer->stats_answer())) {
      answer = Error{Fault::invalid, twofold::to_text(server.address) +
                                         " is a resource manager, not a coordinator: give the "
                                         "coordinator's address"};
    }
    if (!answer) {
      status = fail(answer.error());
    } else if (options.json) {
      whole[server.name] = stats_json(answer->stats_answer());
    } else {
      print_stats(server.name, answer->stats_answer());
    }
  }
  if (options.json) print_json(whole);
  return status;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* description, const char* footer,
                      Finds finds, const std::shared_ptr<InspectOptions>& options, int& status,
                      int (*run)(const InspectOptions&)) {
  auto* command = app.add_subcommand(name, description);
  command->footer(footer);
  add_target(*command, options->target, finds);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &status, run] { status = run(*options); });
  return command;
}

}  // namespace

void add_inspect(CLI::App& app, int& status) {
  const auto options = std::make_shared<InspectOptions>();
  auto* scan_command =
      add_command(app, "scan", "Show a participant's keys and values: one committed snapshot",
                  "Example:\n  twofold scan payments --prefix customer/c-00 --data /var/tmp/shop",
                  Finds::resource_managers, options, status, scan);
  scan_command->add_option("RM", options->name, "The participant")->required();
  scan_command->add_option("--prefix", options->prefix, "Only keys that begin so");
  auto* in_doubt_command = add_command(
      app, "in-doubt",
      "Show the branches that are prepared and wait for a decision, as the participants see them",
      "Example:\n  twofold in-doubt --data /var/tmp/shop\n\nWorks while the coordinator is down.",
      Finds::resource_managers, options, status, in_doubt);
  in_doubt_command->add_option("RM", options->name, "Only this participant");
  auto* locks_command = add_command(
      app, "locks", "Show who holds which lock at a participant, who waits for it, and how long",
      "Example:\n  twofold locks payments --data /var/tmp/shop\n\nWorks while the coordinator is "
      "down.",
      Finds::resource_managers, options, status, locks);
  locks_command->add_option("RM", options->name, "The participant")->required();
  auto* stats_command =
      add_command(app, "stats", "Show counts and times of the coordinator and the participants",
                  "Example:\n  twofold stats payments --data /var/tmp/shop", Finds::both, options,
                  status, stats);
  stats_command->add_option("NAME", options->name,
                            "Only this one: coordinator, or a participant's name");
}

}  // namespace twofold::cli
