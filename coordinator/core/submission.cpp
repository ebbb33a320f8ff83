// What clients ask for: to carry out a submission, to tell an outcome, to shut down.
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

namespace {

constexpr std::size_t kRequestIdBytesMax = 128;

// FNV-1a, 64 bits. It is kept in the log: never change it.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325u;
  void add(std::uint8_t byte) { value = (value ^ byte) * 0x100000001b3u; }
  void add(std::string_view bytes) {
    for (std::uint64_t size = bytes.size(), shift = 0; shift < 64; shift += 8) {
      add(static_cast<std::uint8_t>(size >> shift));
    }
    for (const char byte : bytes) add(static_cast<std::uint8_t>(byte));
  }
};

Outcome told(Verdict verdict, Reason reason, std::string detail) {
  Outcome outcome;
  outcome.verdict = verdict;
  outcome.reason = reason;
  outcome.detail = std::move(detail);
  return outcome;
}

}  // namespace

std::uint64_t payload_hash(const std::vector<SubmittedBranch>& branches) {
  Hash hash;
  for (const SubmittedBranch& branch : branches) {
    hash.add(branch.rm);
    hash.add(branch.work);
  }
  return hash.value;
}

// ---- submissions --------------------------------------------------------------------------------

void Coordinator::Impl::on(Submit& event) {
  ++counts_.submitted;
  if (event.request_id.size() > kRequestIdBytesMax) {
    return reject(event.requester, Reason::invalid,
                  "request id of " + std::to_string(event.request_id.size()) +
                      " bytes: use one of at most 128 bytes");
  }
  const std::uint64_t hash = event.request_id.empty() ? 0 : payload_hash(event.branches);
  if (!event.request_id.empty() && answer_known(event, hash)) return;
  if (auto text = malformed(event)) {
    return reject(event.requester, Reason::invalid, std::move(*text));
  }
  if (!may_begin(event.requester)) return;
  if (const ResourceManager* rm = away(event)) {
    ++counts_.aborted;
    return reply(event.requester, told(Verdict::aborted, Reason::unavailable,
                                       why_not(*rm) + ": nothing was sent; try again"));
  }
  begin(event, hash);
}

// Or else it has been answered.
bool Coordinator::Impl::may_begin(Requester requester) {
  if (shutting_down_) {
    reject(requester, Reason::shutdown,
           "the coordinator is shutting down: try again when it is back");
    return false;
  }
  if (live_.size() >= options_.transactions_max) {
    reject(requester, Reason::overload,
           "transactions_max (" + std::to_string(options_.transactions_max) +
               ") transactions are open: try again later, or raise the limit");
    return false;
  }
  if (!room_) {
    reject(requester, Reason::space,
           "the decision log is nearly full: try again later, or give it a larger map");
    return false;
  }
  return true;
}

// Rule 7. True: answered, or joined.
bool Coordinator::Impl::answer_known(const Submit& event, std::uint64_t hash) {
  const auto mismatch = [&] {
    reject(event.requester, Reason::mismatch,
           "request id \"" + event.request_id +
               "\" was used before with another payload: use a new one for other work");
  };
  const auto running = live_requests_.find(event.request_id);
  if (running != live_requests_.end()) {
    Transaction& txn = *live(running->second);
    if (txn.request.payload_hash != hash) return mismatch(), true;
    return join(txn, {event.requester, event.reply_at_end, true, std::nullopt}), true;
  }
  const auto kept = outcomes_.find_request(event.request_id);
  if (kept && !TWOFOLD_PLANTED(request_run_twice)) {
    if (kept->second->request.payload_hash != hash) return mismatch(), true;
    return reply(event.requester, outcome_of(kept->first, *kept->second)), true;
  }
  if (!outcomes_.expired(event.known) || TWOFOLD_PLANTED(known_id_ignored)) return false;
  reply(event.requester,
        told(Verdict::expired, Reason::none,
             "request id \"" + event.request_id +
                 "\" was first sent before what this coordinator still remembers (floor " +
                 to_text(outcomes_.floor()) + "): look at the data before sending it anew"));
  return true;
}

std::optional<std::string> Coordinator::Impl::malformed(const Submit& event) const {
  if (event.branches.empty()) return "no branches: name at least one resource manager";
  if (event.branches.size() > options_.branches_max) {
    return std::to_string(event.branches.size()) + " branches: at most branches_max (" +
           std::to_string(options_.branches_max) + ") are allowed";
  }
  std::vector<bool> named(rms_.size());
  for (const SubmittedBranch& branch : event.branches) {
    const auto found = rm_ids_.find(branch.rm);
    if (found == rm_ids_.end()) {
      return "unknown resource manager \"" + branch.rm + "\": see the coordinator's configuration";
    }
    if (named[found->second]) {  // rule 12: the two could wait for each other
      return "two branches at " + branch.rm + ": put the work in one branch";
    }
    named[found->second] = true;
  }
  return std::nullopt;
}

// The first resource manager of a well-formed submission where nothing can begin.
const Coordinator::Impl::ResourceManager* Coordinator::Impl::away(const Submit& event) const {
  for (const SubmittedBranch& branch : event.branches) {
    const ResourceManager& rm = rms_[rm_ids_.at(branch.rm)];
    if (!takes_new(rm)) return &rm;
  }
  return nullptr;
}

Transaction& Coordinator::Impl::create(Duration timeout, Duration age) {
  const TxnId id{epoch_.current.number, ++sequence_};
  Transaction& txn = live_.emplace_hint(live_.end(), id, Transaction{})->second;
  txn.id = id;
  txn.gtrid =
      Gtrid{epoch_.log_id, id.epoch, epoch_.current.nonce, id.sequence, epoch_.node}.encode();
  txn.started = now_;
  if (timeout <= Duration{0}) timeout = options_.timeout_default;
  txn.deadline = now_ + std::min(timeout, options_.timeout_max);
  txn.age = age;
  txn.phases.reserve(6);
  return txn;
}

void Coordinator::Impl::add_branch(Transaction& txn, RmId rm, std::string work) {
  Branch& branch = txn.branches.emplace_back();
  branch.rm = rm;
  branch.index = static_cast<std::uint16_t>(txn.branches.size() - 1);
  branch.bqual = Bqual{branch.index, rms_[rm].name}.encode();
  branch.store_id = rms_[rm].store_id;
  branch.payload = std::move(work);
}

void Coordinator::Impl::begin(Submit& event, std::uint64_t hash) {
  Transaction& txn = create(event.timeout, event.age);
  txn.request = {std::move(event.request_id), hash};
  txn.waiters.push_back({event.requester, event.reply_at_end, true, std::nullopt});
  txn.branches.reserve(event.branches.size());
  for (SubmittedBranch& branch : event.branches) {
    add_branch(txn, rm_ids_.at(branch.rm), std::move(branch.work));
  }
  if (!txn.request.id.empty()) live_requests_.emplace(txn.request.id, txn.id);
  start_branches(txn);
}

void Coordinator::Impl::reject(Requester requester, Reason reason, std::string detail) {
  ++counts_.rejected;
  reply(requester, told(Verdict::rejected, reason, std::move(detail)));
}

// ---- replies ------------------------------------------------------------------------------------

void Coordinator::Impl::reply(Requester requester, Outcome outcome) {
  emit(Reply{requester, std::move(outcome)});
}

void Coordinator::Impl::join(Transaction& txn, Waiter waiter) {
  txn.waiters.push_back(waiter);
  if (txn.verdict != Verdict::pending) tell(txn, false);
}

void Coordinator::Impl::tell(Transaction& txn, bool ended) {
  TWOFOLD_CHECK(txn.verdict != Verdict::pending);
  const auto told_now = [ended](const Waiter& waiter) { return ended || !waiter.at_end; };
  for (const Waiter& waiter : txn.waiters) {
    if (!told_now(waiter)) continue;
    Outcome outcome = outcome_of(txn, ended);
    if (waiter.submitted && txn.verdict == Verdict::committed) {  // results go with the first reply
      for (Branch& branch : txn.branches) {
        if (branch.payload.empty()) continue;
        outcome.results.push_back({rm_name(branch), std::exchange(branch.payload, {})});
      }
    }
    reply(waiter.requester, std::move(outcome));
  }
  std::erase_if(txn.waiters, told_now);
}

Outcome Coordinator::Impl::outcome_of(const Transaction& txn, bool ended) const {
  Outcome outcome = told(txn.verdict, txn.reason, txn.detail);
  outcome.gtrid = txn.gtrid;
  if (txn.verdict != Verdict::pending) outcome.refusals = txn.refusals;  // rule 7: not before
  outcome.ended = ended;
  outcome.heuristic = txn.heuristic;
  return outcome;
}

Outcome Coordinator::Impl::outcome_of(TxnId id, const KeptOutcome& kept) const {
  Outcome outcome = kept.refused ? told(Verdict::aborted, Reason::refused, {})
                                 : told(Verdict::committed, Reason::none, {});
  if (!kept.refusals.empty()) outcome.detail = to_text(kept.refusals.front());
  outcome.gtrid = kept.gtrid;
  outcome.refusals = kept.refusals;
  outcome.ended = true;
  outcome.heuristic = heuristics_.contains(id);
  return outcome;
}

// ---- outcomes -----------------------------------------------------------------------------------

void Coordinator::Impl::on(OutcomeAsked& event) {
  if (event.request_id.empty()) return ask_gtrid(event);
  ask_request(event);
}

// Rule 8, in its order.
void Coordinator::Impl::ask_gtrid(const OutcomeAsked& event) {
  const auto gtrid = Gtrid::decode(event.gtrid);
  if (!gtrid || !own_log(*gtrid)) {
    return reply(event.requester,
                 told(Verdict::unknown, Reason::none,
                      "this transaction belongs to another log: ask the coordinator that ran it"));
  }
  const TxnId id = gtrid->txn_id();
  Transaction* txn = live(id);
  if (txn && txn->gtrid == event.gtrid) {
    const bool at_end = event.when == OutcomeAsked::When::at_end;
    if (event.when != OutcomeAsked::When::now)
      return join(*txn, {event.requester, at_end, false, std::nullopt});
    return reply(event.requester, outcome_of(*txn, false));
  }
  const KeptOutcome* kept = outcomes_.find(id);
  if (kept && kept->gtrid == event.gtrid) return reply(event.requester, outcome_of(id, *kept));
  reply(event.requester, outcome_of_unknown(event.gtrid, *gtrid));
}

// Neither live nor kept, of this log.
Outcome Coordinator::Impl::outcome_of_unknown(std::string_view gtrid, const Gtrid& parts) const {
  const TxnId id = parts.txn_id();
  Outcome outcome;
  if (!recorded(parts)) {
    outcome = told(Verdict::unknown, Reason::none,
                   "this log did not record epoch " + std::to_string(id.epoch) +
                       " with that nonce: was it restored from a backup?");
  } else if (!issued(parts)) {
    outcome = told(Verdict::not_found, Reason::none, "no such transaction was ever begun");
  } else if (id <= outcomes_.floor()) {
    outcome = told(Verdict::expired, Reason::none,
                   "too old: outcomes up to " + to_text(outcomes_.floor()) + " are forgotten");
  } else if (const Transaction* ended = trace(id)) {
    outcome = outcome_of(*ended, true);
  } else if (decision_may_be_lost(parts)) {
    outcome = told(Verdict::unknown, Reason::none,
                   "this log was restored from a backup, which may lack the decision");
  } else {  // presumed abort (rule 4)
    outcome = told(Verdict::aborted, Reason::rolled_back,
                   "rolled back: the log has no decision of it (presumed abort)");
    outcome.ended = true;
    outcome.heuristic = heuristics_.contains(id);
  }
  outcome.gtrid = gtrid;
  return outcome;
}

void Coordinator::Impl::ask_request(const OutcomeAsked& event) {
  const auto running = live_requests_.find(event.request_id);
  if (running != live_requests_.end()) {
    Transaction& txn = *live(running->second);
    const bool at_end = event.when == OutcomeAsked::When::at_end;
    if (event.when != OutcomeAsked::When::now)
      return join(txn, {event.requester, at_end, false, std::nullopt});
    return reply(event.requester, outcome_of(txn, false));
  }
  if (const auto kept = outcomes_.find_request(event.request_id)) {
    return reply(event.requester, outcome_of(kept->first, *kept->second));
  }
  const bool expired = outcomes_.expired(event.known);
  reply(event.requester,
        told(expired ? Verdict::expired : Verdict::not_found, Reason::none,
             expired ? "request id \"" + event.request_id +
                           "\" is not remembered, and may be too old: outcomes up to " +
                           to_text(outcomes_.floor()) + " are forgotten"
                     : "request id \"" + event.request_id +
                           "\" has neither committed nor been refused: it may be sent again"));
}

// ---- shutdown -----------------------------------------------------------------------------------

// Rule 25.
void Coordinator::Impl::on(Shutdown& event) {
  shutting_down_ = true;
  std::vector<TxnId> ids;  // aborting may end a transaction
  for (const auto& [id, txn] : live_) ids.push_back(id);
  for (const TxnId id : ids) {
    Transaction& txn = *live(id);
    const bool too_far = TWOFOLD_PLANTED(shutdown_after_persist) && txn.phase == Phase::deciding;
    if (!undecided(txn) && !too_far) continue;  // what becomes of it is no longer ours to say
    abort(txn, Reason::shutdown, "the coordinator is shutting down: try again when it is back");
  }
  if (!event.final) return;
  for (auto& [id, txn] : live_) {
    Outcome outcome = outcome_of(txn, false);
    if (txn.verdict == Verdict::pending) {
      outcome.verdict = Verdict::unknown;
      outcome.reason = Reason::shutdown;
      outcome.detail = "the coordinator shut down before the outcome was known: ask again";
    }
    for (const Waiter& waiter : txn.waiters) reply(waiter.requester, outcome);
    txn.waiters.clear();
  }
}

}  // namespace twofold::coordinator
