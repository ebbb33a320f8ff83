// Frames of greeted peers, turned into events or answered.
#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/convert.h"
#include "resource_manager/inspection.h"
#include "resource_manager/server.h"

namespace twofold::resource_manager {
namespace {

using Body = wire::Frame::BodyCase;

constexpr std::uint64_t kAnswerOverheadBytes = 1'024;

bool is_branch_verb(Body body) {
  return body >= Body::kStart && body <= Body::kMark;
}

// What a client asks of an interactive branch.
bool is_client_verb(Body body) {
  return body >= Body::kJoin && body <= Body::kEnd;
}

bool is_inspection(Body body) {
  return body == Body::kScan || body == Body::kLocks || body == Body::kInDoubt ||
         body == Body::kStats;
}

}  // namespace

void Server::on_frame(ConnectionId id, wire::Frame& frame) {
  Peer* peer = find(id);
  if (peer == nullptr || peer->stage == Stage::ended) return;
  const Body body = frame.body_case();
  if (peer->stage == Stage::greeting) return greet(*peer, frame);
  if (body == Body::kHeartbeat) return;
  if (body == Body::kFailure && frame.request() == 0) return;  // the connection ends with its text
  if (peer->stage == Stage::waiting || body == Body::kHello) {
    return end(*peer, wire::FAILURE_HANDSHAKE,
               body == Body::kHello ? "a second Hello on one connection"
                                    : "a request before Welcome: wait for it");
  }
  on_request(*peer, frame);
}

void Server::on_request(Peer& peer, wire::Frame& frame) {
  const Body body = frame.body_case();
  const bool known = is_branch_verb(body) || is_client_verb(body) || is_inspection(body);
  if (!known) {
    return end(peer, wire::FAILURE_UNKNOWN_MESSAGE,
               "message " + std::to_string(body) +
                   " of Frame is none that a resource manager takes: a newer peer, or one that "
                   "meant a coordinator");
  }
  if (is_client_verb(body) && peer.stage != Stage::client) {
    return end(peer, wire::FAILURE_UNKNOWN_MESSAGE,
               "clients join branches, over connections of their own; a coordinator starts them");
  }
  if (is_branch_verb(body) && peer.stage != Stage::coordinator) {
    return end(peer, wire::FAILURE_UNKNOWN_MESSAGE,
               "branch verbs belong to a coordinator's session: submit to the coordinator instead");
  }
  if (frame.request() == 0 && body != Body::kMark) {
    return end(peer, wire::FAILURE_REQUEST,
               "message " + std::to_string(body) + " of Frame needs a request number");
  }
  if (is_inspection(body)) {
    // Behind the events that came before it, so that it shows them.
    return engine_.call([this, id = peer.id, question = std::move(frame)] {
      Peer* asker = find(id);
      if (asker != nullptr && asker->stage != Stage::ended) inspect(*asker, question);
    });
  }
  if (is_client_verb(body)) return on_client_verb(peer, frame);
  on_branch_verb(peer, frame);
}

// ---- branch verbs
// ----------------------------------------------------------------------------------

std::optional<Xid> Server::take_xid(const Requester& requester, const wire::Xid& xid) {
  Result<Xid> taken = from_wire(xid);
  if (taken) return std::move(*taken);
  Answer refused;
  refused.requester = requester;
  refused.code = Xa::er_inval;
  refused.text = taken.error().message;
  answer(std::move(refused));
  return std::nullopt;
}

void Server::on_branch_verb(Peer& peer, wire::Frame& frame) {
  const Requester requester{peer.id, frame.request()};
  auto with_xid = [&](const wire::Xid& xid, auto make_event) {
    if (std::optional<Xid> taken = take_xid(requester, xid)) {
      engine_.post(make_event(std::move(*taken)));
    }
  };
  switch (frame.body_case()) {
    case Body::kStart: return on_start(requester, *frame.mutable_start());
    case Body::kPrepare:
      return with_xid(frame.prepare().xid(), [&](Xid xid) {
        const wire::Prepare& prepare = frame.prepare();
        return Prepare{requester, std::move(xid), prepare.incarnation(), prepare.work_items(),
                       prepare.read_only_vote()};
      });
    case Body::kCommit:
      return with_xid(frame.commit().xid(), [&](Xid xid) {
        const wire::Commit& commit = frame.commit();
        return Commit{requester,        std::move(xid),       commit.one_phase(),
                      commit.awaited(), commit.incarnation(), commit.work_items()};
      });
    case Body::kRollback:
      return with_xid(frame.rollback().xid(), [&](Xid xid) {
        return Rollback{requester, std::move(xid)};
      });
    case Body::kRelease:
      return with_xid(frame.release().xid(), [&](Xid xid) {
        return Release{requester, std::move(xid)};
      });
    case Body::kForget:
      return with_xid(frame.forget().xid(), [&](Xid xid) {
        return Forget{requester, std::move(xid)};
      });
    case Body::kRecover:
      return engine_.post(Recover{requester, frame.recover().start(), frame.recover().batch(),
                                  frame.recover().close()});
    case Body::kAskOutcome: return on_ask_outcome(peer, requester, frame.ask_outcome());
    case Body::kMark: return engine_.post(Mark{peer.id, from_wire(frame.mark().low_water())});
    default: break;
  }
  TWOFOLD_CHECK(false);  // is_branch_verb() said so
}

void Server::on_client_verb(Peer& peer, wire::Frame& frame) {
  const Requester requester{peer.id, frame.request()};
  const wire::Xid& named = frame.has_join()      ? frame.join().xid()
                           : frame.has_execute() ? frame.execute().xid()
                                                 : frame.end().xid();
  std::optional<Xid> xid = take_xid(requester, named);
  if (!xid) return;
  peer.session = true;  // from now on the core has to hear of its end
  switch (frame.body_case()) {
    case Body::kJoin:
      return engine_.post(
          Join{requester, std::move(*xid), frame.join().thread(), frame.join().resume()});
    case Body::kExecute: {
      wire::Execute& execute = *frame.mutable_execute();
      Execute event{
          requester, std::move(*xid), execute.thread(), std::move(*execute.mutable_work()), {}, {}};
      Plan plan = engine_.adapter().plan(event.work);
      event.locks = std::move(plan.locks);
      event.invalid = std::move(plan.invalid);
      return engine_.post(std::move(event));
    }
    default: break;
  }
  End event{requester, std::move(*xid), frame.end().thread(), End::Flag::success};
  switch (frame.end().flag()) {
    case wire::End::SUCCESS: break;
    case wire::End::FAIL: event.flag = End::Flag::fail; break;
    case wire::End::SUSPEND: event.flag = End::Flag::suspend; break;
    default: {
      Answer refused;
      refused.requester = requester;
      refused.code = Xa::er_inval;
      refused.text = "flag = " + std::to_string(frame.end().flag()) + " is none of wire.proto's";
      return answer(std::move(refused));
    }
  }
  engine_.post(std::move(event));
}

void Server::on_start(const Requester& requester, wire::Start& start) {
  std::optional<Xid> xid = take_xid(requester, start.xid());
  if (!xid) return;
  Start event;
  event.requester = requester;
  event.xid = std::move(*xid);
  event.work = std::move(*start.mutable_work());
  switch (start.then()) {
    case wire::THEN_NOTHING: event.then = Then::nothing; break;
    case wire::THEN_PREPARE: event.then = Then::prepare; break;
    case wire::THEN_COMMIT_ONE_PHASE: event.then = Then::commit_one_phase; break;
    default: {
      Answer refused;
      refused.requester = requester;
      refused.code = Xa::er_inval;
      refused.text = "then = " + std::to_string(start.then()) + " is none of wire.proto's";
      return answer(std::move(refused));
    }
  }
  Plan plan = engine_.adapter().plan(event.work);
  event.locks = std::move(plan.locks);
  event.invalid = std::move(plan.invalid);
  event.read_only_vote = start.read_only_vote();
  event.interactive = start.interactive();
  event.remaining = std::chrono::milliseconds(start.remaining_ms());
  event.age =
      std::chrono::milliseconds(std::min<std::uint64_t>(start.age_ms(), 365ull * 24 * 3600 * 1000));
  engine_.post(std::move(event));
}

// Its answer is no BranchAnswer, so a bad xid cannot be XAER_INVAL.
void Server::on_ask_outcome(Peer& peer, const Requester& requester, const wire::AskOutcome& ask) {
  Result<Xid> xid = from_wire(ask.xid());
  if (!xid) return send_failure(peer, requester.request, xid.error().message);
  engine_.post(AskOutcome{requester, std::move(*xid), ask.store_id()});
}

// ---- inspection
// ------------------------------------------------------------------------------------

void Server::inspect(Peer& peer, const wire::Frame& frame) {
  if (frame.body_case() == Body::kScan) return on_scan(peer, frame.request(), frame.scan());
  const Time now = monotonic_now();
  wire::Frame out;
  out.set_request(frame.request());
  switch (frame.body_case()) {
    case Body::kLocks:
      *out.mutable_locks_answer() = locks_answer(engine_.branches(), frame.locks(), now);
      break;
    case Body::kInDoubt:
      *out.mutable_in_doubt_answer() = in_doubt_answer(engine_.branches(), now);
      break;
    default: {
      wire::StatsAnswer& stats = *out.mutable_stats_answer();
      stats = stats_answer(engine_, engine_.adapter());
      wire::StatsAnswer::Number& connections = *stats.add_numbers();
      connections.set_name("connections");
      connections.set_value(static_cast<std::int64_t>(peers_.size()));
      wire::StatsAnswer::Named& kind = *stats.add_texts();
      kind.set_name("kind");
      kind.set_value(options_.kind);
    }
  }
  send(peer, out);
}

// The answer may come later, when the asker has gone.
void Server::on_scan(Peer& peer, std::uint64_t request, const wire::Scan& scan) {
  std::uint64_t limit = std::min(options_.scan_bytes_max, peer.frame_bytes_max);
  limit -= std::min(limit, kAnswerOverheadBytes);
  auto done = [this, id = peer.id, request](Result<wire::ScanAnswer> scanned) {
    Peer* asker = find(id);
    if (asker == nullptr || asker->stage == Stage::ended) return;
    if (!scanned) return send_failure(*asker, request, scanned.error().message);
    wire::Frame out;
    out.set_request(request);
    *out.mutable_scan_answer() = std::move(*scanned);
    send(*asker, out);
  };
  engine_.adapter().scan(scan, limit, std::move(done));
}

}  // namespace twofold::resource_manager
