// One TCP connection that carries frames: coalesced writes, heartbeats, limits, a handshake.
//
// What can go wrong on it (a frame that is too large or corrupt, a message that is not known) is
// told to the peer in a Failure and ends this connection, nothing else. A Failure with request 0
// from the peer is handed out like any frame, then ends the connection with its text.
//
// Threads: all of a connection lives on the one thread that runs its io_context. Calls from other
// threads must be posted there. Ownership: shared_ptr; while it is open its own pending operations
// keep it alive, so callers may drop it after close().
//
// Writes: send() appends to a buffer; what one turn of the event loop has sent leaves in one write.
// The buffer is bounded by send_bytes_max: a peer that does not read is closed, never waited for.
//
// Reads: handlers are called from the event loop, one frame at a time, never from inside send() or
// close(). Exceptions must not leave a handler.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "protocol/endpoint.h"
#include "protocol/frame.h"
#include "protocol/result.h"
#include "protocol/wire.pb.h"

namespace twofold {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    // The peer's frame; heartbeats come here as well (their `newest`), after they were counted.
    std::function<void(wire::Frame&)> on_frame;
    // Called once, whatever ended the connection, close() included. Afterwards no handler is
    // called.
    std::function<void(const Error&)> on_closed;
    // Optional: fills in each heartbeat before it is sent.
    std::function<void(wire::Heartbeat&)> fill_heartbeat;
  };

  // Takes over an accepted or connected socket. Nothing is read before start().
  static std::shared_ptr<Connection> make(boost::asio::ip::tcp::socket socket,
                                          ConnectionOptions options);

  // Begins reading. The handshake is the caller's business: the first frame that arrives is handed
  // to on_frame like any other. Until set_peer_limit() nothing larger than 64 KiB may be sent.
  void start(Handlers handlers);
  void replace_handlers(
      Handlers handlers);  // e.g. after the handshake, from inside a handler or not
  // Nothing more is read or handed out, on_closed included, until replace_handlers(). What has
  // arrived is kept for them.
  void hold();
  // As the peer's Hello or Welcome says. Less than 64 KiB counts as 64 KiB.
  void set_peer_limit(std::size_t frame_bytes_max);

  // Queues one frame. False: not open any more, or larger than the peer accepts (then nothing is
  // sent and is_open() stays true; the caller turns it into an error for whoever asked). True
  // promises no arrival. Its texts must be UTF-8 (is_utf8), or the peer ends the connection.
  bool send(const wire::Frame& frame);

  // Hands to the kernel all that is queued, waiting as long as that takes (at most a second). Only
  // for crash points, which promise that what was sent before them is sent.
  void flush_blocking();

  // Sends Failure with request 0 behind what is queued and closes when the peer has taken it, after
  // a second at the latest; then on_closed is told its text. Until then nothing is handed out any
  // more and is_open() is false. Works before start().
  void fail(wire::FailureCode code, const std::string& text);
  // Ends the connection at once; what is queued is offered to the kernel, not waited for.
  void close(const Error& why);
  bool is_open() const;
  std::string peer() const;  // "127.0.0.1:41234", also after the end

  struct Counters {
    std::uint64_t frames_in, frames_out, bytes_in, bytes_out, writes, reads;
  };
  Counters counters() const;
  ~Connection();

 private:
  struct State;
  explicit Connection(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Connects, sends `hello`, and waits for Welcome, all within options.handshake_max. On success the
// connection has been started with handlers that only queue frames until replace_handlers(); frames
// that came right behind Welcome are not lost. `done` is called exactly once from the event loop.
// A Failure from the peer becomes Error{fault by its code, its text}. The returned function
// cancels: then `done` gets Fault::closed, still from the event loop; once `done` has been called
// it does nothing. A Hello with a text that is not UTF-8 is Fault::invalid, and not sent. Fills in
// version, heartbeat_ms and frame_bytes_max of `hello`, and sets the peer's limit.
std::function<void()> connect_and_greet(
    boost::asio::io_context& io, const Address& address, wire::Hello hello,
    ConnectionOptions options,
    std::function<void(Result<std::pair<std::shared_ptr<Connection>, wire::Welcome>>)> done);

// Accepts connections until stopped (destroyed). A failed accept (out of descriptors) is logged by
// the caller's `on_fault`, and tried again after a pause.
class Listener {
 public:
  // Binds and listens; throws std::runtime_error when it cannot (starting up). Neither function is
  // called after stop().
  Listener(boost::asio::io_context& io, const Address& address,
           std::function<void(boost::asio::ip::tcp::socket)> on_socket,
           std::function<void(const Error&)> on_fault);
  ~Listener();
  Address address() const;  // with the real port
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Checks the first frame of an accepted connection. Failure text is what a person should read.
// Returns the code to fail() with, or FAILURE_UNSPECIFIED if it is a Hello of our version with a
// role and, of a coordinator, a node (1 to 32 bytes), log id, epoch and session.
wire::FailureCode check_hello(const wire::Frame& frame, std::string& text);

}  // namespace twofold
