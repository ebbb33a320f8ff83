// The client's one connection to its coordinator, made again whenever it is lost (capped, jittered
// backoff). Knows what the coordinator said of itself: its log and the newest TxnId (rule 7).
//
// Every connection greets with this client's id and a higher counter than the one before, and is
// used only after Welcome: by then nothing that was sent on an earlier one can reach the
// coordinator any more (coordinator/core/client_fence.h), and what it says of a request is final.
//
// Lives on the thread that runs the io_context. Handlers are called from the event loop only, never
// from inside a call; after stop() never again. Handlers may drop the last reference to this
// object.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "protocol/connection.h"
#include "protocol/xid.h"
#include "runtime/backoff.h"

namespace twofold::client {

class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Handlers {
    std::function<void()> on_up;
    // The connection was lost, or an attempt to make one failed. Final: it would fail for ever
    // (another protocol version, not a coordinator); nothing is tried until want().
    std::function<void(const Error& why, bool final)> on_down;
    std::function<void(wire::Frame&)> on_frame;
  };
  enum class Sent { yes, not_connected, too_large };

  Link(boost::asio::io_context& io, Address coordinator, std::string name,
       ConnectionOptions options);
  ~Link() { stop(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void start(Handlers handlers);
  void want();  // a request has come: try again after a final failure
  void stop();

  Sent send(const wire::Frame& frame);
  bool connected() const { return connection_ != nullptr; }
  TxnId known() const { return known_; }    // {0,0} before the first handshake
  LogId log_id() const { return log_id_; }  // of the latest handshake
  std::size_t frame_bytes_max() const { return frame_bytes_max_; }  // what the coordinator accepts
  const Address& address() const { return coordinator_; }

 private:
  using Greeted = std::pair<std::shared_ptr<Connection>, wire::Welcome>;
  void connect();
  void connect_later();
  void on_greeted(Result<Greeted> greeted);
  void on_welcome(std::shared_ptr<Connection> connection, const wire::Welcome& welcome);
  void on_frame(wire::Frame& frame);
  void on_closed(const Error& why);
  void fail(const Error& why, bool final);

  boost::asio::io_context& io_;
  const Address coordinator_;
  const std::string name_;
  const std::uint64_t client_;  // drawn at random
  const ConnectionOptions options_;
  std::shared_ptr<const Handlers> handlers_;  // none once stopped
  std::uint64_t connections_ = 0;             // the counter of Hello
  Backoff backoff_;
  boost::asio::steady_timer pause_;
  std::function<void()> cancel_connect_;    // set while an attempt is under way
  std::shared_ptr<Connection> connection_;  // set from the handshake to the loss
  bool idle_ = true;                        // no attempt under way, none planned
  bool stopped_ = false;
  TxnId known_;
  LogId log_id_;
  std::size_t frame_bytes_max_ = 0;
};

}  // namespace twofold::client
