// A coordinator that does only what its test says: it greets, writes down what it is asked, and
// answers by a script. Lives on the thread that runs its io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/connection.h"
#include "protocol/convert.h"

namespace twofold {

class FakeCoordinator {
 public:
  // Answers one request over the connection it came on; called with each frame after the handshake.
  using Script = std::function<void(Connection&, const wire::Frame&)>;

  explicit FakeCoordinator(boost::asio::io_context& io, Address address = {"127.0.0.1", 0})
      : io_(io), address_(std::move(address)) {
    welcome.set_version(kProtocolVersion);
    welcome.set_role(wire::ROLE_COORDINATOR);
    welcome.set_name("main");
    welcome.set_log_id(77);
    welcome.set_frame_bytes_max(1u << 20);
    to_wire(TxnId{3, 10}, *welcome.mutable_newest());
    listen();
  }
  ~FakeCoordinator() { stop(); }

  // Comes back at the address it had.
  void listen() {
    listener_ = std::make_unique<Listener>(
        io_, address_, [this](auto socket) { accept(std::move(socket)); }, [](const Error&) {});
    address_ = listener_->address();
  }
  void stop() {
    listener_.reset();
    drop();
  }
  // Every connection is lost; new ones are taken.
  void drop() {
    for (auto& connection : std::exchange(connections_, {})) {
      connection->replace_handlers({});
      connection->close({Fault::closed, "dropped by the test"});
    }
  }

  const Address& address() const { return address_; }
  Connection& connection() { return *connections_.back(); }
  // The bodies of one kind among what was asked.
  std::vector<wire::Submit> submits() const {
    std::vector<wire::Submit> found;
    for (const auto& frame : asked) {
      if (frame.has_submit()) found.push_back(frame.submit());
    }
    return found;
  }
  std::vector<wire::Ask> asks() const {
    std::vector<wire::Ask> found;
    for (const auto& frame : asked) {
      if (frame.has_ask()) found.push_back(frame.ask());
    }
    return found;
  }

  wire::Welcome welcome;
  std::optional<std::pair<wire::FailureCode, std::string>> refuse;  // instead of Welcome
  Script script;
  std::vector<wire::Hello> hellos;
  std::vector<wire::Frame> asked;

 private:
  void accept(boost::asio::ip::tcp::socket socket) {
    auto connection = Connection::make(std::move(socket), {});
    connections_.push_back(connection);
    Connection::Handlers handlers;
    handlers.on_frame = [this, peer = connection.get()](wire::Frame& frame) {
      on_frame(*peer, frame);
    };
    handlers.on_closed = [this, peer = connection.get()](const Error&) {
      std::erase_if(connections_, [peer](const auto& c) { return c.get() == peer; });
    };
    connection->start(std::move(handlers));
  }

  void on_frame(Connection& from, const wire::Frame& frame) {
    if (frame.has_heartbeat()) return;
    if (frame.has_hello()) {
      hellos.push_back(frame.hello());
      std::string text;
      const auto wrong = check_hello(frame, text);
      if (wrong != wire::FAILURE_UNSPECIFIED) return from.fail(wrong, text);
      if (refuse) return from.fail(refuse->first, refuse->second);
      from.set_peer_limit(frame.hello().frame_bytes_max());
      wire::Frame answer;
      *answer.mutable_welcome() = welcome;
      from.send(answer);
      return;
    }
    asked.push_back(frame);
    if (script) script(from, frame);
  }

  boost::asio::io_context& io_;
  Address address_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<Connection>> connections_;
};

inline Outcome outcome(Verdict verdict, Reason reason = Reason::none, std::string detail = "") {
  Outcome result;
  result.verdict = verdict;
  result.reason = reason;
  result.detail = std::move(detail);
  return result;
}

inline void answer(Connection& to, const wire::Frame& request, const Outcome& outcome) {
  wire::Frame frame;
  frame.set_request(request.request());
  to_wire(outcome, *frame.mutable_outcome());
  to.send(frame);
}

inline void answer(Connection& to, const wire::Frame& request, wire::FailureCode code,
                   const std::string& text) {
  wire::Frame frame;
  frame.set_request(request.request());
  frame.mutable_failure()->set_code(code);
  frame.mutable_failure()->set_text(text);
  to.send(frame);
}

// A port of this machine on which nobody listens.
inline Address unused_address() {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  return {"127.0.0.1", acceptor.local_endpoint().port()};
}

// Runs handlers until it is so.
template <class Condition>
void run_until(boost::asio::io_context& io, Condition condition) {
  const auto work = boost::asio::make_work_guard(io);
  while (!condition()) io.run_one();
}

}  // namespace twofold
