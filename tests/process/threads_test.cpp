// A little of everything that the server programs do, short enough to be run under TSan: groups of
// writes, many clients, inspection meanwhile, a participant and the coordinator killed and back,
// and an end that drains the log.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "client/interactive.h"
#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Operation add(const std::string& key, std::int64_t by) {
  return {"add", {{"key", Value{key}}, {"by", Value{by}}}};
}

class ThreadsTest : public ClusterTest {};

TEST_F(ThreadsTest, ServersAtWork) {
  client::Client client(client_options());
  client::Transaction load;
  for (const char* rm : {"orders", "payments"}) {
    Work work;
    for (int i = 0; i < 8; ++i) {
      work.push_back(
          {"put", {{"key", Value{"k" + std::to_string(i)}}, {"value", Value{std::int64_t{0}}}}});
    }
    load.branches.push_back({rm, std::move(work)});
  }
  ASSERT_EQ(client.submit(std::move(load)).outcome.verdict, Verdict::committed);

  std::atomic<std::int64_t> committed = 0, interactive = 0;
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const std::string key = "k" + std::to_string(i % 4);
      while (!over) {
        client::Transaction transaction;
        transaction.branches = {{"orders", {add(key, 1)}}, {"payments", {add(key, 1)}}};
        transaction.wait_for_end = i % 2 == 0;
        committed += client.submit(std::move(transaction)).outcome.verdict == Verdict::committed;
      }
    });
  }
  threads.emplace_back([&] {
    while (!over) {
      auto begun = client.begin({seconds{2}, {}});
      if (!begun || !begun->work("orders", {add("k7", 1)}).ok()) continue;
      interactive += begun->commit().verdict == Verdict::committed;
    }
  });
  threads.emplace_back([&] {
    while (!over) {
      for (const char* name : {"coordinator", "orders"}) {  // may be down, and that is no failure
        wire::Frame stats;
        stats.mutable_stats();
        client::call_once(address(name), stats, seconds{5});
      }
      wire::Frame scan;
      scan.mutable_scan();
      client::call_once(address("orders"), scan, seconds{5});
    }
  });
  for (const char* name : {"payments", "coordinator"}) {
    const std::int64_t before = committed;
    const auto give_up = std::chrono::steady_clock::now() + seconds{60};
    while (committed < before + 50 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(milliseconds{5});
    }
    ASSERT_TRUE(cluster().kill(name).has_value());
    ASSERT_TRUE(cluster().start(name).has_value());
  }
  const std::int64_t before = committed;
  const auto give_up = std::chrono::steady_clock::now() + seconds{60};
  while (committed < before + 50 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(milliseconds{5});
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  expect_quiet();
  EXPECT_GE(committed, before + 50);
  EXPECT_GT(interactive, 0);
  for (const char* rm : {"orders", "payments"}) {
    std::int64_t sum = 0;
    for (const auto& [key, value] : integers(rm)) {
      if (key != "k7") sum += value;
    }
    EXPECT_EQ(sum, committed) << rm;
  }
  EXPECT_EQ(integers("orders").at("k7"), interactive);
}

}  // namespace
}  // namespace twofold::test
