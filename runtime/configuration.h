// The one TOML file that describes a system: a coordinator, and its resource managers by name and
// address. Every program reads its own part of it; command line options win over the file.
//
//   [coordinator]
//   node = "main"                    # names this coordinator to resource managers, 1 to 32 bytes
//   listen = "127.0.0.1:7400"
//   log = "coordinator/log"          # relative paths start at the file's own folder
//   transactions_max = 100000        # and every other option of CoordinatorConfiguration
//
//   [[resource_manager]]
//   name = "payments"
//   address = "127.0.0.1:7402"
//   kind = "store"                   # what follows is for twofold-rm only
//   data = "payments"
//   lock_timeout_ms = 10000
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "protocol/result.h"

namespace twofold {

struct CoordinatorConfiguration {
  std::string node = "main";
  std::string listen = "127.0.0.1:7400";
  std::filesystem::path log;
  std::uint64_t log_map_bytes = 256u << 20;  // used when `twofold up` makes the log
  std::uint64_t transactions_max = 100'000;
  std::uint64_t branches_max = 64;
  std::uint64_t outcomes_max = 100'000;
  std::uint64_t connections_max = 10'000;
  std::uint64_t frame_bytes_max = 16u << 20;
  std::uint64_t timeout_default_ms = 10'000;
  std::uint64_t timeout_max_ms = 600'000;
  std::uint64_t scan_period_ms = 5'000;
  std::uint64_t scan_time_max_ms = 60'000;  // a scan that takes longer counts as failed
  std::uint64_t mark_period_ms = 500;
  std::uint64_t mark_alarm_ms = 300'000;
  std::uint64_t lazy_flush_ms = 20;
  std::uint64_t heartbeat_ms = 1'000;
  std::uint64_t silence_max_ms = 5'000;
  std::uint64_t reconnect_first_ms = 50;
  std::uint64_t reconnect_max_ms = 2'000;
  std::uint64_t shutdown_grace_ms = 1'000;
  bool read_only_votes = true;
  bool one_phase = true;
  bool early_prepare = true;
  bool operator==(const CoordinatorConfiguration&) const = default;
};

struct ResourceManagerConfiguration {
  std::string name;
  std::string address;  // where it listens and is reached
  std::string kind = "store";
  std::filesystem::path data;
  std::uint64_t map_bytes = 256u << 20;  // used when the data is made
  std::uint64_t branches_max = 100'000;
  std::uint64_t locks_max = 10'000;
  std::uint64_t connections_max = 1'000;
  std::uint64_t frame_bytes_max = 16u << 20;
  std::uint64_t scan_bytes_max = 8u << 20;
  std::uint64_t lock_timeout_ms = 10'000;
  std::uint64_t fence_ms = 2'000;  // below the 5 s that a coordinator waits for its Welcome
  std::uint64_t lazy_flush_ms = 20;
  std::uint64_t heartbeat_ms = 1'000;
  // Longer than the coordinator's by more than a heartbeat: of a connection cut both ways the
  // coordinator learns first, before the locks of an unvoted or read-only branch go here (rule 11).
  std::uint64_t silence_max_ms = 10'000;
  bool early_release = true;
  bool operator==(const ResourceManagerConfiguration&) const = default;
};

struct Configuration {
  CoordinatorConfiguration coordinator;
  std::vector<ResourceManagerConfiguration> resource_managers;
  bool operator==(const Configuration&) const = default;
};

// Refuses unknown keys, wrong types, values out of range, doubled names: file, line, and what is
// allowed.
Result<Configuration> read_configuration(const std::filesystem::path& file);
Result<Configuration> parse_configuration(std::string_view text, const std::filesystem::path& file);
std::string to_toml(const Configuration& configuration);  // parses back to the same

}  // namespace twofold
