#include "coordinator/link.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "coordinator/statistics.h"
#include "protocol/check.h"
#include "protocol/convert.h"
#include "runtime/logging.h"

namespace twofold::coordinator {
namespace {

// Rule 24: the wire carries remaining milliseconds. What is left of a millisecond counts as one, so
// that a branch never outlives its transaction by rounding down to "no time at all".
std::uint32_t remaining_ms(Duration remaining) {
  const auto up = std::chrono::ceil<std::chrono::milliseconds>(remaining).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(up, 1, std::numeric_limits<std::uint32_t>::max()));
}

std::uint64_t whole_ms(Duration duration) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(duration).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(ms, 0));
}

wire::Then to_wire_then(Then then) {
  switch (then) {
    case Then::nothing: return wire::THEN_NOTHING;
    case Then::prepare: return wire::THEN_PREPARE;
    case Then::commit_one_phase: return wire::THEN_COMMIT_ONE_PHASE;
  }
  return wire::THEN_NOTHING;
}

// What WorkDone, Voted and Acknowledged have in common.
template <class Answer>
Answer answer_event(wire::BranchAnswer& answer, RmId id, const std::string& rm) {
  Answer event;
  event.rm = id;
  event.code = static_cast<Xa>(answer.code());
  event.results = std::move(*answer.mutable_results());
  event.text = std::move(*answer.mutable_text());
  event.no_room = answer.no_room();
  event.refusals.reserve(static_cast<std::size_t>(answer.refusals_size()));
  for (const wire::Refusal& refusal : answer.refusals()) {
    event.refusals.push_back(from_wire(refusal));
    event.refusals.back().rm = rm;
  }
  return event;
}

OutcomeTold::Evidence from_wire_evidence(wire::Evidence::Kind kind) {
  switch (kind) {
    case wire::Evidence::COMMITTED: return OutcomeTold::Evidence::committed;
    case wire::Evidence::NONE: return OutcomeTold::Evidence::none;
    case wire::Evidence::IMPOSSIBLE: return OutcomeTold::Evidence::impossible;
    case wire::Evidence::PREPARED: return OutcomeTold::Evidence::prepared;
    // A kind that this build does not know says nothing: as busy, it is asked for again.
    default: return OutcomeTold::Evidence::busy;
  }
}

}  // namespace

// ---- the session's life
// ----------------------------------------------------------------------------

Link::Link(Driver& driver, LinkOptions options)
    : driver_(driver),
      options_(std::move(options)),
      backoff_(options_.reconnect_first, options_.reconnect_max),
      reconnect_timer_(driver.io()),
      scan_timer_(driver.io()) {}

Link::~Link() {
  close();
}

void Link::close() {
  closed_ = true;
  reconnect_timer_.cancel();
  scan_timer_.cancel();
  if (cancel_connect_) std::exchange(cancel_connect_, nullptr)();
  if (connection_) {
    connection_->replace_handlers({});
    connection_->close({Fault::closed, "the coordinator ends"});
    connection_.reset();
  }
}

void Link::connect() {
  if (closed_) return;
  options_.hello.set_session(++session_);
  cancel_connect_ =
      connect_and_greet(driver_.io(), options_.address, options_.hello, options_.connection,
                        while_alive([this](Greeted result) { greeted(std::move(result)); }));
}

void Link::connect_after(std::chrono::milliseconds pause) {
  reconnect_timer_.expires_after(pause);
  reconnect_timer_.async_wait(while_alive([this](const boost::system::error_code& cancelled) {
    if (!cancelled) connect();
  }));
}

void Link::greeted(Greeted result) {
  cancel_connect_ = nullptr;
  if (closed_) return;
  if (!result) return unreachable(result.error());
  auto& [connection, welcome] = *result;
  if (std::string fault = unacceptable(welcome); !fault.empty()) {
    connection->close({Fault::invalid, fault});
    return refused(fault);
  }
  up(std::move(connection), welcome);
}

std::string Link::unacceptable(const wire::Welcome& welcome) const {
  const std::string who = to_text(options_.address);
  if (welcome.role() != wire::ROLE_RESOURCE_MANAGER) {
    return who + " is no resource manager; correct the address of " + options_.name;
  }
  if (welcome.name() != options_.name) {
    return who + " is the resource manager " + welcome.name() + ", not " + options_.name +
           "; correct the name or the address";
  }
  return {};
}

void Link::up(std::shared_ptr<Connection> connection, const wire::Welcome& welcome) {
  connection_ = std::move(connection);
  connection_->set_peer_limit(welcome.frame_bytes_max());
  peer_frame_bytes_max_ = std::max<std::size_t>(welcome.frame_bytes_max(), kPeerFrameBytesMin);
  up_since_ = monotonic_now();
  malformed_told_ = false;
  last_told_.clear();
  state_ = "up, session " + std::to_string(session_);
  spdlog::info("{}: connected to {}, session {}", options_.name, to_text(options_.address),
               session_);
  // Before the handlers: they may be handed frames that came right behind Welcome.
  driver_.post(LinkUp{options_.id, welcome.incarnation(), welcome.store_id()});
  Connection::Handlers handlers;
  handlers.on_frame = [this](wire::Frame& frame) { on_frame(frame); };
  handlers.on_closed = [this](const Error& why) { lost(why); };
  handlers.fill_heartbeat = [this](wire::Heartbeat& beat) {
    to_wire(driver_.newest(), *beat.mutable_newest());
  };
  connection_->replace_handlers(std::move(handlers));
}

void Link::lost(const Error& why) {
  TWOFOLD_CHECK(connection_ != nullptr);
  add(earlier_traffic_, connection_->counters());
  connection_.reset();
  asked_.clear();
  scan_ = {};
  scan_timer_.cancel();
  state_ = "lost: " + why.message;
  spdlog::warn("{}: link lost: {}; connecting again", options_.name, why.message);
  // A session that ends as soon as it begins must not be renewed in a hot loop.
  if (monotonic_now() - up_since_ > std::chrono::seconds{1}) backoff_.reset();
  driver_.post(LinkDown{options_.id});
}

void Link::resume() {
  if (closed_ || connection_) return;
  connect_after(backoff_.next());
}

bool Link::is_news(const std::string& text) {
  if (text == last_told_) return false;
  last_told_ = text;
  return true;
}

void Link::unreachable(const Error& why) {
  switch (why.fault) {  // as protocol/convert.h gives codes their faults
    case Fault::outdated: return driver_.outdated(options_.name, why.message);
    case Fault::exists:  // another session of ours was newer: the next one is newer still
    case Fault::invalid:
    case Fault::not_found:
    case Fault::damaged:
    case Fault::unsupported: return refused(why.message);
    case Fault::busy:
    case Fault::full:
    case Fault::io:
    case Fault::closed:
    case Fault::timeout: break;
  }
  state_ = "down: " + why.message;
  if (is_news(why.message)) {
    spdlog::warn("{}: {}; transactions with it are refused until it is there; trying again",
                 options_.name, why.message);
  }
  connect_after(backoff_.next());
}

void Link::refused(const std::string& text) {
  state_ = "refused: " + text;
  if (is_news(text)) {
    spdlog::error("{}: {} refuses the session: {}; asking again every {} ms", options_.name,
                  to_text(options_.address), text, options_.reconnect_max.count());
  }
  connect_after(options_.reconnect_max);
}

// ---- asking
// ----------------------------------------------------------------------------------------

// False: the frame is too large for the resource manager. A link that is down swallows it: its
// LinkDown is on the way to the core.
bool Link::ask(wire::Frame& frame, Verb verb, const BranchKey& branch, Xid xid) {
  if (!connection_) return true;
  const std::uint64_t request = ++last_request_;
  frame.set_request(request);
  if (!connection_->send(frame)) return !connection_->is_open();
  if (verb != Verb::list) ++branch_frames_;
  asked_.emplace(request, Asked{verb, branch, std::move(xid), monotonic_now()});
  return true;
}

Link::Verb Link::verb_of(Then then) {
  switch (then) {
    case Then::nothing: return Verb::work;
    case Then::prepare: return Verb::vote;
    case Then::commit_one_phase: return Verb::commit_one_phase;
  }
  return Verb::work;
}

void Link::send(Start& effect) {
  wire::Frame frame;
  wire::Start& start = *frame.mutable_start();
  to_wire(effect.xid, *start.mutable_xid());
  start.set_remaining_ms(remaining_ms(effect.remaining));
  start.set_work(std::move(effect.work));
  start.set_then(to_wire_then(effect.then));
  start.set_read_only_vote(effect.read_only_vote);
  start.set_interactive(effect.interactive);
  start.set_age_ms(whole_ms(effect.age));
  // Only an acknowledgement repeats the xid.
  const Verb verb = verb_of(effect.then);
  Xid xid = verb == Verb::commit_one_phase ? effect.xid : Xid{};
  if (!ask(frame, verb, effect.branch, std::move(xid))) {
    refuse_too_large(effect, frame.ByteSizeLong());
  }
}

void Link::refuse_too_large(const Start& effect, std::size_t bytes) {
  wire::BranchAnswer answer;
  answer.set_code(static_cast<std::int32_t>(Xa::rbintegrity));
  wire::Refusal& refusal = *answer.add_refusals();  // no other attempt could do better
  refusal.set_check("invalid");
  refusal.set_value(std::to_string(bytes));
  refusal.set_limit("split the work: it has to fit into a frame of " +
                    std::to_string(peer_frame_bytes_max_) + " bytes (frame_bytes_max there)");
  on_branch_answer({verb_of(effect.then), effect.branch, effect.xid, monotonic_now()}, answer);
}

void Link::send(Prepare& effect) {
  wire::Frame frame;
  wire::Prepare& prepare = *frame.mutable_prepare();
  to_wire(effect.xid, *prepare.mutable_xid());
  prepare.set_incarnation(effect.incarnation);
  prepare.set_work_items(effect.work_items);
  prepare.set_read_only_vote(effect.read_only_vote);
  TWOFOLD_CHECK(ask(frame, Verb::vote, effect.branch, {}));
}

// The verbs of phase two carry an xid and little else: kPeerFrameBytesMin has room for them.
void Link::send(Commit& effect) {
  wire::Frame frame;
  to_wire(effect.xid, *frame.mutable_commit()->mutable_xid());
  frame.mutable_commit()->set_awaited(effect.awaited);
  frame.mutable_commit()->set_one_phase(effect.one_phase);
  frame.mutable_commit()->set_incarnation(effect.incarnation);
  frame.mutable_commit()->set_work_items(effect.work_items);
  const Verb verb = effect.one_phase ? Verb::commit_one_phase : Verb::commit;
  TWOFOLD_CHECK(ask(frame, verb, effect.branch, std::move(effect.xid)));
}

void Link::send(Rollback& effect) {
  wire::Frame frame;
  to_wire(effect.xid, *frame.mutable_rollback()->mutable_xid());
  TWOFOLD_CHECK(ask(frame, Verb::rollback, effect.branch, std::move(effect.xid)));
}

void Link::send(Release& effect) {
  wire::Frame frame;
  to_wire(effect.xid, *frame.mutable_release()->mutable_xid());
  TWOFOLD_CHECK(ask(frame, Verb::release, effect.branch, std::move(effect.xid)));
}

void Link::send(Forget& effect) {
  wire::Frame frame;
  to_wire(effect.xid, *frame.mutable_forget()->mutable_xid());
  TWOFOLD_CHECK(ask(frame, Verb::forget, effect.branch, std::move(effect.xid)));
}

void Link::send(AskOutcome& effect) {
  wire::Frame frame;
  wire::AskOutcome& question = *frame.mutable_ask_outcome();
  to_wire(effect.xid, *question.mutable_xid());
  question.set_store_id(effect.store_id);
  TWOFOLD_CHECK(ask(frame, Verb::evidence, effect.branch, std::move(effect.xid)));
}

void Link::send(SendMark& effect) {
  if (!connection_) return;
  wire::Frame frame;
  to_wire(effect.low_water, *frame.mutable_mark()->mutable_low_water());
  connection_->send(frame);
}

void Link::send(ListInDoubt&) {
  if (!connection_) return;
  scan_ = {};  // an answer to an abandoned scan finds another number awaited, and is passed over
  scan_timer_.expires_after(options_.scan_time_max);
  scan_timer_.async_wait(while_alive([this](const boost::system::error_code& cancelled) {
    if (cancelled || scan_.request == 0) return;
    spdlog::warn("{}: listing branches in doubt took over {} ms; it counts as failed",
                 options_.name, options_.scan_time_max.count());
    end_scan(false);
  }));
  ask_batch(true);
}

void Link::ask_batch(bool start) {
  wire::Frame frame;
  frame.mutable_recover()->set_start(start);
  frame.mutable_recover()->set_batch(
      std::min(kScanBatch, options_.hello.frame_bytes_max() / kListedBytesMax));
  TWOFOLD_CHECK(ask(frame, Verb::list, {}, {}));
  scan_.request = last_request_;
}

void Link::flush_blocking() {
  if (connection_) connection_->flush_blocking();
}

// ---- answers
// ---------------------------------------------------------------------------------------

void Link::on_frame(wire::Frame& frame) {
  switch (frame.body_case()) {
    case wire::Frame::kHeartbeat: return;
    case wire::Frame::kBranchAnswer:
    case wire::Frame::kRecoverAnswer:
    case wire::Frame::kEvidence: return on_answer(frame);
    case wire::Frame::kFailure: return on_failure(frame);
    case wire::Frame::kWaits: return on_waits(frame.waits());
    default: return broken("it sent a message that no resource manager sends");
  }
}

void Link::on_answer(wire::Frame& frame) {
  auto found = asked_.find(frame.request());
  if (found == asked_.end()) {
    return broken("it answered request " + std::to_string(frame.request()) + ", which is not open");
  }
  Asked asked = std::move(found->second);
  asked_.erase(found);
  if (asked.verb == Verb::list) {
    if (!frame.has_recover_answer()) return broken("it answered Recover with another message");
    return on_recover_answer(frame.request(), *frame.mutable_recover_answer());
  }
  ++branch_frames_;
  if (asked.verb == Verb::evidence) {
    if (!frame.has_evidence()) return broken("it answered AskOutcome with another message");
    return on_evidence(asked, frame.evidence());
  }
  if (!frame.has_branch_answer()) return broken("it answered a branch's verb with another message");
  on_branch_answer(std::move(asked), *frame.mutable_branch_answer());
}

// A request that could not be answered. The core needs an answer all the same: an error of the
// resource manager, a scan that failed, or evidence that cannot be had now.
void Link::on_failure(wire::Frame& frame) {
  const wire::Failure& failure = frame.failure();
  if (frame.request() == 0) return;  // it ends the connection: lost() is told its text
  auto found = asked_.find(frame.request());
  if (found == asked_.end()) return broken("it failed a request that is not open");
  spdlog::warn("{}: a request failed: {}", options_.name, failure.text());
  Asked asked = std::move(found->second);
  asked_.erase(found);
  if (asked.verb == Verb::list) {
    if (frame.request() == scan_.request) end_scan(false);
    return;
  }
  if (asked.verb == Verb::evidence) {
    return driver_.post(OutcomeTold{options_.id, asked.branch, OutcomeTold::Evidence::busy});
  }
  wire::BranchAnswer answer;
  answer.set_code(static_cast<std::int32_t>(Xa::er_rmerr));
  answer.set_text(failure.text());
  on_branch_answer(std::move(asked), answer);
}

void Link::on_branch_answer(Asked asked, wire::BranchAnswer& answer) {
  const auto round_trip = static_cast<std::uint64_t>((monotonic_now() - asked.sent).count());
  using Ack = Acknowledged::Verb;
  Ack verb = Ack::commit;
  switch (asked.verb) {
    case Verb::work: {
      auto event = answer_event<WorkDone>(answer, options_.id, options_.name);
      event.branch = asked.branch;
      return driver_.post(std::move(event));
    }
    case Verb::vote: {
      vote_us_.record(round_trip);
      auto event = answer_event<Voted>(answer, options_.id, options_.name);
      event.branch = asked.branch;
      return driver_.post(std::move(event));
    }
    case Verb::commit_one_phase: verb = Ack::commit_one_phase; break;
    case Verb::commit: verb = Ack::commit; break;
    case Verb::rollback: verb = Ack::rollback; break;
    case Verb::release: verb = Ack::release; break;
    case Verb::forget: verb = Ack::forget; break;
    case Verb::list:
    case Verb::evidence: TWOFOLD_CHECK(!"a branch's verb");
  }
  if (verb == Ack::commit || verb == Ack::commit_one_phase) commit_us_.record(round_trip);
  auto event = answer_event<Acknowledged>(answer, options_.id, options_.name);
  event.branch = asked.branch;
  event.xid = std::move(asked.xid);
  event.verb = verb;
  driver_.post(std::move(event));
}

// Entries that can be read are handed on even if others cannot: what is listed is in doubt, and
// only what is not listed needs a complete scan to mean anything (rule 14).
void Link::on_recover_answer(std::uint64_t request, wire::RecoverAnswer& answer) {
  if (request != scan_.request) return;  // of an abandoned scan
  for (const wire::RecoveredBranch& entry : answer.branches()) {
    Result<Xid> xid = from_wire(entry.xid());
    if (xid) {
      const Xa ended = static_cast<Xa>(entry.heuristic());
      scan_.branches.push_back(
          {std::move(*xid), entry.busy(), is_heuristic(ended) ? ended : Xa::ok});
      continue;
    }
    scan_.whole = false;
    if (!std::exchange(malformed_told_, true)) {
      spdlog::error(
          "{}: it lists a branch whose xid cannot be read ({}); its scans count as incomplete "
          "until that "
          "is put right there",
          options_.name, xid.error().message);
    }
  }
  if (answer.end()) return end_scan(scan_.whole);
  if (scan_.branches.size() < kScanEntriesMax) return ask_batch(false);
  spdlog::error("{}: it lists more than {} branches in doubt; the scan counts as failed",
                options_.name, kScanEntriesMax);
  end_scan(false);
}

void Link::end_scan(bool complete) {
  scan_timer_.cancel();
  driver_.post(InDoubtListed{options_.id, complete, std::move(scan_.branches)});
  scan_ = {};
}

void Link::on_evidence(const Asked& asked, const wire::Evidence& evidence) {
  driver_.post(OutcomeTold{options_.id, asked.branch, from_wire_evidence(evidence.kind())});
}

// Between transactions of this log: others are not this coordinator's to judge.
void Link::on_waits(const wire::Waits& waits) {
  const auto own = [this](const wire::Xid& xid) -> std::optional<TxnId> {
    const auto gtrid = Gtrid::decode(xid.gtrid());
    if (xid.format_id() != kFormatId || !gtrid || gtrid->log_id.value != options_.hello.log_id() ||
        gtrid->node != options_.hello.node()) {
      return std::nullopt;
    }
    return gtrid->txn_id();
  };
  WaitsReported event{options_.id, {}};
  for (const wire::Waits::Wait& wait : waits.waits()) {
    const auto waiter = own(wait.waiter());
    const auto holder = own(wait.holder());
    if (waiter && holder) event.waits.push_back({*waiter, *holder});
  }
  driver_.post(std::move(event));
}

void Link::broken(const std::string& what) {
  spdlog::error("{}: {}; the connection is ended", options_.name, what);
  connection_->fail(wire::FAILURE_UNKNOWN_MESSAGE, what);
}

// ---- what it did
// -----------------------------------------------------------------------------------

Connection::Counters Link::traffic() const {
  Connection::Counters sum = earlier_traffic_;
  if (connection_) add(sum, connection_->counters());
  return sum;
}

void Link::add_stats(wire::StatsAnswer& stats) const {
  add_text(stats, options_.name + ".link", state_);
  add_number(stats, options_.name + ".sessions", session_);
  add_traffic(stats, options_.name, traffic());
  add_histogram(stats, options_.name + ".vote_us", vote_us_);
  add_histogram(stats, options_.name + ".commit_us", commit_us_);
}

}  // namespace twofold::coordinator
