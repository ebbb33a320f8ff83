#include "runtime/configuration.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include "protocol/text.h"
#include "protocol/xid.h"

namespace twofold {
namespace {

namespace fs = std::filesystem;

using Problem = std::optional<Error>;

constexpr std::uint64_t kCountMax = 1'000'000'000;
constexpr std::uint64_t kMillisecondsMax = 86'400'000;  // a day; on the wire they are 32 bits
constexpr std::uint64_t kMapMin = 1u << 20;
constexpr std::uint64_t kMapMax = std::uint64_t{1} << 46;
constexpr std::uint64_t kFrameMin = 64u << 10;  // a handshake must always fit
constexpr std::uint64_t kFrameMax = 1u << 30;
constexpr std::uint64_t kTextMax = 4'096;

// One option: where it lives and what it may be. For numbers min and max bound the value, for texts
// the length in bytes. Reading, writing and the error texts all come from these tables.
template <class Section>
struct Option {
  std::string_view key;
  std::variant<std::uint64_t Section::*, bool Section::*, std::string Section::*,
               fs::path Section::*>
      member;
  std::uint64_t min = 0;
  std::uint64_t max = 0;
};

// `lesser` may not be above `greater`.
template <class Section>
struct Ordered {
  std::string_view lesser;
  std::uint64_t Section::*lesser_member;
  std::string_view greater;
  std::uint64_t Section::*greater_member;
};

using C = CoordinatorConfiguration;
const Option<C> kCoordinatorOptions[] = {
    {"node", &C::node, 1, kNodeBytesMax},
    {"listen", &C::listen, 1, kTextMax},
    {"log", &C::log, 1, kTextMax},
    {"log_map_bytes", &C::log_map_bytes, kMapMin, kMapMax},
    {"transactions_max", &C::transactions_max, 1, kCountMax},
    {"branches_max", &C::branches_max, 1, 65'535},  // a branch's index has 16 bits
    {"outcomes_max", &C::outcomes_max, 1, kCountMax},
    {"connections_max", &C::connections_max, 1, kCountMax},
    {"frame_bytes_max", &C::frame_bytes_max, kFrameMin, kFrameMax},
    {"timeout_default_ms", &C::timeout_default_ms, 1, kMillisecondsMax},
    {"timeout_max_ms", &C::timeout_max_ms, 1, kMillisecondsMax},
    {"scan_period_ms", &C::scan_period_ms, 10, kMillisecondsMax},
    {"scan_time_max_ms", &C::scan_time_max_ms, 10, kMillisecondsMax},
    {"mark_period_ms", &C::mark_period_ms, 1, kMillisecondsMax},
    {"mark_alarm_ms", &C::mark_alarm_ms, 1, kMillisecondsMax},
    {"lazy_flush_ms", &C::lazy_flush_ms, 0, kMillisecondsMax},
    {"heartbeat_ms", &C::heartbeat_ms, 1, kMillisecondsMax},
    {"silence_max_ms", &C::silence_max_ms, 1, kMillisecondsMax},
    {"reconnect_first_ms", &C::reconnect_first_ms, 1, kMillisecondsMax},
    {"reconnect_max_ms", &C::reconnect_max_ms, 1, kMillisecondsMax},
    {"shutdown_grace_ms", &C::shutdown_grace_ms, 0, kMillisecondsMax},
    {"read_only_votes", &C::read_only_votes},
    {"one_phase", &C::one_phase},
    {"early_prepare", &C::early_prepare},
};
const Ordered<C> kCoordinatorOrder[] = {
    {"timeout_default_ms", &C::timeout_default_ms, "timeout_max_ms", &C::timeout_max_ms},
    {"heartbeat_ms", &C::heartbeat_ms, "silence_max_ms", &C::silence_max_ms},
    {"reconnect_first_ms", &C::reconnect_first_ms, "reconnect_max_ms", &C::reconnect_max_ms},
};

using R = ResourceManagerConfiguration;
const Option<R> kResourceManagerOptions[] = {
    {"name", &R::name, 1, kRmNameBytesMax},
    {"address", &R::address, 1, kTextMax},
    {"kind", &R::kind, 1, kTextMax},
    {"data", &R::data, 1, kTextMax},
    {"map_bytes", &R::map_bytes, kMapMin, kMapMax},
    {"branches_max", &R::branches_max, 1, kCountMax},
    {"locks_max", &R::locks_max, 1, kCountMax},
    {"connections_max", &R::connections_max, 1, kCountMax},
    {"frame_bytes_max", &R::frame_bytes_max, kFrameMin, kFrameMax},
    {"scan_bytes_max", &R::scan_bytes_max, 1, kFrameMax},
    {"lock_timeout_ms", &R::lock_timeout_ms, 1, kMillisecondsMax},
    {"fence_ms", &R::fence_ms, 1, 4'000},
    {"lazy_flush_ms", &R::lazy_flush_ms, 0, kMillisecondsMax},
    {"heartbeat_ms", &R::heartbeat_ms, 1, kMillisecondsMax},
    {"silence_max_ms", &R::silence_max_ms, 1, kMillisecondsMax},
    {"early_release", &R::early_release},
};
const Ordered<R> kResourceManagerOrder[] = {
    {"heartbeat_ms", &R::heartbeat_ms, "silence_max_ms", &R::silence_max_ms},
};

Error fault(const fs::path& file, const toml::source_region& where, const std::string& what) {
  return {Fault::invalid, file.string() + ":" + std::to_string(where.begin.line) + ": " + what};
}

std::string range(std::uint64_t min, std::uint64_t max) {
  return std::to_string(min) + " to " + std::to_string(max);
}

// Puts one TOML value into the member it belongs to: one overload for each type of member.
template <class Section>
struct Assign {
  Section& section;
  const Option<Section>& option;
  const toml::node& node;
  const fs::path& file;

  Problem operator()(std::uint64_t Section::*member) const {
    const auto value = node.value_exact<std::int64_t>();
    if (!value) return wrong("a whole number, " + range(option.min, option.max));
    if (*value < 0 || !within(static_cast<std::uint64_t>(*value))) {
      return wrong(range(option.min, option.max) + ", and is " + std::to_string(*value));
    }
    section.*member = static_cast<std::uint64_t>(*value);
    return {};
  }
  Problem operator()(bool Section::*member) const {
    const auto value = node.value_exact<bool>();
    if (!value) return wrong("true or false");
    section.*member = *value;
    return {};
  }
  Problem operator()(std::string Section::*member) const {
    const auto value = node.value_exact<std::string>();
    if (!value || !usable(*value)) return wrong(text());
    section.*member = *value;
    return {};
  }
  Problem operator()(fs::path Section::*member) const {
    const auto value = node.value_exact<std::string>();
    if (!value || !usable(*value)) return wrong(text());
    fs::path path = (fs::absolute(file).parent_path() / *value).lexically_normal();
    // As it will be written by to_toml().
    if (!within(path.native().size())) return wrong(text() + ", counted from the root");
    section.*member = std::move(path);
    return {};
  }

 private:
  bool within(std::uint64_t value) const { return value >= option.min && value <= option.max; }
  // The operating system would take a name up to its first NUL for the whole.
  bool usable(const std::string& text) const {
    return within(text.size()) && text.find('\0') == std::string::npos;
  }
  std::string text() const {
    return "a text of " + range(option.min, option.max) + " bytes without NUL";
  }
  Error wrong(const std::string& allowed) const {
    return fault(file, node.source(), std::string(option.key) + " must be " + allowed);
  }
};

template <class Section>
Problem unknown_key(const toml::key& key, const std::string& table,
                    std::span<const Option<Section>> options, const fs::path& file) {
  std::string choices;
  for (const auto& option : options) choices.append(choices.empty() ? "" : ", ").append(option.key);
  return fault(
      file, key.source(),
      "unknown option \"" + shown(key.str()) + "\" in " + table + "; there are: " + choices);
}

template <class Section>
Problem read_section(const toml::table& table, const std::string& title,
                     std::span<const Option<Section>> options,
                     std::span<const Ordered<Section>> order, const fs::path& file,
                     Section& section) {
  for (const auto& [key, node] : table) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const auto& o) { return o.key == key.str(); });
    if (option == options.end()) return unknown_key(key, title, options, file);
    if (auto wrong = std::visit(Assign<Section>{section, *option, node, file}, option->member)) {
      return wrong;
    }
  }
  for (const auto& pair : order) {
    if (section.*pair.lesser_member > section.*pair.greater_member) {
      return fault(file, table.source(),
                   std::string(pair.lesser) + " (" + std::to_string(section.*pair.lesser_member) +
                       ") must not be above " + std::string(pair.greater) + " (" +
                       std::to_string(section.*pair.greater_member) + ") in " + title);
    }
  }
  return {};
}

Problem read_coordinator(const toml::node& node, const fs::path& file,
                         CoordinatorConfiguration& coordinator) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return fault(file, node.source(), "write [coordinator] as one table");
  return read_section<C>(*table, "[coordinator]", kCoordinatorOptions, kCoordinatorOrder, file,
                         coordinator);
}

Problem read_resource_manager(const toml::node& node, const fs::path& file,
                              std::vector<ResourceManagerConfiguration>& known) {
  constexpr auto kTitle = "[[resource_manager]]";
  const toml::table* table = node.as_table();
  if (table == nullptr)
    return fault(file, node.source(), "write each resource manager as [[resource_manager]]");
  ResourceManagerConfiguration rm;
  if (auto wrong = read_section<R>(*table, kTitle, kResourceManagerOptions, kResourceManagerOrder,
                                   file, rm)) {
    return wrong;
  }
  for (std::string_view needed : {"name", "address"}) {
    if (!table->contains(needed)) {
      return fault(file, table->source(), std::string(kTitle) + " needs " + std::string(needed));
    }
  }
  for (const auto& other : known) {
    if (other.name == rm.name) {
      return fault(file, table->source(),
                   "there are two resource managers named \"" + shown(rm.name) +
                       "\"; give each a name of its own");
    }
    // Port 0 stands for one that `twofold up` chooses.
    if (other.address == rm.address && !rm.address.ends_with(":0")) {
      return fault(file, table->source(),
                   "\"" + shown(other.name) + "\" and \"" + shown(rm.name) +
                       "\" have the same address " + shown(rm.address) +
                       "; give each one of its own");
    }
  }
  known.push_back(std::move(rm));
  return {};
}

Problem read_document(const toml::table& document, const fs::path& file, Configuration& result) {
  for (const auto& [key, node] : document) {
    if (key == "coordinator") {
      if (auto wrong = read_coordinator(node, file, result.coordinator)) return wrong;
    } else if (key == "resource_manager") {
      const toml::array* list = node.as_array();
      if (list == nullptr) {
        return fault(file, node.source(), "write each resource manager as [[resource_manager]]");
      }
      for (const auto& entry : *list) {
        if (auto wrong = read_resource_manager(entry, file, result.resource_managers)) return wrong;
      }
    } else {
      return fault(file, key.source(),
                   "unknown table \"" + shown(key.str()) +
                       "\"; there are: [coordinator], [[resource_manager]]");
    }
  }
  return {};
}

template <class Section>
void write_section(const Section& section, std::span<const Option<Section>> options,
                   std::ostream& out) {
  struct Value {
    const Section& section;
    std::ostream& out;
    void operator()(std::uint64_t Section::*member) const { out << section.*member; }
    void operator()(bool Section::*member) const { out << (section.*member ? "true" : "false"); }
    void operator()(std::string Section::*member) const { write(section.*member); }
    void operator()(fs::path Section::*member) const { write((section.*member).string()); }
    // In double quotes, with escapes: the other ways to write a text lose its line breaks.
    void write(const std::string& text) const {
      constexpr auto kOtherWays =
          toml::format_flags::allow_literal_strings | toml::format_flags::allow_multi_line_strings;
      using Formatter = toml::toml_formatter;
      const toml::value<std::string> value{text};
      out << Formatter{value, Formatter::default_flags & ~kOtherWays};
    }
  };
  for (const auto& option : options) {
    const auto path = std::get_if<fs::path Section::*>(&option.member);
    if (path != nullptr && (section.**path).empty()) continue;  // not given
    out << option.key << " = ";
    std::visit(Value{section, out}, option.member);
    out << '\n';
  }
}

}  // namespace

Result<Configuration> parse_configuration(std::string_view text, const fs::path& file) {
  Configuration configuration;
  try {
    const toml::table document = toml::parse(text, file.string());
    if (auto wrong = read_document(document, file, configuration)) return *wrong;
  } catch (const toml::parse_error& error) {
    return fault(file, error.source(), printable(error.description()));
  }
  return configuration;
}

Result<Configuration> read_configuration(const fs::path& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  const int code = fs::is_directory(file) ? EISDIR : errno;
  if (!in || code == EISDIR) {
    return Error{code == ENOENT ? Fault::not_found : Fault::io,
                 "cannot read the configuration " + file.string() + ": " + std::strerror(code) +
                     "; give the TOML file that describes the system"};
  }
  return parse_configuration(text.str(), file);
}

std::string to_toml(const Configuration& configuration) {
  std::ostringstream out;
  out << "[coordinator]\n";
  write_section<C>(configuration.coordinator, kCoordinatorOptions, out);
  for (const auto& rm : configuration.resource_managers) {
    out << "\n[[resource_manager]]\n";
    write_section<R>(rm, kResourceManagerOptions, out);
  }
  return out.str();
}

}  // namespace twofold
