// An engine on a thread of its own with a real log in a directory of the test's; scripted resource
// managers and clients on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/engine.h"
#include "protocol/convert.h"
#include "runtime/logging.h"
#include "tests/coordinator/fake_participant.h"
#include "tests/log/temporary_directory.h"

namespace twofold::test {

// A client's connection; calls are answered in any order.
class TestClient {
 public:
  std::shared_ptr<Connection> connection;
  wire::Welcome welcome;
  std::map<std::uint64_t, wire::Frame> answers;
  std::optional<std::string> closed;     // why
  std::optional<wire::Failure> failure;  // the one that ended it

  TestClient() = default;
  TestClient(const TestClient&) = delete;
  ~TestClient() {
    if (!connection) return;
    connection->replace_handlers({});
    connection->close({Fault::closed, "the test is done with it"});
  }

  std::uint64_t send(wire::Frame frame) {
    frame.set_request(++last_request_);
    EXPECT_TRUE(connection->send(frame));
    return last_request_;
  }
  Connection::Handlers handlers() {
    Connection::Handlers out;
    out.on_frame = [this](wire::Frame& frame) {
      if (frame.has_failure() && frame.request() == 0) failure = frame.failure();
      if (frame.request() != 0) answers[frame.request()] = frame;
    };
    out.on_closed = [this](const Error& why) { closed = why.message; };
    return out;
  }

 private:
  std::uint64_t last_request_ = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);
    make_log("main", 8u << 20);
  }
  void TearDown() override { crash(); }

  void make_log(const std::string& owner, std::uint64_t map_bytes) {
    std::filesystem::remove_all(log());
    const auto made = LmdbDecisionStore::init(log(), owner, map_bytes);
    ASSERT_TRUE(made) << made.error().message;
  }
  std::filesystem::path log() const { return directory_.path() / "log"; }

  // ---- the engine ----
  void start() {
    auto store = LmdbDecisionStore::open(log());
    ASSERT_TRUE(store) << store.error().message;
    coordinator::EngineOptions engine_options;
    engine_options.configuration = configuration();
    engine_options.restored = std::exchange(restored, false);
    engine_ = std::make_unique<coordinator::Engine>(std::move(engine_options), std::move(*store));
    address_ = engine_->address();
    ended_ = false;
    thread_ = std::thread([this] {
      const auto result = engine_->run();
      boost::asio::post(io, [this, result] {
        ended_ = true;
        if (!result) ended_with_error_ = result.error();
      });
    });
  }
  void start_and_link() {
    start();
    until([this] { return orders.connected() && payments.connected(); });
    // Connected says what the participant knows; a scan says that the engine knows it too.
    until([this] { return orders.count("recover") > 0 && payments.count("recover") > 0; });
  }
  // The process is gone: nobody has been told anything.
  void crash() {
    if (!engine_) return;
    engine_->stop();
    join();
  }
  void ask_to_shut_down() {
    boost::asio::post(engine_->io(), [engine = engine_.get()] { engine->shutdown(); });
  }
  // After ask_to_shut_down(): waits until run() has returned.
  void join_after_shutdown() {
    until([this] { return ended_; });
    join();
  }
  void restart() {
    crash();
    start();
  }

  Configuration configuration() const {
    Configuration out;
    out.coordinator = options;
    out.coordinator.node = node;
    out.coordinator.log = log();
    out.coordinator.listen = "127.0.0.1:0";
    for (const FakeParticipant* rm : {&orders, &payments}) {
      ResourceManagerConfiguration one;
      one.name = rm->name();
      one.address =
          rm == &payments && !payments_address.empty() ? payments_address : to_text(rm->address());
      out.resource_managers.push_back(one);
    }
    return out;
  }

  // ---- the world ----
  // The limit only ends a test that would hang.
  void until(const std::function<bool()>& happened) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (!happened()) {
      io.restart();
      io.run_one_for(std::chrono::milliseconds{100});
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "what was waited for did not happen";
    }
  }

  void connect(TestClient& client, ConnectionOptions connection = {}) {
    wire::Hello hello;
    hello.set_role(wire::ROLE_CLIENT);
    hello.set_name("test");
    std::optional<Result<std::pair<std::shared_ptr<Connection>, wire::Welcome>>> done;
    connect_and_greet(io, address_, hello, connection,
                      [&](auto result) { done.emplace(std::move(result)); });
    until([&] { return done.has_value(); });
    ASSERT_TRUE(done->has_value()) << done->error().message;
    client.connection = (*done)->first;
    client.welcome = (*done)->second;
    client.connection->replace_handlers(client.handlers());
  }
  wire::Frame call(TestClient& client, wire::Frame frame) {
    const std::uint64_t request = client.send(std::move(frame));
    until([&] { return client.answers.count(request) > 0 || client.closed.has_value(); });
    EXPECT_FALSE(client.closed) << *client.closed;
    return client.answers[request];
  }
  Outcome outcome(TestClient& client, wire::Frame frame) {
    const wire::Frame answer = call(client, std::move(frame));
    EXPECT_TRUE(answer.has_outcome()) << answer.failure().text();
    return from_wire(answer.outcome());
  }

  static wire::Frame submission(const std::string& request_id,
                                const std::vector<std::string>& rms = {"orders", "payments"},
                                const std::string& work = "") {
    wire::Frame frame;
    frame.mutable_submit()->set_request_id(request_id);
    frame.mutable_submit()->set_timeout_ms(15'000);
    for (const std::string& rm : rms) {
      wire::SubmittedBranch& branch = *frame.mutable_submit()->add_branches();
      branch.set_rm(rm);
      branch.set_work(work);
    }
    return frame;
  }
  static wire::Frame question(const std::string& request_id,
                              wire::ReplyAt at = wire::REPLY_AT_DECISION) {
    wire::Frame frame;
    frame.mutable_ask()->set_request_id(request_id);
    frame.mutable_ask()->set_reply_at(at);
    return frame;
  }

  TemporaryDirectory directory_;
  boost::asio::io_context io;
  FakeParticipant orders{io, "orders"};
  FakeParticipant payments{io, "payments"};
  CoordinatorConfiguration options;  // of the next start
  std::string node = "main";
  std::string payments_address;  // empty: its own
  Address address_;
  bool ended_ = false;
  std::optional<Error> ended_with_error_;  // what run() returned
  bool restored = false;                   // of the next start only

 private:
  void join() {
    thread_.join();
    engine_.reset();
    io.restart();
    io.poll();
  }
  std::unique_ptr<coordinator::Engine> engine_;
  std::thread thread_;
};

}  // namespace twofold::test
