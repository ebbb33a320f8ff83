// Interactive transactions over real processes: clients that work, wait for each other, vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "client/interactive.h"
#include "lab/workflows/order.h"
#include "lab/workflows/transaction_line.h"
#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

using client::ActiveTransaction;
using client::Client;
using client::Worked;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

Work put(const std::string& key, std::int64_t value) {
  return {{"put", {{"key", Value{key}}, {"value", Value{value}}}}};
}
Work add(const std::string& key, std::int64_t by) {
  return {{"add", {{"key", Value{key}}, {"by", Value{by}}, {"min", Value{std::int64_t{0}}}}}};
}
Work get(const std::string& key) {
  return {{"get", {{"key", Value{key}}}}};
}

class InteractiveTest : public ClusterTest {
 protected:
  ActiveTransaction begin(Client& client, milliseconds timeout = seconds{10}) {
    auto begun = client.begin({timeout, {}});
    const auto give_up = std::chrono::steady_clock::now() + seconds{10};
    while (!begun && std::chrono::steady_clock::now() < give_up)
      begun = client.begin({timeout, {}});
    EXPECT_TRUE(begun.has_value());
    return std::move(*begun);
  }
  // Begun, and this work done. Right after a start a link may not be up yet: then another begins.
  ActiveTransaction begin_with(Client& client, const std::string& rm, const Work& work) {
    for (int i = 0;; ++i) {
      auto transaction = begin(client);
      const Worked worked = transaction.work(rm, work);
      if (worked.ok() || i == 500) {
        EXPECT_TRUE(worked.ok()) << worked.text;
        return transaction;
      }
      std::this_thread::sleep_for(milliseconds{10});
    }
  }
  void load(Client& client, const std::string& key, std::int64_t value) {
    for (const char* rm : {"orders", "payments"}) {
      auto transaction = begin_with(client, rm, put(key, value));
      const Outcome outcome = transaction.commit(true);
      ASSERT_EQ(outcome.verdict, Verdict::committed) << outcome.detail;
    }
  }
};

TEST_F(InteractiveTest, ReadsItsOwnWritesAndCommitsAll) {
  Client client(client_options());
  load(client, "a", 5);
  auto transaction = begin(client);
  ASSERT_TRUE(transaction.work("payments", add("a", 2)).ok());
  const Worked read = transaction.work("payments", get("a"));
  ASSERT_TRUE(read.ok()) << read.text;
  EXPECT_EQ(read.results, Results{Value{std::int64_t{7}}});
  ASSERT_TRUE(transaction.work("orders", add("a", -2)).ok());
  EXPECT_EQ(integers("payments").at("a"), 5);  // nobody else sees it yet
  const Outcome outcome = transaction.commit(true);
  EXPECT_EQ(outcome.verdict, Verdict::committed) << outcome.detail;
  EXPECT_EQ(integers("payments").at("a"), 7);
  EXPECT_EQ(integers("orders").at("a"), 3);
  EXPECT_EQ(client.ask_gtrid(transaction.gtrid()).verdict, Verdict::committed);
  expect_quiet();
}

TEST_F(InteractiveTest, ARefusedWorkMakesTheCommitAnAbortThatSaysWhy) {
  Client client(client_options());
  load(client, "a", 5);
  auto transaction = begin(client);
  ASSERT_TRUE(transaction.work("orders", add("a", 1)).ok());
  const Worked refused = transaction.work("payments", add("a", -6));
  EXPECT_EQ(refused.code, Xa::rbintegrity);
  ASSERT_EQ(refused.refusals.size(), 1u);
  EXPECT_EQ(refused.refusals[0].key, "a");
  EXPECT_EQ(refused.text, "payments: add a: would go below min 0, found 5");
  const Outcome outcome = transaction.commit();
  EXPECT_EQ(outcome.verdict, Verdict::aborted);
  EXPECT_EQ(outcome.reason, Reason::refused);
  ASSERT_EQ(outcome.refusals.size(), 1u);
  EXPECT_EQ(outcome.refusals[0].rm, "payments");
  expect_quiet();
  EXPECT_EQ(integers("orders").at("a"), 5);
}

TEST_F(InteractiveTest, IsRolledBackWhenDroppedAndWhenItsClientVanishes) {
  Client watching(client_options());
  load(watching, "a", 5);
  {
    Client client(client_options());
    auto transaction = begin(client);
    ASSERT_TRUE(transaction.work("payments", add("a", 1)).ok());
    auto dropped = std::move(transaction);
  }
  expect_quiet(seconds{5});
  std::string gtrid;
  {
    Client client(client_options());
    auto transaction = begin(client, milliseconds{300});
    ASSERT_TRUE(transaction.work("payments", add("a", 1)).ok());
    gtrid = transaction.gtrid();
    transaction.leave();  // as a client that is killed: nothing is sent
  }
  const Outcome outcome = watching.ask_gtrid(gtrid, wire::REPLY_AT_END);
  EXPECT_EQ(outcome.verdict, Verdict::aborted);
  EXPECT_EQ(outcome.reason, Reason::timeout);
  expect_quiet(seconds{5});
  EXPECT_EQ(integers("payments").at("a"), 5);
}

TEST_F(InteractiveTest, SeveralThreadsAndSeveralProcessesWorkInOneTransaction) {
  Client client(client_options()), other(client_options());
  load(client, "a", 0);
  auto transaction = begin(client);
  ASSERT_TRUE(transaction.work("payments", add("a", 1)).ok());
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) done += transaction.work("payments", add("a", 1)).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 40);
  // As `twofold work` does: another process takes it on.
  auto elsewhere = other.resume(transaction.gtrid(), transaction.leave());
  ASSERT_TRUE(elsewhere.work("payments", add("a", 1)).ok());
  ASSERT_TRUE(elsewhere.work("orders", add("a", 1)).ok());
  const Outcome outcome = elsewhere.commit(true);
  EXPECT_EQ(outcome.verdict, Verdict::committed) << outcome.detail;
  EXPECT_EQ(integers("payments").at("a"), 42);
  expect_quiet();
}

TEST_F(InteractiveTest, AWorkThatFailedInAnotherProcessIsNotLeftOut) {
  Client client(client_options()), other(client_options());
  load(client, "a", 5);
  auto transaction = begin(client);
  ASSERT_TRUE(transaction.work("payments", add("a", 1)).ok());
  ASSERT_FALSE(transaction.work("nowhere", add("a", 1)).ok());
  auto elsewhere = other.resume(transaction.gtrid(), transaction.leave());
  const Outcome outcome = elsewhere.commit(true);
  EXPECT_EQ(outcome.verdict, Verdict::aborted);
  EXPECT_THAT(outcome.detail, testing::HasSubstr("nowhere"));
  EXPECT_EQ(integers("payments").at("a"), 5);
  expect_quiet();
}

// Rule 10: what a restarted participant has lost is not left out of a commit unnoticed.
TEST_F(InteractiveTest, AParticipantThatWasKilledAbortsIt) {
  Client client(client_options());
  load(client, "a", 5);
  for (const bool single : {true, false}) {
    auto transaction = begin_with(client, "payments", add("a", 1));
    if (!single) {
      ASSERT_TRUE(transaction.work("orders", add("a", 1)).ok());
    }
    ASSERT_TRUE(cluster().kill("payments").has_value());
    ASSERT_TRUE(cluster().start("payments").has_value());
    const Outcome outcome = transaction.commit();
    EXPECT_EQ(outcome.verdict, Verdict::aborted) << outcome.detail;
    expect_quiet();
    EXPECT_EQ(integers("payments").at("a"), 5);
    EXPECT_EQ(integers("orders").at("a"), 5);
  }
}

// ---- deadlocks ----------------------------------------------------------------------------------

TEST_F(InteractiveTest, ADeadlockAcrossParticipantsEndsTheYounger) {
  Client client(client_options());
  load(client, "a", 100);
  for (int round = 0; round < 5; ++round) {
    auto older = begin(client), younger = begin(client);
    ASSERT_TRUE(older.work("orders", add("a", 1)).ok());
    ASSERT_TRUE(younger.work("payments", add("a", 1)).ok());
    Worked of_older;
    std::thread waiting([&] { of_older = older.work("payments", add("a", 1)); });
    const Worked of_younger = younger.work("orders", add("a", 1));
    // The reason comes with the work that waited, though only the coordinator knows it.
    EXPECT_EQ(of_younger.code, Xa::rbdeadlock);
    EXPECT_THAT(of_younger.text, HasSubstr("deadlock across resource managers with"));
    waiting.join();
    EXPECT_TRUE(of_older.ok()) << of_older.text;
    const Outcome aborted = younger.commit(), committed = older.commit(true);
    EXPECT_EQ(aborted.verdict, Verdict::aborted);
    EXPECT_EQ(aborted.reason, Reason::deadlock) << aborted.detail;
    EXPECT_THAT(aborted.detail, HasSubstr("deadlock across resource managers"));
    EXPECT_EQ(committed.verdict, Verdict::committed) << committed.detail;
  }
  EXPECT_EQ(coordinator_number("deadlocks"), 5);
  expect_quiet();
}

// Half of the shipped orders are submitted whole, half worked interactively in a random order of
// participants, which deadlocks; victims try again, and what comes out is what any serial order
// gives.
TEST_F(InteractiveTest, ShippedOrdersHalfInteractiveInRandomOrder) {
  const std::string source = TWOFOLD_SOURCE_DIR;
  Client client(client_options());
  const auto world = lab::parse_world(read_file(source + "/tests/data/world.json"));
  ASSERT_TRUE(world.has_value());
  for (client::Transaction& transaction : lab::load_transactions(*world)) {
    Outcome outcome;
    do {
      outcome = client.submit(transaction).outcome;
    } while (outcome.reason == Reason::unavailable);
    ASSERT_EQ(outcome.verdict, Verdict::committed) << outcome.detail;
  }
  std::vector<std::string> lines;
  std::stringstream text(read_file(source + "/tests/data/orders.jsonl"));
  for (std::string line; std::getline(text, line);) {
    if (!lab::is_blank(line)) lines.push_back(line);
  }

  std::array<std::atomic<std::int64_t>, lab::kOrderClasses> counts{};
  std::atomic<std::size_t> next = 0;
  std::atomic<int> victims = 0, gave_up = 0;
  std::mutex mutex;
  std::vector<double> waits_ms;  // of the works that found themselves victims

  const auto interact = [&](const client::Transaction& order, std::mt19937_64& random) {
    const auto first = std::chrono::steady_clock::now();
    for (int attempt = 0; attempt < 1'000; ++attempt) {
      const auto age = std::chrono::steady_clock::now() - first;
      auto begun = client.begin({seconds{20}, std::chrono::duration_cast<milliseconds>(age)});
      if (!begun) continue;
      std::vector<client::Branch> branches = order.branches;
      std::shuffle(branches.begin(), branches.end(), random);
      for (const client::Branch& branch : branches) {
        const auto since = std::chrono::steady_clock::now();
        const Worked worked = begun->work(branch.rm, branch.work);
        if (worked.ok() || worked.code == Xa::rbintegrity) continue;
        const std::chrono::duration<double, std::milli> waited =
            std::chrono::steady_clock::now() - since;
        std::lock_guard lock(mutex);
        waits_ms.push_back(waited.count());
        break;
      }
      const Outcome outcome = begun->commit();
      if (outcome.verdict == Verdict::committed || outcome.reason == Reason::refused)
        return outcome;
      ++victims;
      EXPECT_TRUE(outcome.reason == Reason::deadlock)
          << name(outcome.reason) << ": " << outcome.detail;
      if (testing::Test::HasFailure()) return outcome;
    }
    ++gave_up;
    return Outcome{};
  };

  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i);
      for (std::size_t at = next++; at < lines.size(); at = next++) {
        const auto order = lab::parse_order(lines[at]);
        if (!order) {
          ++counts[static_cast<std::size_t>(lab::OrderClass::invalid)];
          continue;
        }
        const client::Transaction transaction = lab::to_transaction(*order);
        const Outcome outcome = at % 2 ? interact(transaction, random) : [&] {
          Outcome told;
          do {
            told = client.submit(transaction).outcome;
          } while (told.reason == Reason::deadlock);
          return told;
        }();
        ++counts[static_cast<std::size_t>(lab::classify(outcome))];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(gave_up, 0);
  EXPECT_GT(victims, 0) << "nothing was tested";
  const auto expected = boost::json::parse(read_file(source + "/tests/data/expected.json"));
  std::map<std::string, std::int64_t> counted;
  for (const auto& [key, count] : expected.as_object()) {
    const std::string word =
        key == "committed" || key == "invalid" ? std::string(key) : std::string(key.substr(8));
    for (std::size_t i = 0; i < lab::kOrderClasses; ++i) {
      if (lab::name(static_cast<lab::OrderClass>(i)) != word) continue;
      EXPECT_EQ(counts[i], count.as_int64()) << word;
      ++counted[word];
    }
  }
  EXPECT_EQ(counted.size(), expected.as_object().size());
  expect_quiet();
  std::sort(waits_ms.begin(), waits_ms.end());
  if (!waits_ms.empty()) {
    std::printf("%d victims; a victim's last wait: median %.1f ms, maximum %.1f ms\n",
                victims.load(), waits_ms[waits_ms.size() / 2], waits_ms.back());
  }
}

}  // namespace
}  // namespace twofold::test
