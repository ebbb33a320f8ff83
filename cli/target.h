// How a command finds the system: --data DIR, whose cluster.json has the addresses, or addresses
// given one by one. Addresses win over the directory.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "protocol/connection.h"
#include "protocol/result.h"

namespace twofold::cli {

struct Target {
  std::string data;
  std::string coordinator;
  std::vector<std::string> rms;  // NAME=HOST:PORT
};

CLI::Option* add_data_option(CLI::App& command, std::string& data);

enum class Finds : std::uint8_t { coordinator, resource_managers, both };
void add_target(CLI::App& command, Target& target, Finds finds);

// Errors say which option is missing or what is wrong with it.
Result<Address> coordinator_address(const Target& target);
Result<Address> rm_address(const Target& target, const std::string& name);

struct Named {
  std::string name;
  Address address;
};
Result<std::vector<Named>> rm_addresses(const Target& target);

}  // namespace twofold::cli
