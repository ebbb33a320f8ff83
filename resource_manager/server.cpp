#include "resource_manager/server.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "protocol/check.h"
#include "protocol/convert.h"
#include "runtime/logging.h"

namespace twofold::resource_manager {
namespace {

constexpr std::uint64_t kFrameBytesMin = 64u << 10;  // every peer accepts this much

wire::FailureCode code_of(RefuseSession::Why why) {
  switch (why) {
    case RefuseSession::Why::stale: return wire::FAILURE_STALE;
    case RefuseSession::Why::wrong_log: return wire::FAILURE_WRONG_LOG;
    case RefuseSession::Why::outdated: return wire::FAILURE_OUTDATED;
    case RefuseSession::Why::busy: return wire::FAILURE_BUSY;
  }
  return wire::FAILURE_STALE;
}

}  // namespace

Server::Server(boost::asio::io_context& io, ServerOptions options, Engine& engine)
    : io_(io), options_(std::move(options)), engine_(engine) {
  engine_.attach(*this);
  listener_ = std::make_unique<Listener>(
      io_, options_.listen,
      [this](boost::asio::ip::tcp::socket socket) { on_socket(std::move(socket)); },
      [](const Error& error) { spdlog::warn("accept: {}; trying again", error.message); });
}

Server::~Server() {
  for (auto& [id, peer] : peers_) {
    peer.connection->replace_handlers({});
    peer.connection->close(Error{Fault::closed, "this process ends"});
  }
}

Server::Peer* Server::find(ConnectionId id) {
  auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

// ---- connections
// -----------------------------------------------------------------------------------

void Server::on_socket(boost::asio::ip::tcp::socket socket) {
  const bool too_many = peers_.size() >= options_.connections_max;
  const ConnectionId id = ++last_id_;
  Peer& peer = peers_[id];
  peer.id = id;
  peer.connection = Connection::make(std::move(socket), options_.connection);
  peer.name = peer.connection->peer();
  peer.connection->start({[this, id](wire::Frame& frame) { on_frame(id, frame); },
                          [this, id](const Error& why) { on_closed(id, why); },
                          {}});
  if (too_many) {
    end(peer, wire::FAILURE_BUSY,
        "resource manager " + options_.name + " has " + std::to_string(options_.connections_max) +
            " connections, and its connections_max allows no more: close some or raise it");
  }
}

void Server::on_closed(ConnectionId id, const Error& why) {
  auto found = peers_.find(id);
  if (found == peers_.end()) return;
  spdlog::debug("{}: connection closed: {}", found->second.name, why.message);
  if (found->second.session) engine_.post(ConnectionClosed{id});
  peers_.erase(found);
  if (peers_.empty() && all_closed_) std::exchange(all_closed_, {})();
}

void Server::end(Peer& peer, wire::FailureCode code, const std::string& text) {
  if (peer.stage == Stage::ended) return;
  spdlog::warn("{}: {}; connection ended", peer.name, text);
  peer.stage = Stage::ended;
  peer.connection->fail(code, text);
}

void Server::close_all(std::function<void()> done) {
  if (peers_.empty()) return done();
  all_closed_ = std::move(done);
  for (auto& [id, peer] : peers_) {
    if (peer.stage == Stage::ended) continue;
    peer.stage = Stage::ended;
    peer.connection->fail(wire::FAILURE_SHUTDOWN, "resource manager " + options_.name +
                                                      " is shutting down: connect again later");
  }
}

// A frame larger than the peer accepts becomes an error for whoever asked.
void Server::send(Peer& peer, const wire::Frame& frame) {
  if (peer.connection->send(frame) || !peer.connection->is_open()) return;
  send_failure(peer, frame.request(),
               "the answer has " + std::to_string(frame.ByteSizeLong()) +
                   " bytes, more than the frame_bytes_max of the side that asked: ask for less");
}

void Server::send_failure(Peer& peer, std::uint64_t request, const std::string& text) {
  wire::Frame frame;
  frame.set_request(request);
  frame.mutable_failure()->set_code(wire::FAILURE_REQUEST);
  frame.mutable_failure()->set_text(text);
  peer.connection->send(frame);
}

void Server::flush() {
  for (auto& [id, peer] : peers_) peer.connection->flush_blocking();
}

// ---- the handshake
// ---------------------------------------------------------------------------------

void Server::greet(Peer& peer, const wire::Frame& frame) {
  std::string text;
  const wire::FailureCode code = check_hello(frame, text);
  if (code != wire::FAILURE_UNSPECIFIED) return end(peer, code, text);
  const wire::Hello& hello = frame.hello();
  peer.name = (hello.node().empty() ? hello.name() : hello.node()) + " at " + peer.name;
  if (!hello.expects().empty() && hello.expects() != options_.name) {
    return end(peer, wire::FAILURE_NOT_HERE,
               "this is resource manager " + options_.name + ", and " + hello.expects() +
                   " was expected here: check the addresses in the configuration");
  }
  const auto silence = static_cast<std::uint64_t>(options_.connection.silence_max.count());
  if (hello.heartbeat_ms() >= silence) {
    return end(peer, wire::FAILURE_HANDSHAKE,
               "heartbeats every " + std::to_string(hello.heartbeat_ms()) +
                   " ms are too rare: this side closes after " + std::to_string(silence) +
                   " ms of silence");
  }
  peer.frame_bytes_max = std::max<std::uint64_t>(hello.frame_bytes_max(), kFrameBytesMin);
  peer.connection->set_peer_limit(peer.frame_bytes_max);
  switch (hello.role()) {
    case wire::ROLE_COORDINATOR: return request_session(peer, hello);
    case wire::ROLE_CLIENT: peer.stage = Stage::client; return welcome(peer);
    default:
      return end(peer, wire::FAILURE_HANDSHAKE,
                 "a resource manager talks to coordinators and clients only");
  }
}

void Server::request_session(Peer& peer, const wire::Hello& hello) {
  peer.stage = Stage::waiting;
  peer.session = true;
  SessionRequested event;
  event.connection = peer.id;
  event.node = hello.node();
  event.log_id.value = hello.log_id();
  event.epoch = hello.epoch();
  event.nonce = hello.nonce();
  event.counter = hello.session();
  event.rebuild = hello.rebuild();
  event.earlier.assign(hello.earlier().begin(), hello.earlier().end());
  for (const std::uint64_t log_id : hello.former_logs()) event.former.push_back({log_id});
  engine_.post(std::move(event));
}

void Server::welcome(Peer& peer) {
  wire::Frame frame;
  wire::Welcome& welcome = *frame.mutable_welcome();
  welcome.set_version(kProtocolVersion);
  welcome.set_role(wire::ROLE_RESOURCE_MANAGER);
  welcome.set_name(options_.name);
  welcome.set_incarnation(options_.incarnation);
  welcome.set_store_id(engine_.adapter().store_id());
  welcome.set_heartbeat_ms(static_cast<std::uint32_t>(options_.connection.heartbeat.count()));
  welcome.set_frame_bytes_max(static_cast<std::uint32_t>(std::min<std::size_t>(
      options_.connection.frame_bytes_max, std::numeric_limits<std::uint32_t>::max())));
  send(peer, frame);
}

void Server::accept(const AcceptSession& effect) {
  Peer* peer = find(effect.connection);
  if (peer == nullptr || peer->stage != Stage::waiting) return;
  peer->stage = Stage::coordinator;
  spdlog::info("{}: session begins", peer->name);
  welcome(*peer);
}

void Server::refuse(const RefuseSession& effect) {
  Peer* peer = find(effect.connection);
  if (peer == nullptr) return;
  end(*peer, code_of(effect.why), effect.text);
}

void Server::close(const CloseConnection& effect) {
  if (Peer* peer = find(effect.connection)) end(*peer, wire::FAILURE_STALE, effect.text);
}

// ---- answers
// ---------------------------------------------------------------------------------------

void Server::answer(Answer effect) {
  Peer* peer = find(effect.requester.connection);
  if (peer == nullptr) return;
  wire::Frame frame;
  frame.set_request(effect.requester.request);
  wire::BranchAnswer& answer = *frame.mutable_branch_answer();
  answer.set_code(static_cast<std::int32_t>(effect.code));
  answer.set_results(std::move(effect.results));
  for (const Refusal& refusal : effect.refusals) to_wire(refusal, *answer.add_refusals());
  answer.set_text(std::move(effect.text));
  answer.set_no_room(effect.no_room);
  send(*peer, frame);
}

void Server::answer(AnswerRecover effect) {
  Peer* peer = find(effect.requester.connection);
  if (peer == nullptr) return;
  wire::Frame frame;
  frame.set_request(effect.requester.request);
  wire::RecoverAnswer& answer = *frame.mutable_recover_answer();
  for (const RecoveredBranch& branch : effect.branches) {
    wire::RecoveredBranch& out = *answer.add_branches();
    to_wire(branch.xid, *out.mutable_xid());
    out.set_busy(branch.busy);
    out.set_age_ms(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(branch.age).count()));
  }
  answer.set_end(effect.end);
  send(*peer, frame);
}

void Server::answer(const AnswerFailure& effect) {
  Peer* peer = find(effect.requester.connection);
  if (peer != nullptr) send_failure(*peer, effect.requester.request, effect.text);
}

void Server::answer(const Requester& requester, wire::Evidence::Kind kind) {
  Peer* peer = find(requester.connection);
  if (peer == nullptr) return;
  wire::Frame frame;
  frame.set_request(requester.request);
  frame.mutable_evidence()->set_kind(kind);
  send(*peer, frame);
}

void Server::report(const ReportWaits& effect) {
  Peer* peer = find(effect.connection);
  if (peer == nullptr) return;
  wire::Frame frame;
  for (const WaitEdge& edge : effect.waits) {
    wire::Waits::Wait& wait = *frame.mutable_waits()->add_waits();
    to_wire(edge.waiter, *wait.mutable_waiter());
    to_wire(edge.holder, *wait.mutable_holder());
  }
  wire::Waits& waits = *frame.mutable_waits();  // an empty one says that nobody waits any more
  // Too many for a frame: a part of them, which finds some of the circles.
  while (!peer->connection->send(frame) && peer->connection->is_open() && waits.waits_size() > 0) {
    waits.mutable_waits()->DeleteSubrange(waits.waits_size() / 2,
                                          waits.waits_size() - waits.waits_size() / 2);
  }
}

}  // namespace twofold::resource_manager
