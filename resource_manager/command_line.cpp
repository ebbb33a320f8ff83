#include "resource_manager/command_line.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <utility>
#include <vector>

#include "resource_manager/core/events.h"

namespace twofold::resource_manager {
namespace {

using R = ResourceManagerConfiguration;

struct Number {
  const char* option;
  std::uint64_t R::*member;
  const char* help;
};
constexpr Number kNumbers[] = {
    {"--map-bytes", &R::map_bytes, "of a store: size of the data's map when it is made"},
    {"--branches-max", &R::branches_max, "branches at once"},
    {"--locks-max", &R::locks_max, "locks of one branch"},
    {"--connections-max", &R::connections_max, "connections at once"},
    {"--frame-bytes-max", &R::frame_bytes_max, "largest message accepted"},
    {"--scan-bytes-max", &R::scan_bytes_max, "largest answer to a scan"},
    {"--lock-timeout-ms", &R::lock_timeout_ms, "longest wait for locks"},
    {"--fence-ms", &R::fence_ms, "a new session waits so long for an old one's work"},
    {"--lazy-flush-ms", &R::lazy_flush_ms, "an unforced record waits so long for company"},
    {"--heartbeat-ms", &R::heartbeat_ms, "something is sent at least this often"},
    {"--silence-max-ms", &R::silence_max_ms, "nothing heard for so long ends a connection"},
};

constexpr const char* kFooter = R"(Examples:
  twofold-rm --config twofold.toml --name payments
  twofold-rm --kind store --name payments --listen 127.0.0.1:7402 --data payments
  twofold-rm --kind files --name invoices --listen 127.0.0.1:7405 --data invoices

Data that is missing is made. SIGTERM and SIGINT end it in order: what was asked for is written.)";

std::vector<std::string_view> crash_names() {
  std::vector<std::string_view> names = event_names();
  for (std::string_view effect : effect_names()) names.push_back(effect);
  return names;
}

class Parser {
 public:
  explicit Parser(CommandLine& out) : out_(out) {
    app_.footer(kFooter);
    app_.add_option("--config", config_, "TOML file that describes the system");
    bind<std::string>("--name", &R::name, "of this resource manager; in the file, if there is one");
    bind<std::string>("--kind", &R::kind, "what it is: store or files");
    bind<std::string>("--listen,--address", &R::address, "HOST:PORT; port 0: any free one");
    bind<std::filesystem::path>("--data", &R::data, "directory of its data");
    for (const Number& n : kNumbers) bind<std::uint64_t>(n.option, n.member, n.help);
    keep(app_.add_flag("--early-release,!--no-early-release", given_.early_release,
                       "let go of locks when a commit arrives"),
         &R::early_release);
    app_.add_option("--crash-at", crash_at_, "for tests: SIGKILL at before|after:<name>[#n]");
    app_.add_flag("--list-crash-points", list_crash_points_, "print them and exit");
    app_.add_option("--log-level", out_.log_level, "trace, debug, info, warn, error or off")
        ->capture_default_str();
    app_.add_option("--ready-file", out_.ready_file,
                    "write the address into this file when it serves");
  }

  std::optional<int> parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
      return app_.exit(end);
    }
    if (list_crash_points_) {
      for (const std::string& point : CrashPoint::all(crash_names())) std::cout << point << '\n';
      return EXIT_SUCCESS;
    }
    Result<R> configuration = gather();
    if (!configuration) return complain(configuration.error());
    out_.configuration = std::move(*configuration);
    if (crash_at_.empty()) return std::nullopt;
    Result<CrashPoint> point = CrashPoint::parse(crash_at_, crash_names());
    if (!point) return complain(point.error());
    out_.crash_point = std::move(*point);
    return std::nullopt;
  }

 private:
  static int complain(const Error& error) {
    std::cerr << "twofold-rm: " << error.message << '\n';
    return EXIT_FAILURE;
  }

  template <class Value>
  void bind(const char* option, Value R::*member, const char* help) {
    keep(app_.add_option(option, given_.*member, help)->capture_default_str(), member);
  }
  template <class Value>
  void keep(const CLI::Option* option, Value R::*member) {
    overrides_.push_back([this, option, member](R& into) {
      if (option->count() > 0) into.*member = given_.*member;
    });
  }

  // The file's entry, what the options override, and one check of the whole: the same limits hold
  // for both.
  Result<R> gather() {
    R gathered;
    if (!config_.empty()) {
      Result<R> read = from_file();
      if (!read) return read.error();
      gathered = std::move(*read);
    }
    for (const auto& override_in : overrides_) override_in(gathered);
    if (gathered.name.empty() || gathered.address.empty() || gathered.data.empty()) {
      return Error{Fault::invalid,
                   "this resource manager needs a name, an address and a place for its data: give "
                   "--config FILE --name NAME, or --name, --listen and --data"};
    }
    Configuration whole;
    whole.resource_managers.push_back(std::move(gathered));
    Result<Configuration> checked = parse_configuration(to_toml(whole), "command line");
    if (!checked) return checked.error();
    return std::move(checked->resource_managers.front());
  }

  Result<R> from_file() {
    Result<Configuration> read = read_configuration(config_);
    if (!read) return read.error();
    std::string names;
    for (R& each : read->resource_managers) {
      if (each.name == given_.name) return std::move(each);
      names += (names.empty() ? "" : ", ") + each.name;
    }
    return Error{Fault::not_found,
                 given_.name.empty()
                     ? "say with --name which one of " + config_ + " this is: " + names
                     : config_ + " has no resource manager '" + given_.name + "', only: " + names};
  }

  CLI::App app_{"Hosts one resource manager behind Twofold's wire protocol."};
  CommandLine& out_;
  R given_;
  std::string config_;
  std::string crash_at_;
  bool list_crash_points_ = false;
  std::vector<std::function<void(R&)>> overrides_;
};

}  // namespace

std::optional<int> parse_command_line(int argc, const char* const* argv, CommandLine& out) {
  return Parser(out).parse(argc, argv);
}

}  // namespace twofold::resource_manager
