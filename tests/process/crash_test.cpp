// SIGKILL at every crossing that a transaction makes: before and after each durable write, between
// the sends of phase two, while processes start. After the restart everything ends, nothing is
// locked, and what the client was told adds up with what the stores hold: no commit lost, none done
// twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <set>
#include <thread>

#include "client/interactive.h"
#include "coordinator/core/events.h"
#include "resource_manager/core/events.h"
#include "runtime/crash_point.h"
#include "tests/process/crash_cases.h"
#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

constexpr std::chrono::seconds kReachMax{30};
constexpr int kAfterRestart = 3;  // transactions that run when the killed process is back

struct Told {
  std::int64_t committed = 0;
  std::vector<std::string> surprises;  // verdicts that the story cannot end with
};

class CrashTest : public ClusterTest, public ::testing::WithParamInterface<CrashCase> {
 protected:
  void load() {
    client::Client client(client_options());
    client::Transaction transaction;
    for (const char* rm : {"orders", "payments", "dispatch", "kitchen"}) {
      transaction.branches.push_back({rm, {put("count"), put("nothing")}});
    }
    const auto answered = client.submit(std::move(transaction));
    ASSERT_EQ(answered.outcome.verdict, Verdict::committed) << answered.outcome.detail;
  }

  static Operation put(const std::string& key) {
    return {"put", {{"key", Value{key}}, {"value", Value{std::int64_t{0}}}}};
  }

  void restart(const std::string& name, const std::vector<std::string>& arguments, bool wait) {
    ASSERT_TRUE(cluster().kill(name).has_value());
    lab::StartOptions options;
    options.arguments = arguments;
    options.wait_until_ready = wait;
    const auto started = cluster().start(name, options);
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }

  // Recovery of the loading transaction may reach the point before the provocation does.
  void wait_for_either(const std::string& one, const std::string& other) {
    const auto give_up = std::chrono::steady_clock::now() + kReachMax;
    while (!cluster().wait_for_end(one, std::chrono::milliseconds{20}) &&
           cluster().is_running(other) && std::chrono::steady_clock::now() < give_up) {
    }
  }

  void provoke(const Provocation& provocation) {
    switch (provocation.kind) {
      case Provocation::Kind::none: return;
      case Provocation::Kind::terminate:
        return cluster().open_process(provocation.process)->signal(SIGTERM);
      case Provocation::Kind::crash:
        wait_for_either(provocation.process, GetParam().process);
        if (cluster().is_running(provocation.process)) {
          EXPECT_TRUE(cluster().kill(provocation.process));
        }
        break;
      case Provocation::Kind::kill: EXPECT_TRUE(cluster().kill(provocation.process)); break;
    }
    const auto started = cluster().start(provocation.process);
    EXPECT_TRUE(started.has_value()) << started.error().message;
  }

  Outcome submit(client::Client& client, const Story& story) {
    client::Transaction transaction;
    transaction.branches = story.branches;
    return client.submit(std::move(transaction)).outcome;
  }

  // Until it has an end that the story can have: a process that dies takes what is not decided
  // along.
  Outcome interact(client::Client& client, const Story& story) {
    const auto give_up = std::chrono::steady_clock::now() + kReachMax;
    for (;;) {
      Outcome outcome;
      if (auto begun = client.begin({std::chrono::seconds{5}, {}})) {
        for (const client::Branch& branch : story.branches) begun->work(branch.rm, branch.work);
        outcome = story.commits ? begun->commit() : begun->rollback();
      } else {
        outcome.detail = begun.error().message;
      }
      if (outcome.verdict == (story.commits ? Verdict::committed : Verdict::aborted))
        return outcome;
      if (std::chrono::steady_clock::now() > give_up) return outcome;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});  // nobody may be there
    }
  }

  // Tells the story one time after the other until `back` and a few times more.
  Told tell(const Story& story, const std::atomic<bool>& back) {
    client::Client client(client_options());
    Told told;
    for (int remaining = kAfterRestart; remaining > 0;) {
      if (back) --remaining;
      const Outcome outcome = story.interactive ? interact(client, story) : submit(client, story);
      const bool fits = story.commits       ? outcome.verdict == Verdict::committed
                        : story.interactive ? outcome.verdict == Verdict::aborted
                                            : outcome.reason == Reason::refused;
      if (outcome.verdict == Verdict::committed) ++told.committed;
      ++heard_;
      heard_.notify_all();
      if (client.ask_gtrid(outcome.gtrid, wire::REPLY_AT_DECISION).verdict != outcome.verdict) {
        told.surprises.push_back("asked again, it was told another outcome");
      }
      if (!fits)
        told.surprises.push_back(std::string(name(outcome.verdict)) + ": " + outcome.detail);
    }
    return told;
  }

  std::atomic<int> heard_ = 0;
};

TEST_P(CrashTest, EverythingEndsAndAddsUp) {
  const CrashCase& crash = GetParam();
  const Story& story = test::story(crash.story);
  ASSERT_NO_FATAL_FAILURE(load());
  const bool at_coordinator = crash.process == "coordinator";
  if (!at_coordinator && !story.coordinator_arguments.empty()) {
    ASSERT_NO_FATAL_FAILURE(restart("coordinator", story.coordinator_arguments, true));
  }
  std::vector<std::string> arguments{"--crash-at", crash.point};
  if (at_coordinator) {
    arguments.insert(arguments.end(), story.coordinator_arguments.begin(),
                     story.coordinator_arguments.end());
  }
  ASSERT_NO_FATAL_FAILURE(restart(crash.process, arguments, !crash.at_start));

  if (crash.provocation.kind == Provocation::Kind::crash) {
    const std::vector<std::string> point{"--crash-at", crash.provocation.point};
    ASSERT_NO_FATAL_FAILURE(restart(crash.provocation.process, point, true));
  }

  std::atomic<bool> back = false;
  Told told;
  std::thread teller([&] { told = tell(story, back); });
  if (crash.provocation.kind != Provocation::Kind::none) {
    // Once something was told the links are up; not after a crash that comes before.
    if (crash.provocation.kind != Provocation::Kind::crash) heard_.wait(0);
    provoke(crash.provocation);
  }
  const bool died = cluster().wait_for_end(crash.process, kReachMax);
  const std::string log = read_file(cluster().log_file(crash.process));
  if (died) {
    lab::StartOptions options;
    if (at_coordinator) options.arguments = story.coordinator_arguments;
    const auto started = cluster().start(crash.process, options);
    EXPECT_TRUE(started.has_value()) << started.error().message;
  }
  back = true;
  teller.join();

  EXPECT_TRUE(died) << crash.point << " was not reached";
  EXPECT_NE(log.find("crash point " + crash.point), std::string::npos);
  EXPECT_THAT(told.surprises, ::testing::IsEmpty());
  expect_quiet();
  for (const client::Branch& branch : story.branches) {
    const bool adds = branch.work.front().name == "add" && story.commits;
    EXPECT_EQ(integers(branch.rm).at("count"), adds ? told.committed : 0) << branch.rm;
  }
}

std::string case_name(const ::testing::TestParamInfo<CrashCase>& info) {
  std::string name = info.param.process + "_" + info.param.story + "_" + info.param.point;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Points, CrashTest, ::testing::ValuesIn(crash_cases()), case_name);

// A new event or effect type is a new point: it must be crossed here, or named with the test that
// crosses it.
void expect_all_reached(bool coordinator, const std::vector<std::string_view>& names) {
  std::set<std::string> reached;
  for (const CrashCase& one : crash_cases()) {
    if ((one.process == "coordinator") != coordinator) continue;
    const auto colon = one.point.find(':');
    reached.insert(one.point.substr(colon + 1, one.point.find('#') - colon - 1));
  }
  for (const NotCrossed& one : not_crossed()) {
    if ((one.process == "coordinator") == coordinator) {
      EXPECT_EQ(reached.count(one.name), 0u) << one.name << " is crossed, and listed as not";
      reached.insert(one.name);
    }
  }
  for (const std::string_view name : names) {
    EXPECT_EQ(reached.count(std::string(name)), 1u)
        << name << " has no crash case, and no reason for that";
  }
}

TEST(CrashCases, CoverEveryEventAndEffectOfTheCoordinator) {
  expect_all_reached(true, coordinator::event_names());
  expect_all_reached(true, coordinator::effect_names());
}

TEST(CrashCases, CoverEveryEventAndEffectOfAResourceManager) {
  expect_all_reached(false, resource_manager::event_names());
  expect_all_reached(false, resource_manager::effect_names());
}

}  // namespace
}  // namespace twofold::test
