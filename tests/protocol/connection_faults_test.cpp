// What a peer does wrong ends its connection with a clear text on both sides, and nothing else.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>
#include <random>

#include "protocol/connection.h"
#include "tests/protocol/net.h"

namespace twofold {
namespace {

using test::encoded;
using test::End;
using test::numbered;
using test::RawEnd;

class ConnectionFaultsTest : public ::testing::Test {
 protected:
  void connect(ConnectionOptions options = {}) { near.start(std::move(near_socket), options); }

  // Sends `bytes`, waits for both ends to be over, and gives the Failure that the peer was told.
  wire::Failure failure_after(std::string_view bytes) {
    raw.write(bytes);
    raw.read();
    net.run_until([&] { return raw.ended && !near.closed.empty(); });
    if (raw.frames.empty() || !raw.frames.back().has_failure()) {
      ADD_FAILURE() << "no Failure was told";
      return {};
    }
    EXPECT_EQ(raw.frames.back().request(), 0u);
    EXPECT_EQ(near.closed.size(), 1u);
    EXPECT_NE(near.closed[0].message.find(raw.frames.back().failure().text()), std::string::npos);
    return raw.frames.back().failure();
  }

  test::Net net;
  std::pair<test::Socket, test::Socket> sockets = net.sockets();
  test::Socket& near_socket = sockets.first;
  RawEnd raw{std::move(sockets.second)};
  End near;
};

TEST_F(ConnectionFaultsTest, TooLargeIsToldWithBothNumbers) {
  ConnectionOptions options;
  options.frame_bytes_max = 1000;
  connect(options);
  const auto failure = failure_after(std::string_view("\xe9\x03\0\0\0\0\0\0", 8));
  EXPECT_EQ(failure.code(), wire::FAILURE_TOO_LARGE);
  EXPECT_NE(failure.text().find("1001 bytes"), std::string::npos);
  EXPECT_NE(failure.text().find("at most 1000"), std::string::npos);
}

TEST_F(ConnectionFaultsTest, ADamagedFrameIsCorrupt) {
  connect();
  std::string bytes = encoded(numbered(1, 10));
  bytes.back() ^= 1;
  EXPECT_EQ(failure_after(encoded(numbered(7)) + bytes + encoded(numbered(8))).code(),
            wire::FAILURE_CORRUPT);
  ASSERT_EQ(near.frames.size(), 1u);  // the good one before it
  EXPECT_EQ(near.frames[0].request(), 7u);
}

TEST_F(ConnectionFaultsTest, APayloadThatIsNoFrameIsCorrupt) {
  connect();
  // A checksum that matches around "\xff": made by Python's zlib.
  EXPECT_EQ(failure_after(std::string_view("\x01\0\0\0\x20\x31\x40\xd6\xff", 9)).code(),
            wire::FAILURE_CORRUPT);
}

TEST_F(ConnectionFaultsTest, AnUnknownMessageIsNamed) {
  connect();
  // A Frame with request 5 and field 99, an empty message.
  const auto failure =
      failure_after(std::string_view("\x05\0\0\0\xb2\x70\xee\x0d\x08\x05\x9a\x06\0", 13));
  EXPECT_EQ(failure.code(), wire::FAILURE_UNKNOWN_MESSAGE);
  EXPECT_NE(failure.text().find("request 5 carries message 99"), std::string::npos);
}

TEST_F(ConnectionFaultsTest, AFrameWithoutAMessageIsUnknown) {
  connect();
  wire::Frame empty;
  empty.set_request(6);
  const auto failure = failure_after(encoded(empty));
  EXPECT_EQ(failure.code(), wire::FAILURE_UNKNOWN_MESSAGE);
  EXPECT_NE(failure.text().find("request 6 carries no message"), std::string::npos);
}

TEST_F(ConnectionFaultsTest, ThePeersFarewellEndsItWithItsText) {
  connect();
  wire::Frame answer, farewell;
  answer.set_request(3);
  answer.mutable_failure()->set_code(wire::FAILURE_REQUEST);
  farewell.mutable_failure()->set_code(wire::FAILURE_SHUTDOWN);
  farewell.mutable_failure()->set_text("payments shuts down");
  raw.write(encoded(answer) + encoded(numbered(4)) + encoded(farewell));
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_EQ(near.frames.size(), 3u);  // a request's failure is an answer like any other
  EXPECT_EQ(near.closed[0].fault, Fault::closed);
  EXPECT_EQ(near.closed[0].message, "payments shuts down");
}

TEST_F(ConnectionFaultsTest, AFailureArrivesThoughThePeerStillSends) {
  connect();
  const std::string chatter = encoded(numbered(2, 60'000));
  for (int i = 0; i < 10; ++i) raw.write(chatter);  // closing on top of unread bytes would reset
  near.connection->send(numbered(1));
  near.connection->fail(wire::FAILURE_STALE, "a newer session has begun");
  EXPECT_FALSE(near.connection->is_open());
  EXPECT_FALSE(near.connection->send(numbered(2)));
  const auto failure = failure_after(chatter);
  EXPECT_EQ(failure.code(), wire::FAILURE_STALE);
  ASSERT_EQ(raw.frames.size(), 2u);  // what was queued before it went first
  EXPECT_EQ(raw.frames[0].request(), 1u);
  EXPECT_TRUE(near.frames.empty());
  EXPECT_EQ(near.closed[0].fault, Fault::exists);
}

TEST_F(ConnectionFaultsTest, AFailureBeforeStartIsToldToo) {
  {
    const auto connection = Connection::make(std::move(near_socket), {});
    connection->fail(wire::FAILURE_BUSY, "connections_max is reached");
  }
  raw.read();
  net.run_until([&] { return raw.ended; });
  ASSERT_EQ(raw.frames.size(), 1u);
  EXPECT_EQ(raw.frames[0].failure().code(), wire::FAILURE_BUSY);
}

TEST_F(ConnectionFaultsTest, AFailureWaitsOnlySoLongForAPeerThatIgnoresIt) {
  connect();
  near.connection->set_peer_limit(32u << 20);
  near.connection->send(numbered(1, 16u << 20));  // more than the kernel takes
  near.connection->fail(wire::FAILURE_SHUTDOWN, "shutting down");
  near.connection->fail(wire::FAILURE_BUSY, "not this");
  near.connection->close({Fault::closed, "nor this"});
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_NE(near.closed[0].message.find("shutting down"), std::string::npos);
}

TEST_F(ConnectionFaultsTest, ALongFailureTextIsCutBetweenCharacters) {
  connect();
  std::string text = "x";
  while (text.size() < 100'000) text += "\xc3\xbc";
  near.connection->fail(wire::FAILURE_REQUEST, text);
  raw.read();
  net.run_until([&] { return raw.ended; });
  ASSERT_EQ(raw.frames.size(), 1u);
  EXPECT_EQ(raw.frames[0].failure().text(), text.substr(0, 4095));
}

TEST_F(ConnectionFaultsTest, APeerThatGoesInTheMiddleOfAFrameIsGone) {
  connect();
  raw.write(encoded(numbered(1)) + encoded(numbered(2, 100)).substr(0, 50));
  raw.socket.close();
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_EQ(near.frames.size(), 1u);
  EXPECT_EQ(near.closed[0].fault, Fault::closed);
}

TEST_F(ConnectionFaultsTest, WhatThePeerSaidBeforeItDiedIsReadThoughWritesFail) {
  connect();
  raw.write(encoded(numbered(1)));
  raw.socket.close();
  for (int i = 0; i < 3; ++i) {  // the first write is answered by a reset, the next ones fail
    near.connection->send(numbered(2));
    near.connection->flush_blocking();
  }
  EXPECT_TRUE(near.connection->send(numbered(3)));  // false while open would mean: too large
  net.run_until([&] { return !near.closed.empty(); });
  EXPECT_FALSE(near.connection->send(numbered(4)));
  ASSERT_EQ(near.frames.size(), 1u);
  EXPECT_EQ(near.frames[0].request(), 1u);
}

TEST_F(ConnectionFaultsTest, GarbageEndsItsOwnConnectionOnly) {
  End good_near, good_far;
  auto [one, other] = net.sockets();
  good_near.start(std::move(one));
  good_far.start(std::move(other));
  std::mt19937 random(5);
  std::deque<End> ends;
  std::string valid;
  for (std::uint64_t i = 1; i <= 5; ++i) valid += encoded(numbered(i, i * 10));
  for (int round = 0; round < 300; ++round) {
    auto [socket, peer] = net.sockets();
    End& end = ends.emplace_back();
    end.start(std::move(socket));
    std::string bytes = valid;
    switch (round % 3) {
      case 0:  // noise
        for (char& c : bytes) c = static_cast<char>(random());
        break;
      case 1:  // one damaged byte
        bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
        break;
      case 2:  // cut short
        bytes.resize(random() % bytes.size());
        break;
    }
    boost::asio::write(peer, boost::asio::buffer(bytes));
    peer.shutdown(test::Socket::shutdown_send);
    good_near.connection->send(numbered(static_cast<std::uint64_t>(round)));
    net.run_until([&] { return !end.closed.empty(); });
  }
  net.run_until([&] { return good_far.frames.size() == 300; });
  for (const End& end : ends) {
    EXPECT_EQ(end.closed.size(), 1u);
    EXPECT_LE(end.frames.size(), 5u);
  }
  EXPECT_TRUE(good_near.connection->is_open());
  EXPECT_TRUE(good_near.closed.empty());
}

}  // namespace
}  // namespace twofold
