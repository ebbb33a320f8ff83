// The server for clients: submissions, questions about outcomes, and inspection.
//
// Submit, Ask and Drain become events of the core and are answered when the core replies, if the
// connection is still there. List, Show and Stats are read from the core at once, after everything
// that came before them. Nothing is unbounded: connections_max connections, requests_max open
// requests in all (a request stays open in the core even when its connection is lost), and a client
// that does not read is closed. Whatever is wrong with a connection ends that connection and
// nothing else. A client's newer connection ends its older one (client_fence.h).
//
// Threads: the engine's.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "coordinator/core/client_fence.h"
#include "coordinator/core/events.h"
#include "coordinator/driver.h"
#include "coordinator/wire_views.h"
#include "protocol/connection.h"
#include "runtime/histogram.h"

namespace twofold::coordinator {

struct ClientServerOptions {
  Address listen;
  wire::Welcome welcome;  // all of it but the newest TxnId
  ConnectionOptions connection;
  std::size_t connections_max = 10'000;
  std::size_t requests_max = 201'000;
  std::size_t clients_remembered_max = 10'000;  // that have left (client_fence.h)
};

class ClientServer {
 public:
  // Binds and listens; throws std::runtime_error when it cannot.
  ClientServer(Driver& driver, ClientServerOptions options);
  ~ClientServer();
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

  Address address() const { return listener_.address(); }
  void reply(Reply& effect);
  void reply(Enlisted& effect, const std::string& address);  // of the resource manager
  void reply(DrainTold& effect, const ParticipantView& view);
  void flush_blocking(std::uint64_t connection);  // for crash points
  void close();  // hands to the kernel what has been sent, and closes all connections, for good

  void add_stats(wire::StatsAnswer& stats) const;

 private:
  struct Open {  // a request that the core has
    Time since;
    enum class Kind : std::uint8_t { submit_at_decision, submit_at_end, ask } kind;
  };
  struct Client {
    std::shared_ptr<Connection> connection;
    std::optional<boost::asio::steady_timer> greeting;  // runs until the handshake
    std::string name;
    std::uint64_t client = 0;  // its id, once welcomed; 0: it has none
    bool greeted = false;
    bool refused = false;  // beyond connections_max, or ended for what it sent: not listened to
    std::unordered_map<std::uint64_t, Open> open;
  };

  void accepted(boost::asio::ip::tcp::socket socket);
  void greeting_time_over(std::uint64_t id);
  void closed(std::uint64_t id, const Error& why);
  void end(Client& client, wire::FailureCode code, const std::string& text);

  void received(std::uint64_t id, wire::Frame& frame);
  void greet(std::uint64_t id, Client& client, const wire::Frame& frame);
  bool fence(std::uint64_t id, Client& client, const wire::Hello& hello);  // false: refused, told
  void submit(std::uint64_t id, Client& client, std::uint64_t request, wire::Submit& submit);
  void ask(std::uint64_t id, Client& client, std::uint64_t request, wire::Ask& ask);
  void begin(std::uint64_t id, Client& client, std::uint64_t request, const wire::Begin& begin);
  void enlist(std::uint64_t id, Client& client, std::uint64_t request, wire::Enlist& enlist);
  void finish(std::uint64_t id, Client& client, std::uint64_t request, wire::Finish& finish);
  void drain(std::uint64_t id, Client& client, std::uint64_t request, const wire::Drain& drain);
  void list(Client& client, std::uint64_t request, const wire::List& list);
  void show(Client& client, std::uint64_t request, const wire::Show& show);
  void stats(Client& client, std::uint64_t request);

  bool open(Client& client, std::uint64_t request, Open::Kind kind);  // false: refused and told
  void answer(Client& client, const wire::Frame& frame, std::string_view advice);
  bool send(Client& client, const wire::Frame& frame);  // false: too large for the client
  void refuse_too_large(Client& client, const wire::Frame& frame, const std::string& advice);
  void refuse(Client& client, std::uint64_t request, wire::FailureCode code, std::string text);

  Driver& driver_;
  ClientServerOptions options_;
  WallClock wall_;
  std::unordered_map<std::uint64_t, Client> clients_;
  ClientFence fence_;
  std::uint64_t last_id_ = 0;
  std::size_t requests_open_ = 0;
  bool closing_ = false;

  Histogram reply_us_;         // from a submission to its reply at the decision
  Histogram reply_at_end_us_;  // or when all has ended
  std::uint64_t replies_undeliverable_ = 0;
  Connection::Counters earlier_traffic_{};

  Listener listener_;  // last: it calls accepted()
};

}  // namespace twofold::coordinator
