#include "coordinator/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <utility>

namespace twofold::coordinator {
namespace {

using C = CoordinatorConfiguration;

struct Number {
  const char* option;
  std::uint64_t C::*member;
  const char* help;
};
constexpr Number kNumbers[] = {
    {"--log-map-bytes", &C::log_map_bytes, "size of a log that `twofold up` makes"},
    {"--transactions-max", &C::transactions_max, "live transactions at once"},
    {"--branches-max", &C::branches_max, "branches of one transaction"},
    {"--outcomes-max", &C::outcomes_max, "outcomes kept after the end"},
    {"--connections-max", &C::connections_max, "clients at once"},
    {"--frame-bytes-max", &C::frame_bytes_max, "largest message accepted"},
    {"--timeout-default-ms", &C::timeout_default_ms, "of a transaction that names none"},
    {"--timeout-max-ms", &C::timeout_max_ms, "of any transaction"},
    {"--scan-period-ms", &C::scan_period_ms, "between listings of branches in doubt"},
    {"--scan-time-max-ms", &C::scan_time_max_ms, "a listing that takes longer has failed"},
    {"--mark-period-ms", &C::mark_period_ms, "between low-water marks"},
    {"--mark-alarm-ms", &C::mark_alarm_ms, "a transaction this old is an alarm"},
    {"--lazy-flush-ms", &C::lazy_flush_ms, "an unforced record waits so long for company"},
    {"--heartbeat-ms", &C::heartbeat_ms, "something is sent at least this often"},
    {"--silence-max-ms", &C::silence_max_ms, "nothing heard for so long ends a connection"},
    {"--reconnect-first-ms", &C::reconnect_first_ms, "first pause before connecting again"},
    {"--reconnect-max-ms", &C::reconnect_max_ms, "longest pause before connecting again"},
    {"--shutdown-grace-ms", &C::shutdown_grace_ms, "at SIGTERM: time for what is under way"},
};

struct Switch {
  const char* option;
  bool C::*member;
  const char* help;
};
constexpr Switch kSwitches[] = {
    {"--early-prepare,!--no-early-prepare", &C::early_prepare, "prepare in the answer to the work"},
    {"--one-phase,!--no-one-phase", &C::one_phase, "one phase for a single branch"},
    {"--read-only-votes,!--no-read-only-votes", &C::read_only_votes,
     "no phase two for branches that wrote nothing"},
};

constexpr const char* kFooter = R"(Examples:
  twofold-coordinator --config twofold.toml
  twofold-log init main.log --node main
  twofold-coordinator --log main.log --node main --listen 127.0.0.1:7400 \
    --rm orders=127.0.0.1:7401 --rm payments=127.0.0.1:7402

SIGTERM ends it in order: what is under way ends or is told unknown. A second one ends it
at once.)";

// NAME=HOST:PORT
Result<ResourceManagerConfiguration> parse_rm(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return Error{Fault::invalid, "--rm " + text + ": write NAME=HOST:PORT"};
  }
  ResourceManagerConfiguration rm;
  rm.name = text.substr(0, at);
  rm.address = text.substr(at + 1);
  return rm;
}

class Parser {
 public:
  Parser() {
    app_.footer(kFooter);
    app_.add_option("--config", config_, "TOML file that describes the system")
        ->check(CLI::ExistingFile);
    bind<std::string>("--node", &C::node, "name of this coordinator; its log must bear it");
    bind<std::string>("--listen", &C::listen, "HOST:PORT for clients; port 0: any free one");
    bind<std::filesystem::path>("--log", &C::log, "directory of the decision log");
    app_.add_option("--rm", rms_, "NAME=HOST:PORT of a resource manager; again for each")
        ->type_size(1)
        ->allow_extra_args(false);
    for (const Number& n : kNumbers) bind<std::uint64_t>(n.option, n.member, n.help);
    for (const Switch& s : kSwitches)
      keep(app_.add_flag(s.option, given_.*s.member, s.help), s.member);
    app_.add_option("--crash-at", result_.crash_at,
                    "for tests: SIGKILL at before|after:<name>[@rm][#n]");
    app_.add_flag("--list-crash-points", result_.list_crash_points, "print them and exit");
    app_.add_option("--log-level", result_.log_level, "trace, debug, info, warn, error or off");
    app_.add_flag("--rebuild", result_.rebuild,
                  "for once: this is a new log for a node that resource managers already know");
    app_.add_flag("--restored", result_.restored,
                  "for once: the log is a backup or another older copy of itself, and the newest "
                  "there is; docs/backup.md says what is done and what is lost");
    app_.add_option("--accept-store", result_.accept_stores,
                    "NAME of a resource manager whose store is lost for good: for once, another "
                    "one is taken in its place; docs/participants.md says what is lost")
        ->type_size(1)
        ->allow_extra_args(false);
    app_.add_flag("--check", result_.check,
                  "only say whether the log allows to start with this configuration");
  }

  ParsedCommandLine parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
      return {{}, app_.exit(end)};
    }
    if (result_.list_crash_points) return {std::move(result_), -1};
    Result<Configuration> configuration = gather();
    if (!configuration) {
      std::cerr << "twofold-coordinator: " << configuration.error().message << '\n';
      return {{}, EXIT_FAILURE};
    }
    result_.configuration = std::move(*configuration);
    return {std::move(result_), -1};
  }

 private:
  template <class Value>
  void bind(const char* option, Value C::*member, const char* help) {
    keep(app_.add_option(option, given_.*member, help)->capture_default_str(), member);
  }
  template <class Value>
  void keep(const CLI::Option* option, Value C::*member) {
    overrides_.push_back([this, option, member](C& into) {
      if (option->count() > 0) into.*member = given_.*member;
    });
  }

  // The file, what the options override, and one check of the whole: the same limits hold for both.
  Result<Configuration> gather() {
    Configuration configuration;
    if (!config_.empty()) {
      Result<Configuration> read = read_configuration(config_);
      if (!read) return read.error();
      configuration = std::move(*read);
    }
    for (const auto& override_in : overrides_) override_in(configuration.coordinator);
    for (const std::string& text : rms_) {
      Result<ResourceManagerConfiguration> rm = parse_rm(text);
      if (!rm) return rm.error();
      replace_or_add(configuration.resource_managers, std::move(*rm));
    }
    if (configuration.coordinator.log.empty()) {
      return Error{Fault::invalid,
                   "no decision log is named: give --log DIR, or log in the configuration's "
                   "[coordinator]; make one with: twofold-log init DIR --node NAME"};
    }
    if (configuration.resource_managers.empty()) {
      return Error{
          Fault::invalid,
          "no resource manager is named: give --rm NAME=HOST:PORT, or [[resource_manager]] in "
          "the configuration"};
    }
    return parse_configuration(to_toml(configuration), "command line");
  }

  static void replace_or_add(std::vector<ResourceManagerConfiguration>& rms,
                             ResourceManagerConfiguration rm) {
    auto same = std::find_if(rms.begin(), rms.end(),
                             [&](const auto& known) { return known.name == rm.name; });
    if (same == rms.end()) return rms.push_back(std::move(rm));
    same->address = std::move(rm.address);
  }

  CLI::App app_{"Decides transactions across resource managers and keeps the decisions."};
  CommandLine result_;
  C given_;
  std::string config_;
  std::vector<std::string> rms_;
  std::vector<std::function<void(C&)>> overrides_;
};

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  return Parser().parse(argc, argv);
}

}  // namespace twofold::coordinator
