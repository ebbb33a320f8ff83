// drain: nothing new at a participant, so that it can be removed or moved.
#include <spdlog/fmt/fmt.h>

#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/target.h"
#include "client/client.h"

namespace twofold::cli {
namespace {

constexpr std::chrono::seconds kDrainAnswerMax{10};
constexpr std::chrono::milliseconds kAskAgain{200};
constexpr int kOpenShown = 5;

struct DrainOptions {
  Target target;
  std::string name;
  bool cancel = false;
  bool no_wait = false;
  bool json = false;
};

// `only_asks`: not to begin anew what somebody has taken back meanwhile.
Result<wire::DrainAnswer> ask_drain(const Address& coordinator, const DrainOptions& options,
                                    bool only_asks) {
  wire::Frame request;
  request.mutable_drain()->set_rm(options.name);
  request.mutable_drain()->set_cancel(options.cancel);
  request.mutable_drain()->set_ask(only_asks);
  auto answer = client::call_once(coordinator, std::move(request), kDrainAnswerMax);
  if (!answer) return answer.error();
  return answer->drain_answer();
}

json::object drain_json(const DrainOptions& options, const wire::DrainAnswer& told) {
  json::array open;
  for (const std::string& id : told.open()) open.emplace_back(id);
  return {
      {"rm", options.name},      {"state", told.state()},           {"standing", told.standing()},
      {"open", std::move(open)}, {"open_count", told.open_count()}, {"in_doubt", told.listed()}};
}

// What it waits for.
std::string drain_text(const DrainOptions& options, const wire::DrainAnswer& told) {
  std::string text = options.name + " is " + told.state();
  if (told.state() != "draining") return text;
  if (told.standing() == "away") {
    return text + ", and away: start it, since only it can tell what is left";
  }
  if (told.standing() == "barred") {
    return text +
           ", but another store answers in its place: bring the former one back, since only "
           "it can tell what is left";
  }
  if (told.open_count() == 0 && told.listed() == 0) return text + ": being asked what is left";
  text += fmt::format(": {}, {} in doubt", plural(told.open_count(), "open transaction"),
                      told.listed());
  for (int i = 0; i < told.open_size() && i < kOpenShown; ++i) {
    text += (i == 0 ? " (" : ", ") + told.open(i);
  }
  if (told.open_count() == 0) return text + "; see twofold in-doubt " + options.name;
  return text + (told.open_count() > kOpenShown ? ", …)" : ")");
}

int drain(const DrainOptions& options) {
  const auto coordinator = coordinator_address(options.target);
  if (!coordinator) return fail(coordinator.error());
  std::string said;
  for (bool begun = false;; begun = true) {
    const auto told = ask_drain(*coordinator, options, begun);
    if (!told) return fail(told.error());
    if (begun && told->state() == "active") {
      return fail({Fault::closed, options.name +
                                      " is active again: draining it was taken back meanwhile "
                                      "(drain --cancel), or another store was put in its place"});
    }
    if (options.cancel || options.no_wait || told->state() == "drained") {
      if (options.json) {
        print_json(drain_json(options, *told));
      } else {
        print_line(drain_text(options, *told) +
                   (told->state() == "drained"
                        ? ": take it out of the configuration, or put another in its place"
                        : ""));
      }
      return 0;
    }
    if (std::string text = drain_text(options, *told); text != said) {
      note(text);
      said = std::move(text);
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace

void add_drain(CLI::App& app, int& status) {
  auto options = std::make_shared<DrainOptions>();
  auto* command = app.add_subcommand(
      "drain",
      "Let nothing new begin at a participant, and wait until none of our branches is left");
  add_target(*command, options->target, Finds::coordinator);
  command->add_option("RM", options->name, "The participant")->required();
  auto* cancel =
      command->add_flag("--cancel", options->cancel, "Take it back: new work is accepted again");
  command->add_flag("--no-wait", options->no_wait, "Do not wait until it is drained")
      ->excludes(cancel);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Example:\n  twofold drain kitchen --data /var/tmp/shop\n\nOnly a drained participant may be "
      "left out of the configuration, or come back with another "
      "store.\nStopped with Ctrl-C, it goes on draining. See docs/participants.md.");
  command->callback([options, &status] { status = drain(*options); });
}

}  // namespace twofold::cli
