#include "lab/cluster/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace twofold::lab {
namespace {

namespace json = boost::json;

json::object to_json(const ProcessId& id) {
  return {{"pid", id.pid}, {"start_ticks", id.start_ticks}};
}

ProcessId process_from(const json::object& object) {
  return {object.at("pid").to_number<pid_t>(), object.at("start_ticks").to_number<std::uint64_t>()};
}

// Start times count from the boot, so what ran before it must not be taken for what runs now.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

ClusterState state_from(const json::object& object) {
  ClusterState state;
  const bool same_boot = object.at("boot_id").as_string() == boot_id();
  if (same_boot) state.up = process_from(object.at("up").as_object());
  for (const auto& value : object.at("processes").as_array()) {
    const auto& entry = value.as_object();
    Member member{std::string(entry.at("name").as_string()),
                  std::string(entry.at("kind").as_string()),
                  std::string(entry.at("address").as_string()),
                  {}};
    if (same_boot) member.process = process_from(entry);
    state.members.push_back(std::move(member));
  }
  return state;
}

}  // namespace

const Member* ClusterState::find(std::string_view name) const {
  for (const auto& member : members) {
    if (member.name == name) return &member;
  }
  return nullptr;
}

std::vector<Member> ClusterState::running() const {
  std::vector<Member> found;
  for (const auto& member : members) {
    if (is_alive(member.process)) found.push_back(member);
  }
  return found;
}

namespace {

// What runs with this configuration under that name, whoever started it: an `up` that was killed
// between starting a process and noting its pid has left it unnamed.
std::optional<ProcessId> find_unnamed(const std::string& configuration, const std::string& name) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
    if (words.empty()) continue;
    const auto given = [&](const std::string& option, const std::string& value) {
      const auto at = std::find(words.begin(), words.end(), option);
      return at != words.end() && at + 1 != words.end() && *(at + 1) == value;
    };
    const bool coordinator = words.front().ends_with("twofold-coordinator");
    if (!coordinator && !words.front().ends_with("twofold-rm")) continue;
    if (!given("--config", configuration)) continue;
    if (coordinator ? name == kCoordinator : given("--name", name)) return identify(std::stoi(pid));
  }
  return std::nullopt;
}

Result<ClusterState> with_unnamed(Result<ClusterState> state,
                                  const std::filesystem::path& directory) {
  if (!state) return state;
  std::error_code failed;
  const auto configuration = std::filesystem::canonical(directory, failed) / "twofold.toml";
  for (Member& member : state->members) {
    if (is_alive(member.process)) continue;
    if (auto found = find_unnamed(configuration.string(), member.name)) member.process = *found;
  }
  return state;
}

}  // namespace

Result<ClusterState> read_cluster_state(const std::filesystem::path& directory) {
  const auto path = directory / "cluster.json";
  std::ifstream file(path);
  if (!file) {
    return Error{Fault::not_found, "no system in " + directory.string() + " (there is no " +
                                       path.string() + "): start one with: twofold up --data " +
                                       directory.string()};
  }
  std::stringstream text;
  text << file.rdbuf();
  const auto damaged = [&](const std::string& why) {
    return Error{Fault::damaged, path.string() + " is not a cluster file (" + why +
                                     "): stop the processes by hand, remove the file, and run "
                                     "twofold up again"};
  };
  boost::system::error_code failed;
  const auto value = json::parse(text.str(), failed);
  if (failed) return damaged(failed.message());
  try {
    return with_unnamed(state_from(value.as_object()), directory);
  } catch (const std::exception&) {
    return damaged("it lacks what such a file has");
  }
}

Result<void> write_cluster_state(const std::filesystem::path& directory,
                                 const ClusterState& state) {
  json::array processes;
  for (const auto& member : state.members) {
    json::object entry{{"name", member.name}, {"kind", member.kind}, {"address", member.address}};
    for (auto& field : to_json(member.process)) entry.insert(field);
    processes.push_back(std::move(entry));
  }
  const json::object whole{{"version", 1},
                           {"boot_id", boot_id()},
                           {"up", to_json(state.up)},
                           {"processes", std::move(processes)}};
  const auto path = directory / "cluster.json";
  const auto temporary = directory / "cluster.json.new";
  std::ofstream file(temporary, std::ios::trunc);
  file << json::serialize(whole) << '\n';
  file.close();
  if (!file || ::rename(temporary.c_str(), path.c_str()) != 0) {
    return Error{Fault::io, "cannot write " + path.string() + ": " + std::strerror(errno)};
  }
  return {};
}

Result<ClusterLock> ClusterLock::take(const std::filesystem::path& directory) {
  const auto path = directory / "cluster.lock";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return Error{Fault::io, "cannot open " + path.string() + ": " + std::strerror(errno)};
  }
  while (::flock(descriptor, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const Error error{Fault::io, "cannot lock " + path.string() + ": " + std::strerror(errno)};
    ::close(descriptor);
    return error;
  }
  return ClusterLock(descriptor);
}

ClusterLock::ClusterLock(ClusterLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

ClusterLock::~ClusterLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace twofold::lab
