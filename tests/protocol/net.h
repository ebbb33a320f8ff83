// Two ends of a TCP connection on loopback, and an event loop that runs until something has
// happened.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/connection.h"

namespace twofold::test {

namespace asio = boost::asio;
using Socket = asio::ip::tcp::socket;

class Net {
 public:
  asio::io_context io;

  std::pair<Socket, Socket> sockets() {
    asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    Socket near(io), far(io);
    near.connect(acceptor.local_endpoint());
    acceptor.accept(far);
    return {std::move(near), std::move(far)};
  }

  // The limit only ends a test that would hang.
  void run_until(const std::function<bool()>& happened) {
    while (!happened()) {
      io.restart();
      ASSERT_GT(io.run_one_for(std::chrono::seconds(20)), 0u)
          << "what was waited for did not happen";
    }
  }

  // Runs what is ready, without waiting for anything.
  void run_ready() {
    io.restart();
    io.poll();
  }
};

// One end, with all that its handlers saw.
struct End {
  std::shared_ptr<Connection> connection;
  std::vector<wire::Frame> frames;  // without heartbeats
  std::size_t heartbeats = 0;
  std::vector<Error> closed;

  Connection::Handlers handlers() {
    Connection::Handlers out;
    out.on_frame = [this](wire::Frame& frame) {
      if (frame.has_heartbeat()) {
        ++heartbeats;
      } else {
        frames.push_back(frame);
      }
    };
    out.on_closed = [this](const Error& why) { closed.push_back(why); };
    return out;
  }
  void start(Socket socket, ConnectionOptions options = {}) {
    connection = Connection::make(std::move(socket), options);
    connection->start(handlers());
  }
};

inline wire::Frame numbered(std::uint64_t request, std::size_t bytes = 0) {
  wire::Frame frame;
  frame.set_request(request);
  frame.mutable_start()->set_work(std::string(bytes, 'w'));
  return frame;
}

inline std::string encoded(const wire::Frame& frame) {
  std::string bytes;
  append_frame(frame, bytes);
  return bytes;
}

// The end of a peer that speaks in bytes; it reads on the event loop until the other end closes.
struct RawEnd {
  Socket socket;
  FrameReader reader{kFrameBytesMaxDefault};
  std::vector<wire::Frame> frames;
  bool ended = false;
  std::array<char, 4096> chunk{};

  explicit RawEnd(Socket taken) : socket(std::move(taken)) {}
  void write(std::string_view bytes) { asio::write(socket, asio::buffer(bytes)); }
  void read() {
    socket.async_read_some(asio::buffer(chunk),
                           [this](boost::system::error_code ec, std::size_t n) {
                             if (ec) {
                               ended = true;
                               socket.close();
                               return;
                             }
                             reader.append({chunk.data(), n});
                             std::string_view payload;
                             while (reader.next(payload)) {
                               ASSERT_TRUE(frames.emplace_back().ParseFromArray(
                                   payload.data(), static_cast<int>(payload.size())));
                             }
                             read();
                           });
  }
};

}  // namespace twofold::test
