#include "protocol/connection.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <thread>

#include "tests/protocol/net.h"

namespace twofold {
namespace {

using test::End;
using test::numbered;

class ConnectionTest : public ::testing::Test {
 protected:
  void connect(ConnectionOptions options = {}) {
    auto [near_socket, far_socket] = net.sockets();
    near.start(std::move(near_socket), options);
    far.start(std::move(far_socket), options);
  }
  test::Net net;
  End near, far;
};

TEST_F(ConnectionTest, CarriesFramesBothWaysInOrder) {
  connect();
  for (std::uint64_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(near.connection->send(numbered(i, i)));
    ASSERT_TRUE(far.connection->send(numbered(100 + i)));
  }
  net.run_until([&] { return far.frames.size() == 50 && near.frames.size() == 50; });
  for (std::uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(far.frames[i - 1].request(), i);
    EXPECT_EQ(far.frames[i - 1].start().work().size(), i);
    EXPECT_EQ(near.frames[i - 1].request(), 100 + i);
  }
}

TEST_F(ConnectionTest, WhatOneTurnSendsLeavesInOneWrite) {
  connect();
  for (std::uint64_t i = 1; i <= 100; ++i) near.connection->send(numbered(i));
  EXPECT_EQ(near.connection->counters().writes, 0u);
  net.run_until([&] { return far.frames.size() == 100; });
  const auto counters = near.connection->counters();
  EXPECT_EQ(counters.writes, 1u);
  EXPECT_EQ(counters.frames_out, 100u);
  EXPECT_EQ(counters.bytes_out, far.connection->counters().bytes_in);
  EXPECT_EQ(far.connection->counters().frames_in, 100u);
}

TEST_F(ConnectionTest, LargeFramesPassBothWaysAtOnce) {
  connect();
  near.connection->set_peer_limit(16u << 20);
  far.connection->set_peer_limit(16u << 20);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(near.connection->send(numbered(i, 1u << 20)));
    ASSERT_TRUE(far.connection->send(numbered(i, 1u << 20)));
  }
  net.run_until([&] { return far.frames.size() == 8 && near.frames.size() == 8; });
  for (std::uint64_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(far.frames[i - 1].SerializeAsString(), numbered(i, 1u << 20).SerializeAsString());
  }
}

TEST_F(ConnectionTest, AFrameBeyondThePeersLimitIsTurnedDownAndNothingElse) {
  connect();
  EXPECT_FALSE(near.connection->send(numbered(1, 64u << 10)));  // until the peer has told its limit
  near.connection->set_peer_limit(100'000);
  EXPECT_TRUE(near.connection->send(numbered(2, 64u << 10)));
  EXPECT_FALSE(near.connection->send(numbered(3, 100'000)));
  EXPECT_TRUE(near.connection->is_open());
  EXPECT_TRUE(near.connection->send(numbered(4)));
  net.run_until([&] { return far.frames.size() == 2; });
  EXPECT_EQ(far.frames[0].request(), 2u);
  EXPECT_EQ(far.frames[1].request(), 4u);
}

TEST_F(ConnectionTest, HandlersAreNeverCalledFromInsideACall) {
  connect();
  bool inside = false;
  int frames = 0, closed = 0;
  Connection::Handlers handlers;
  handlers.on_frame = [&](wire::Frame&) {
    EXPECT_FALSE(inside);
    inside = true;
    ++frames;
    near.connection->send(numbered(1));
    near.connection->close({Fault::closed, "enough"});
    near.connection->close({Fault::io, "again"});
    EXPECT_FALSE(near.connection->is_open());
    EXPECT_FALSE(near.connection->send(numbered(2)));
    inside = false;
  };
  handlers.on_closed = [&](const Error& why) {
    EXPECT_FALSE(inside);
    EXPECT_EQ(why.message, "enough");
    ++closed;
  };
  near.connection->replace_handlers(std::move(handlers));
  far.connection->send(numbered(1));
  far.connection->send(numbered(2));
  net.run_until([&] { return closed > 0 && !far.closed.empty(); });
  net.run_ready();
  EXPECT_EQ(frames, 1);  // what comes behind the frame that closed is not handed out
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(far.closed.size(), 1u);
  ASSERT_EQ(far.frames.size(), 1u);  // sent before the close
}

TEST_F(ConnectionTest, AHandlerMayReplaceItselfWhileItRuns) {
  connect();
  const auto keeps = std::make_shared<std::string>("what the handler captured");
  std::vector<std::uint64_t> first, second;
  Connection::Handlers handlers;
  handlers.on_frame = [&, keeps](wire::Frame& frame) {
    near.connection->replace_handlers(
        {[&](wire::Frame& later) { second.push_back(later.request()); }, {}, {}});
    first.push_back(frame.request());
    EXPECT_EQ(*keeps, "what the handler captured");
  };
  near.connection->replace_handlers(std::move(handlers));
  for (std::uint64_t i = 1; i <= 3; ++i) far.connection->send(numbered(i));
  net.run_until([&] { return second.size() == 2; });
  EXPECT_EQ(first, (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(second, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(keeps.use_count(), 1);
}

TEST_F(ConnectionTest, HoldKeepsEverythingForTheNextHandlers) {
  connect();
  near.connection->hold();
  for (std::uint64_t i = 1; i <= 3; ++i) far.connection->send(numbered(i));
  far.connection->flush_blocking();
  near.connection->send(numbered(9));  // sending goes on
  net.run_until([&] { return far.frames.size() == 1; });
  near.connection->close({Fault::closed, "while held"});
  net.run_ready();
  EXPECT_TRUE(near.frames.empty());
  EXPECT_TRUE(near.closed.empty());
  near.connection->replace_handlers(near.handlers());
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_EQ(near.closed[0].message, "while held");
}

TEST_F(ConnectionTest, HoldInsideAHandlerKeepsTheFramesBehind) {
  connect();
  std::vector<std::uint64_t> first;
  near.connection->replace_handlers({[&](wire::Frame& frame) {
                                       first.push_back(frame.request());
                                       near.connection->hold();
                                     },
                                     {},
                                     {}});
  for (std::uint64_t i = 1; i <= 3; ++i) far.connection->send(numbered(i));
  net.run_until([&] { return !first.empty(); });
  net.run_ready();
  EXPECT_EQ(first, (std::vector<std::uint64_t>{1}));
  near.connection->replace_handlers(near.handlers());
  EXPECT_TRUE(near.frames.empty());  // not from inside the call
  net.run_until([&] { return near.frames.size() == 2; });
  EXPECT_EQ(near.frames[0].request(), 2u);
  far.connection->send(numbered(4));
  net.run_until([&] { return near.frames.size() == 3; });
}

TEST_F(ConnectionTest, APeerThatDoesNotReadIsClosedNotWaitedFor) {
  auto [near_socket, far_socket] = net.sockets();
  ConnectionOptions options;
  options.send_bytes_max = 1u << 20;
  near.start(std::move(near_socket), options);
  std::uint64_t sent = 0;
  while (near.connection->send(numbered(++sent, 60'000))) net.run_ready();
  EXPECT_FALSE(near.connection->is_open());
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_NE(near.closed[0].message.find("does not read"), std::string::npos);
  EXPECT_GT(sent, options.send_bytes_max / 60'000);
}

TEST_F(ConnectionTest, HeartbeatsGoWhenNothingElseDoes) {
  auto [near_socket, far_socket] = net.sockets();
  ConnectionOptions options;
  options.heartbeat = std::chrono::milliseconds(2);
  options.silence_max = std::chrono::seconds(60);
  auto handlers = near.handlers();
  std::uint64_t filled = 0;
  handlers.fill_heartbeat = [&](wire::Heartbeat& heartbeat) {
    EXPECT_FALSE(heartbeat.has_newest());
    heartbeat.mutable_newest()->set_sequence(++filled);
  };
  near.connection = Connection::make(std::move(near_socket), options);
  near.connection->start(std::move(handlers));
  std::vector<std::uint64_t> newest;
  far.connection = Connection::make(std::move(far_socket), {});
  far.connection->start({[&](wire::Frame& frame) {
                           ASSERT_TRUE(frame.has_heartbeat());
                           EXPECT_EQ(frame.request(), 0u);
                           newest.push_back(frame.heartbeat().newest().sequence());
                         },
                         {},
                         {}});
  net.run_until([&] { return newest.size() == 3; });
  EXPECT_EQ(newest, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(ConnectionTest, HeartbeatsKeepAQuietConnectionAlive) {
  ConnectionOptions options;
  options.heartbeat = std::chrono::milliseconds(5);
  options.silence_max = std::chrono::milliseconds(2000);
  connect(options);
  net.run_until([&] { return near.heartbeats >= 20 && far.heartbeats >= 20; });
  EXPECT_TRUE(near.connection->is_open());
  EXPECT_TRUE(far.connection->is_open());
}

TEST_F(ConnectionTest, SilenceEndsIt) {
  auto [near_socket, far_socket] = net.sockets();
  ConnectionOptions options;
  options.silence_max = std::chrono::milliseconds(10);
  near.start(std::move(near_socket), options);
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_EQ(near.closed[0].fault, Fault::timeout);
  EXPECT_NE(near.closed[0].message.find(near.connection->peer()), std::string::npos);
}

TEST_F(ConnectionTest, AnOpenConnectionKeepsItselfAndAClosedOneGoes) {
  connect();
  const std::weak_ptr<Connection> weak = near.connection;
  near.connection.reset();
  far.connection->send(numbered(1));
  net.run_until([&] { return near.frames.size() == 1; });
  ASSERT_FALSE(weak.expired());
  weak.lock()->close({Fault::closed, "done"});
  net.run_until([&] { return near.closed.size() == 1 && far.closed.size() == 1; });
  net.run_ready();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(far.closed[0].fault, Fault::closed);
}

TEST_F(ConnectionTest, ClosedBeforeItStartedIsToldOnce) {
  auto [near_socket, far_socket] = net.sockets();
  near.connection = Connection::make(std::move(near_socket), {});
  near.connection->close({Fault::closed, "early"});
  net.run_ready();
  near.connection->start(near.handlers());
  EXPECT_TRUE(near.closed.empty());
  net.run_until([&] { return !near.closed.empty(); });
  net.run_ready();
  EXPECT_EQ(near.closed.size(), 1u);
  EXPECT_EQ(near.closed[0].message, "early");
}

TEST_F(ConnectionTest, FlushBlockingHandsOverAllThatWasSentBehindABlockedWrite) {
  auto [near_socket, far_socket] = net.sockets();
  near.start(std::move(near_socket));
  near.connection->set_peer_limit(32u << 20);
  near.connection->send(numbered(1, 16u << 20));
  net.run_ready();  // as much as the kernel takes: a wait for room is under way
  near.connection->send(numbered(2, 4u << 20));
  const std::size_t expected =
      test::encoded(numbered(1, 16u << 20)).size() + test::encoded(numbered(2, 4u << 20)).size();
  EXPECT_LT(near.connection->counters().bytes_out, expected);
  std::string received(expected, '\0');
  std::thread reader([&, socket = std::move(far_socket)]() mutable {
    boost::asio::read(socket, boost::asio::buffer(received));
  });
  near.connection->flush_blocking();
  EXPECT_EQ(near.connection->counters().bytes_out, expected);
  reader.join();
  EXPECT_EQ(received, test::encoded(numbered(1, 16u << 20)) + test::encoded(numbered(2, 4u << 20)));
}

TEST_F(ConnectionTest, DestroyingTheLoopUnderItLeaksNothing) {
  auto loop = std::make_unique<test::Net>();
  auto [near_socket, far_socket] = loop->sockets();
  auto kept = std::make_shared<int>(1);
  auto connection = Connection::make(std::move(near_socket), {});
  connection->start({[kept](wire::Frame&) {}, [kept](const Error&) {}, {}});
  connection->send(numbered(1));
  connection.reset();
  far_socket.close();
  loop.reset();
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace twofold
