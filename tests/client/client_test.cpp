#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <thread>

#include "tests/client/fake_coordinator.h"

namespace twofold::client {
namespace {

using std::chrono::milliseconds;

// The fake coordinator on a thread of its own.
class Served {
 public:
  explicit Served(FakeCoordinator::Script script) {
    coordinator_.script = std::move(script);
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Served() {
    boost::asio::post(io_, [this] {
      coordinator_.stop();
      io_.stop();
    });
    thread_.join();
  }
  Options options() const {
    Options options;
    options.coordinator = address_;
    return options;
  }
  FakeCoordinator& coordinator() { return coordinator_; }  // for scripts only

 private:
  boost::asio::io_context io_;
  FakeCoordinator coordinator_{io_};
  const Address address_ = coordinator_.address();
  std::thread thread_;
};

Transaction named(std::string request_id) {
  Transaction transaction;
  transaction.request_id = std::move(request_id);
  transaction.branches.push_back({"payments", {}});
  return transaction;
}

TEST(Client, AnswersEveryKindOfRequest) {
  Served served([](Connection& to, const wire::Frame& request) {
    if (request.has_stats()) return answer(to, request, wire::FAILURE_REQUEST, "no stats today");
    answer(to, request, outcome(request.has_ask() ? Verdict::pending : Verdict::committed));
  });
  Client client(served.options());
  EXPECT_EQ(client.submit(named("r")).outcome.verdict, Verdict::committed);
  EXPECT_EQ(client.ask_request("r").verdict, Verdict::pending);
  EXPECT_EQ(client.ask_gtrid("g", wire::REPLY_AT_END).verdict, Verdict::pending);
  wire::Frame stats;
  stats.mutable_stats();
  EXPECT_EQ(client.call(stats).error().message, "no stats today");
}

// Each thread gets the answers to its own requests, also through lost connections.
TEST(Client, ManyThreadsThroughLostConnections) {
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  FakeCoordinator* coordinator = nullptr;
  int count = 0;
  Served served([&](Connection& to, const wire::Frame& request) {
    if (++count % 97 == 0) return coordinator->drop();
    Outcome committed = outcome(Verdict::committed);
    committed.gtrid = request.submit().request_id();
    answer(to, request, committed);
  });
  coordinator = &served.coordinator();
  std::atomic<int> right = 0;
  {
    Client client(served.options());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string id = std::to_string(t) + "-" + std::to_string(i);
          const Answered answered = client.submit(named(id));
          if (answered.outcome.verdict == Verdict::committed && answered.outcome.gtrid == id) {
            ++right;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(right, kThreads * kEach);
}

TEST(Client, UnreachableIsAValueNotAnException) {
  Options options;
  options.coordinator = unused_address();
  options.give_up = milliseconds{20};
  Client client(options);
  EXPECT_EQ(client.submit(named("r")).outcome.reason, Reason::unavailable);
  EXPECT_EQ(client.ask_request("r").verdict, Verdict::unknown);
}

TEST(Client, EndsAtOnceWithoutARequest) {
  Served served([](Connection&, const wire::Frame&) {});
  for (int i = 0; i < 20; ++i) Client client(served.options());
}

}  // namespace
}  // namespace twofold::client
