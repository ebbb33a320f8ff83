// A resource manager's side of the wire: listens, greets, turns frames into the engine's events and
// the core's answers into frames. A bad frame ends its own connection and nothing else.
//
// Who connects says what it is. A coordinator gets a session (rule 15) and with it the branch
// verbs; a client inspects (inspection.h). Interactive clients will join branches here as a third
// kind of peer.
//
// Threads: all on the engine's.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "protocol/connection.h"
#include "resource_manager/engine.h"

namespace twofold::resource_manager {

struct ServerOptions {
  std::string name;  // of the resource manager
  std::string kind;  // for people: "store"
  Address listen;
  std::uint64_t incarnation = 0;  // the core's
  std::size_t connections_max = 1'000;
  std::uint64_t scan_bytes_max = 8u << 20;
  ConnectionOptions connection;
};

class Server final : public Outlet {
 public:
  // Listens at once; throws std::runtime_error when it cannot (starting up). `engine` outlives it.
  Server(boost::asio::io_context& io, ServerOptions options, Engine& engine);
  ~Server() override;

  Address address() const { return listener_->address(); }
  std::size_t connections() const { return peers_.size(); }

  void stop_accepting() { listener_->stop(); }
  // Tells everyone that this process ends; the connections close when that is written. Then calls
  // `done`, once, perhaps at once.
  void close_all(std::function<void()> done);

  // Outlet.
  void accept(const AcceptSession& effect) override;
  void refuse(const RefuseSession& effect) override;
  void close(const CloseConnection& effect) override;
  void answer(Answer effect) override;
  void answer(AnswerRecover effect) override;
  void answer(const AnswerFailure& effect) override;
  void answer(const Requester& requester, wire::Evidence::Kind kind) override;
  void report(const ReportWaits& effect) override;
  void flush() override;

 private:
  enum class Stage : std::uint8_t { greeting, waiting, coordinator, client, ended };
  struct Peer {
    ConnectionId id = 0;
    std::shared_ptr<Connection> connection;
    Stage stage = Stage::greeting;  // waiting: for the core's word on its session
    bool session = false;           // the core knows this connection
    std::string name;               // as it called itself, with its address
    std::uint64_t frame_bytes_max = kFrameBytesMaxDefault;  // what it accepts
  };

  void on_socket(boost::asio::ip::tcp::socket socket);
  void on_frame(ConnectionId id, wire::Frame& frame);
  void on_closed(ConnectionId id, const Error& why);

  void greet(Peer& peer, const wire::Frame& frame);
  void request_session(Peer& peer, const wire::Hello& hello);
  void welcome(Peer& peer);
  void on_start(const Requester& requester, wire::Start& start);
  void on_ask_outcome(Peer& peer, const Requester& requester, const wire::AskOutcome& ask);
  void on_request(Peer& peer, wire::Frame& frame);
  void on_branch_verb(Peer& peer, wire::Frame& frame);
  void on_client_verb(Peer& peer, wire::Frame& frame);
  void inspect(Peer& peer, const wire::Frame& frame);
  void on_scan(Peer& peer, std::uint64_t request, const wire::Scan& scan);

  // The xid of a verb; otherwise answers XAER_INVAL.
  std::optional<Xid> take_xid(const Requester& requester, const wire::Xid& xid);
  void end(Peer& peer, wire::FailureCode code, const std::string& text);
  void send(Peer& peer, const wire::Frame& frame);
  void send_failure(Peer& peer, std::uint64_t request, const std::string& text);
  Peer* find(ConnectionId id);

  boost::asio::io_context& io_;
  const ServerOptions options_;
  Engine& engine_;
  std::map<ConnectionId, Peer> peers_;
  ConnectionId last_id_ = 0;
  std::function<void()> all_closed_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace twofold::resource_manager
