// A resource manager in a few lines: it speaks the real protocol, keeps branches in memory, and
// follows a script where a test wants something else than the right answer.
//
// It lives on the io_context of the test's thread, so a test looks at it without locks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/connection.h"
#include "protocol/convert.h"
#include "protocol/operation.h"
#include "protocol/xa.h"

namespace twofold::test {

class FakeParticipant {
 public:
  using Body = wire::Frame::BodyCase;
  // Instead of the right answer to one request.
  using Act = std::function<void(FakeParticipant&, const wire::Frame&)>;

  FakeParticipant(boost::asio::io_context& io, std::string name) : io_(io), name_(std::move(name)) {
    listen();
  }

  const std::string& name() const { return name_; }
  Address address() const { return address_; }
  bool connected() const { return session_ != nullptr; }
  const wire::Hello& hello() const { return hello_; }
  const std::vector<std::string>& calls() const { return calls_; }
  std::size_t count(const std::string& call) const {
    std::size_t n = 0;
    for (const std::string& made : calls_) n += made == call;
    return n;
  }
  const wire::Frame& last(Body body) const { return last_.at(body); }
  TxnId mark() const { return mark_; }

  // ---- what is in it ----
  std::map<std::string, wire::Xid> prepared;  // by the xid's text
  std::set<std::string> committed;
  std::vector<wire::RecoveredBranch> listed_too;  // beside those, as they are
  std::string results;                            // of every branch that says yes
  std::uint32_t frame_bytes_max = kFrameBytesMaxDefault;
  std::uint32_t batch_max = 1'000;

  // ---- what goes wrong ----
  // The next request of this kind, beyond those scripted before, is answered by `act`.
  void script(Body body, Act act) { scripts_[body].push_back(std::move(act)); }
  // As script(), but before those scripted already.
  void script_first(Body body, Act act) { scripts_[body].push_front(std::move(act)); }
  std::size_t scripted(Body body) const {
    const auto found = scripts_.find(body);
    return found == scripts_.end() ? 0 : found->second.size();
  }
  // Hello is refused for as long as this is set.
  std::pair<wire::FailureCode, std::string> refuse_hello{wire::FAILURE_UNSPECIFIED, ""};

  static Act code(Xa code, std::string text = "") {
    return [code, text](FakeParticipant& self, const wire::Frame& request) {
      wire::Frame frame;
      frame.mutable_branch_answer()->set_code(static_cast<std::int32_t>(code));
      frame.mutable_branch_answer()->set_text(text);
      self.answer(request, std::move(frame));
    };
  }
  // With it the branch has ended, one way or another.
  static Act end_with(Xa code) {
    return [code](FakeParticipant& self, const wire::Frame& request) {
      const wire::Xid& xid =
          request.has_commit() ? request.commit().xid() : request.rollback().xid();
      if (request.has_commit() || request.has_rollback()) self.prepared.erase(key(xid));
      FakeParticipant::code(code)(self, request);
    };
  }
  static Act refuse(Refusal refusal) {
    return [refusal](FakeParticipant& self, const wire::Frame& request) {
      wire::Frame frame;
      frame.mutable_branch_answer()->set_code(static_cast<std::int32_t>(Xa::rbintegrity));
      to_wire(refusal, *frame.mutable_branch_answer()->add_refusals());
      self.answer(request, std::move(frame));
    };
  }
  static Act fail(std::string text) {
    return [text](FakeParticipant& self, const wire::Frame& request) {
      wire::Frame frame;
      frame.mutable_failure()->set_code(wire::FAILURE_REQUEST);
      frame.mutable_failure()->set_text(text);
      self.answer(request, std::move(frame));
    };
  }
  static Act hang() {
    return
        [](FakeParticipant& self, const wire::Frame& request) { self.hanging_.push_back(request); };
  }
  static Act lose_the_link() {
    return [](FakeParticipant& self, const wire::Frame&) { self.disconnect(); };
  }
  void answer_rightly(const wire::Frame& request) { serve(request); }
  // By the next script, or rightly.
  void answer_by_script(const wire::Frame& request) {
    auto& acts = scripts_[request.body_case()];
    if (acts.empty()) return serve(request);
    const Act act = std::move(acts.front());
    acts.pop_front();
    act(*this, request);
  }
  // To everything that hangs.
  void answer_hanging(const Act& act) {
    for (const wire::Frame& request : std::exchange(hanging_, {})) act(*this, request);
  }
  // The right answer, after all, to everything that hangs.
  void answer_hanging() {
    for (const wire::Frame& request : std::exchange(hanging_, {})) serve(request);
  }
  std::size_t hanging() const { return hanging_.size(); }

  void disconnect() {
    hanging_.clear();
    if (auto gone = std::exchange(session_, nullptr)) gone->close({Fault::closed, "scripted"});
  }
  // A resource manager that is down, and back with what it had made durable.
  void stop() {
    listener_.reset();
    disconnect();
  }
  void start() {
    ++incarnation_;
    listen();
  }

  void answer(const wire::Frame& request, wire::Frame frame) {
    frame.set_request(request.request());
    if (session_) session_->send(frame);
  }
  void send(const wire::Frame& frame) {
    if (session_) session_->send(frame);
  }

 private:
  void listen() {
    listener_ = std::make_unique<Listener>(
        io_, address_, [this](boost::asio::ip::tcp::socket socket) { accept(std::move(socket)); },
        [](const Error&) {});
    address_ = listener_->address();
  }

  void accept(boost::asio::ip::tcp::socket socket) {
    auto connection = Connection::make(std::move(socket), {});
    Connection::Handlers handlers;
    handlers.on_frame = [this, peer = connection.get()](wire::Frame& frame) {
      received(*peer, frame);
    };
    handlers.on_closed = [this, peer = connection.get()](const Error&) {
      if (session_.get() == peer) session_.reset();
      std::erase_if(peers_, [&](const auto& one) { return one.get() == peer; });
    };
    peers_.push_back(connection);
    connection->start(std::move(handlers));
  }

  void received(Connection& peer, wire::Frame& frame) {
    if (frame.has_heartbeat()) return;
    if (frame.has_hello()) return greet(peer, frame.hello());
    if (session_.get() != &peer) return;
    const Body body = frame.body_case();
    last_[body] = frame;
    calls_.push_back(call_name(body));
    answer_by_script(frame);
  }

  void greet(Connection& peer, const wire::Hello& hello) {
    if (refuse_hello.first != wire::FAILURE_UNSPECIFIED) {
      return peer.fail(refuse_hello.first, refuse_hello.second);
    }
    disconnect();  // the earlier session, if there is one
    hello_ = hello;
    for (const auto& one : peers_) {
      if (one.get() == &peer) session_ = one;
    }
    peer.set_peer_limit(hello.frame_bytes_max());
    wire::Frame frame;
    wire::Welcome& welcome = *frame.mutable_welcome();
    welcome.set_version(kProtocolVersion);
    welcome.set_role(wire::ROLE_RESOURCE_MANAGER);
    welcome.set_name(name_);
    welcome.set_incarnation(incarnation_);
    welcome.set_store_id(4711);
    welcome.set_heartbeat_ms(1000);
    welcome.set_frame_bytes_max(frame_bytes_max);
    peer.send(frame);
  }

  static std::string call_name(Body body) {
    switch (body) {
      case wire::Frame::kStart: return "start";
      case wire::Frame::kPrepare: return "prepare";
      case wire::Frame::kCommit: return "commit";
      case wire::Frame::kRollback: return "rollback";
      case wire::Frame::kRelease: return "release";
      case wire::Frame::kForget: return "forget";
      case wire::Frame::kRecover: return "recover";
      case wire::Frame::kAskOutcome: return "ask";
      case wire::Frame::kMark: return "mark";
      default: return "other";
    }
  }

  static std::string key(const wire::Xid& xid) { return to_text(from_wire(xid).value()); }

  void serve(const wire::Frame& request) {
    wire::Frame frame;
    switch (request.body_case()) {
      case wire::Frame::kStart:
        start_branch(request.start(), *frame.mutable_branch_answer());
        break;
      case wire::Frame::kPrepare:
        prepared[key(request.prepare().xid())] = request.prepare().xid();
        frame.mutable_branch_answer();
        break;
      case wire::Frame::kCommit: {
        const bool known = prepared.erase(key(request.commit().xid())) > 0;
        if (known) committed.insert(key(request.commit().xid()));
        frame.mutable_branch_answer()->set_code(
            static_cast<std::int32_t>(known ? Xa::ok : Xa::er_nota));
        break;
      }
      case wire::Frame::kRollback:
        prepared.erase(key(request.rollback().xid()));
        frame.mutable_branch_answer();
        break;
      case wire::Frame::kForget: prepared.erase(key(request.forget().xid())); [[fallthrough]];
      case wire::Frame::kRelease: frame.mutable_branch_answer(); break;
      case wire::Frame::kRecover: list(request.recover(), *frame.mutable_recover_answer()); break;
      case wire::Frame::kAskOutcome:
        frame.mutable_evidence()->set_kind(committed.count(key(request.ask_outcome().xid())) > 0
                                               ? wire::Evidence::COMMITTED
                                               : wire::Evidence::NONE);
        break;
      case wire::Frame::kMark: mark_ = from_wire(request.mark().low_water()); return;
      default: return;
    }
    answer(request, std::move(frame));
  }

  void start_branch(const wire::Start& start, wire::BranchAnswer& answered) {
    if (start.then() == wire::THEN_PREPARE) prepared[key(start.xid())] = start.xid();
    if (start.then() == wire::THEN_COMMIT_ONE_PHASE) committed.insert(key(start.xid()));
    answered.set_results(results);
  }

  void list(const wire::Recover& recover, wire::RecoverAnswer& answered) {
    if (recover.start()) {
      to_list_.clear();
      for (const auto& [text, xid] : prepared) {
        wire::RecoveredBranch branch;
        *branch.mutable_xid() = xid;
        to_list_.push_back(std::move(branch));
      }
      to_list_.insert(to_list_.end(), listed_too.begin(), listed_too.end());
    }
    while (!to_list_.empty() && answered.branches_size() < static_cast<int>(batch_max)) {
      *answered.add_branches() = std::move(to_list_.front());
      to_list_.pop_front();
    }
    answered.set_end(to_list_.empty());
  }

  boost::asio::io_context& io_;
  std::string name_;
  Address address_{"127.0.0.1", 0};
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<Connection>> peers_;
  std::shared_ptr<Connection> session_;
  wire::Hello hello_;
  std::uint64_t incarnation_ = 1;
  std::map<Body, std::deque<Act>> scripts_;
  std::map<Body, wire::Frame> last_;
  std::vector<std::string> calls_;
  std::vector<wire::Frame> hanging_;
  std::deque<wire::RecoveredBranch> to_list_;
  TxnId mark_;
};

}  // namespace twofold::test
