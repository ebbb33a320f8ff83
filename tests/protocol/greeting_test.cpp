// The handshake from both ends.
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <optional>

#include "protocol/connection.h"
#include "tests/protocol/net.h"

namespace twofold {
namespace {

using Greeted = std::pair<std::shared_ptr<Connection>, wire::Welcome>;
using test::End;
using test::numbered;

class GreetingTest : public ::testing::Test {
 protected:
  // A server that answers the first frame with `answer`.
  void serve(std::function<void(Connection&, const wire::Frame&)> answer) {
    listener.emplace(
        net.io, Address{"127.0.0.1", 0},
        [this, answer](test::Socket socket) {
          server = Connection::make(std::move(socket), {});
          server->start({[this, answer](wire::Frame& frame) {
                           if (frame.has_hello()) hello = frame;
                           answer(*server, frame);
                         },
                         [this](const Error&) { ++server_closed; },
                         {}});
        },
        [](const Error& error) { ADD_FAILURE() << error.message; });
  }
  static wire::Frame welcome() {
    wire::Frame frame;
    frame.mutable_welcome()->set_version(kProtocolVersion);
    frame.mutable_welcome()->set_name("payments");
    frame.mutable_welcome()->set_frame_bytes_max(1u << 20);
    return frame;
  }
  std::function<void()> greet(const Address& address, ConnectionOptions options = {}) {
    wire::Hello mine;
    mine.set_role(wire::ROLE_CLIENT);
    mine.set_name("test");
    return connect_and_greet(net.io, address, mine, options, [this](Result<Greeted> result) {
      EXPECT_FALSE(inside_call);
      results.push_back(std::move(result));
    });
  }
  Error failed() {
    net.run_until([&] { return !results.empty(); });
    net.run_ready();
    EXPECT_EQ(results.size(), 1u);
    EXPECT_FALSE(results[0]);
    return results[0].error();
  }

  test::Net net;
  std::optional<Listener> listener;
  std::shared_ptr<Connection> server;
  int server_closed = 0;
  wire::Frame hello;
  std::vector<Result<Greeted>> results;
  bool inside_call = false;
};

TEST_F(GreetingTest, GivesTheConnectionAndLosesNoFrameBehindWelcome) {
  serve([](Connection& connection, const wire::Frame&) {
    wire::Frame heartbeat;
    heartbeat.mutable_heartbeat();
    connection.send(heartbeat);  // a server that needs long says that it lives
    connection.send(welcome());
    for (std::uint64_t i = 1; i <= 3; ++i) connection.send(numbered(i));
  });
  inside_call = true;
  ConnectionOptions options;
  options.frame_bytes_max = 123'456;
  options.heartbeat = std::chrono::milliseconds(777);
  greet(listener->address(), options);
  inside_call = false;
  net.run_until([&] { return !results.empty(); });
  ASSERT_TRUE(results[0]) << results[0].error().message;
  EXPECT_EQ(hello.request(), 0u);
  EXPECT_EQ(hello.hello().version(), kProtocolVersion);
  EXPECT_EQ(hello.hello().name(), "test");
  EXPECT_EQ(hello.hello().frame_bytes_max(), 123'456u);
  EXPECT_EQ(hello.hello().heartbeat_ms(), 777u);
  EXPECT_EQ(results[0]->second.name(), "payments");
  net.run_ready();
  End end;
  end.connection = results[0]->first;
  end.connection->replace_handlers(end.handlers());
  net.run_until([&] { return end.frames.size() == 3; });
  EXPECT_EQ(end.frames[0].request(), 1u);
  EXPECT_TRUE(end.connection->send(numbered(1, 500'000)));  // Welcome's limit counts
  EXPECT_FALSE(end.connection->send(numbered(1, 1u << 20)));
}

TEST_F(GreetingTest, AnEndWhileNobodyListensIsToldLater) {
  serve([](Connection& connection, const wire::Frame&) {
    connection.send(welcome());
    connection.send(numbered(1));
    connection.close({Fault::closed, "gone"});
  });
  greet(listener->address());
  net.run_until([&] { return !results.empty() && server_closed == 1; });
  net.run_ready();
  ASSERT_TRUE(results[0]);
  End end;
  results[0]->first->replace_handlers(end.handlers());
  net.run_until([&] { return !end.closed.empty(); });
  EXPECT_EQ(end.frames.size(), 1u);
}

TEST_F(GreetingTest, AFailureBecomesItsError) {
  serve([](Connection& connection, const wire::Frame&) {
    connection.fail(wire::FAILURE_NOT_HERE, "this is kitchen, not payments");
  });
  greet(listener->address());
  EXPECT_EQ(failed().fault, Fault::not_found);
  EXPECT_EQ(results[0].error().message, "this is kitchen, not payments");
}

TEST_F(GreetingTest, AnotherVersionIsUnsupported) {
  serve([](Connection& connection, const wire::Frame&) {
    auto answer = welcome();
    answer.mutable_welcome()->set_version(kProtocolVersion + 1);
    connection.send(answer);
  });
  greet(listener->address());
  EXPECT_EQ(failed().fault, Fault::unsupported);
  EXPECT_NE(results[0].error().message.find("version 2"), std::string::npos);
}

TEST_F(GreetingTest, AnotherAnswerIsRefused) {
  serve([](Connection& connection, const wire::Frame&) { connection.send(numbered(1)); });
  greet(listener->address());
  EXPECT_EQ(failed().fault, Fault::invalid);
  net.run_until([&] { return server_closed == 1; });
}

TEST_F(GreetingTest, AServerThatHangsUpIsClosed) {
  serve([](Connection& connection, const wire::Frame&) {
    connection.close({Fault::closed, "no"});
  });
  greet(listener->address());
  EXPECT_EQ(failed().fault, Fault::closed);
}

TEST_F(GreetingTest, AServerThatSaysNothingTimesOut) {
  serve([](Connection&, const wire::Frame&) {});
  ConnectionOptions options;
  options.handshake_max = std::chrono::milliseconds(20);
  greet(listener->address(), options);
  EXPECT_EQ(failed().fault, Fault::timeout);
  net.run_until([&] { return server_closed == 1; });
}

TEST_F(GreetingTest, NobodyThereIsToldWithTheAddress) {
  std::optional<Listener> gone;
  gone.emplace(
      net.io, Address{"127.0.0.1", 0}, [](test::Socket) {}, [](const Error&) {});
  const Address address = gone->address();
  gone.reset();
  net.run_ready();
  greet(address);
  EXPECT_EQ(failed().fault, Fault::closed);
  EXPECT_NE(results[0].error().message.find(to_text(address)), std::string::npos);
}

TEST_F(GreetingTest, NamesAreResolved) {
  serve([](Connection& connection, const wire::Frame&) { connection.send(welcome()); });
  greet({"localhost", listener->address().port});
  net.run_until([&] { return !results.empty(); });
  ASSERT_TRUE(results[0]) << results[0].error().message;
}

TEST_F(GreetingTest, CancellingTellsOnceFromTheLoop) {
  serve([](Connection&, const wire::Frame&) {});
  const auto at_once = greet(listener->address());
  inside_call = true;
  at_once();
  at_once();
  inside_call = false;
  EXPECT_EQ(failed().fault, Fault::closed);
  at_once();
  net.run_ready();
  EXPECT_EQ(results.size(), 1u);

  results.clear();
  const auto after_hello = greet(listener->address());
  net.run_until([&] { return hello.has_hello(); });
  after_hello();
  EXPECT_EQ(failed().fault, Fault::closed);
  net.run_until([&] { return server_closed >= 1; });
}

TEST_F(GreetingTest, CancellingASuccessDoesNothing) {
  serve([](Connection& connection, const wire::Frame&) { connection.send(welcome()); });
  const auto cancel = greet(listener->address());
  net.run_until([&] { return !results.empty(); });
  cancel();
  net.run_ready();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0]->first->is_open());
}

TEST_F(GreetingTest, TheLoopMayEndInTheMiddle) {  // leaks are the sanitizer's to find
  const auto kept = std::make_shared<int>(1);
  {
    test::Net loop;
    bool greeted = false;
    Listener quiet(
        loop.io, {"127.0.0.1", 0}, [&](test::Socket) { greeted = true; }, [](const Error&) {});
    connect_and_greet(loop.io, quiet.address(), {}, {}, [kept](Result<Greeted>) {});
    loop.run_until([&] { return greeted; });
  }
  EXPECT_EQ(kept.use_count(), 1);
}

wire::Frame coordinators_hello() {
  wire::Frame frame;
  auto& hello = *frame.mutable_hello();
  hello.set_version(kProtocolVersion);
  hello.set_role(wire::ROLE_COORDINATOR);
  hello.set_node("main");
  hello.set_log_id(7);
  hello.set_epoch(1);
  hello.set_session(1);
  return frame;
}

TEST(CheckHello, TakesGoodOnes) {
  std::string text;
  wire::Frame frame = coordinators_hello();
  EXPECT_EQ(check_hello(frame, text), wire::FAILURE_UNSPECIFIED);
  frame.mutable_hello()->Clear();
  frame.mutable_hello()->set_version(kProtocolVersion);
  frame.mutable_hello()->set_role(wire::ROLE_CLIENT);
  EXPECT_EQ(check_hello(frame, text), wire::FAILURE_UNSPECIFIED);
  frame.mutable_hello()->set_client(0xc1);
  frame.mutable_hello()->set_connection(1);
  EXPECT_EQ(check_hello(frame, text), wire::FAILURE_UNSPECIFIED);
  EXPECT_TRUE(text.empty());
}

TEST(CheckHello, SaysWhatIsWrongWithTheRest) {
  const auto code_of = [](const std::function<void(wire::Frame&)>& change, const char* says) {
    wire::Frame frame = coordinators_hello();
    change(frame);
    std::string text;
    const auto code = check_hello(frame, text);
    EXPECT_NE(text.find(says), std::string::npos) << text;
    return code;
  };
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_start(); }, "Hello"), wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->set_version(9); }, "version 9"),
            wire::FAILURE_VERSION);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->set_version(0); }, "version 0"),
            wire::FAILURE_VERSION);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->clear_role(); }, "role"),
            wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->clear_node(); }, "node"),
            wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(
      code_of([](auto& frame) { frame.mutable_hello()->set_node(std::string(33, 'n')); }, "node"),
      wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->clear_log_id(); }, "log id"),
            wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->clear_epoch(); }, "epoch"),
            wire::FAILURE_HANDSHAKE);
  EXPECT_EQ(code_of([](auto& frame) { frame.mutable_hello()->clear_session(); }, "session"),
            wire::FAILURE_HANDSHAKE);
  const auto client_without_counter = [](wire::Frame& frame) {
    frame.mutable_hello()->set_role(wire::ROLE_CLIENT);
    frame.mutable_hello()->set_client(0xc1);
  };
  EXPECT_EQ(code_of(client_without_counter, "counter"), wire::FAILURE_HANDSHAKE);
}

}  // namespace
}  // namespace twofold
