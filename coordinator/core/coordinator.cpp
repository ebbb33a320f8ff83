#include "coordinator/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"
#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

std::string_view name(Phase phase) {
  switch (phase) {
    case Phase::active: return "active";
    case Phase::intending: return "intending";
    case Phase::working: return "working";
    case Phase::preparing: return "preparing";
    case Phase::releasing: return "releasing";
    case Phase::deciding: return "deciding";
    case Phase::refusing: return "refusing";
    case Phase::one_phase: return "one_phase";
    case Phase::resolving: return "resolving";
    case Phase::committing: return "committing";
    case Phase::aborting: return "aborting";
    case Phase::ended: return "ended";
  }
  return "?";
}

std::string_view name(BranchState state) {
  switch (state) {
    case BranchState::idle: return "idle";
    case BranchState::started: return "started";
    case BranchState::worked: return "worked";
    case BranchState::preparing: return "preparing";
    case BranchState::prepared: return "prepared";
    case BranchState::read_only: return "read_only";
    case BranchState::refused: return "refused";
    case BranchState::ending: return "ending";
    case BranchState::unsure: return "unsure";
    case BranchState::asking: return "asking";
    case BranchState::done: return "done";
  }
  return "?";
}

Coordinator::Coordinator(Options options, Epoch epoch, Recovered recovered, Time now)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(epoch), std::move(recovered),
                                   now)) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;

void Coordinator::step(Event event, Time now, std::vector<Effect>& effects) {
  impl_->step(event, now, effects);
}
std::optional<Time> Coordinator::next_deadline() const {
  return impl_->next_deadline();
}
TxnId Coordinator::newest() const {
  return impl_->newest();
}
TxnId Coordinator::low_water() const {
  return impl_->low_water();
}
TxnId Coordinator::floor() const {
  return impl_->floor();
}
Counts Coordinator::counts() const {
  return impl_->counts();
}
std::vector<TransactionView> Coordinator::list(bool with_ended, std::size_t entries_max) const {
  return impl_->list(with_ended, entries_max);
}
std::optional<TransactionView> Coordinator::show(TxnId id) const {
  return impl_->show(id);
}
std::optional<TransactionView> Coordinator::show_gtrid(std::string_view gtrid) const {
  return impl_->show_gtrid(gtrid);
}
std::optional<TransactionView> Coordinator::show_request(std::string_view request_id) const {
  return impl_->show_request(request_id);
}

ParticipantView Coordinator::participant(RmId rm, bool with_open) const {
  return impl_->participant(rm, with_open);
}
std::optional<RmId> Coordinator::find_participant(std::string_view name) const {
  return impl_->find_participant(name);
}

// ---- steps --------------------------------------------------------------------------------------

void Coordinator::Impl::step(Event& event, Time now, std::vector<Effect>& effects) {
  TWOFOLD_CHECK(effects_ == nullptr);
  now_ = std::max(now_, now);
  effects_ = &effects;
  resume_at_start();
  std::visit([this](auto& one) { on(one); }, event);
  effects_ = nullptr;
}

void Coordinator::Impl::on(Tick&) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    time_out(*live(deadlines_.begin()->second));
  }
  retry_branches();
  scan_periodically();
  if (next_mark_ <= now_) send_marks();
  alarm_oldest();
}

std::optional<Time> Coordinator::Impl::next_deadline() const {
  std::optional<Time> next;
  const auto at = [&next](Time time) { next = next ? std::min(*next, time) : time; };
  if (!startup_alarms_.empty() || !startup_done_.empty()) at(now_);
  if (!deadlines_.empty()) at(deadlines_.begin()->first);
  if (!retries_.empty()) at(retries_.begin()->at);
  const TxnId mark = low_water();
  for (const ResourceManager& rm : rms_) {
    if (!rm.linked) continue;
    if (!rm.scan) at(rm.next_scan);
    if (rm.mark_sent != mark) at(next_mark_);
  }
  if (!live_.empty() && mark_alarmed_ < live_.begin()->first) {
    at(live_.begin()->second.started + options_.mark_alarm);
  }
  return next;
}

void Coordinator::Impl::retry_branches() {
  while (!retries_.empty() && retries_.begin()->at <= now_) {
    const Retry retry = *retries_.begin();
    retries_.erase(retries_.begin());
    const auto [txn, branch] = find(retry.branch);
    if (!txn || branch->retry_at != retry.at) continue;  // settled meanwhile
    branch->retry_at.reset();
    if (branch->state == BranchState::unsure && rms_[branch->rm].linked) {
      end_branch(*txn, *branch, branch->verb);
    }
  }
}

void Coordinator::Impl::scan_periodically() {
  for (RmId rm = 0; rm < rms_.size(); ++rm) {
    if (rms_[rm].linked && !rms_[rm].scan && rms_[rm].next_scan <= now_) scan(rm);
  }
}

TxnId Coordinator::Impl::low_water() const {
  TxnId oldest{newest().epoch, newest().sequence + 1};
  if (TWOFOLD_PLANTED(mark_passes_what_is_open)) return oldest;
  if (!live_.empty()) oldest = std::min(oldest, live_.begin()->first);
  if (!ends_not_durable_.empty()) oldest = std::min(oldest, *ends_not_durable_.begin());
  return oldest;
}

void Coordinator::Impl::send_marks() {
  next_mark_ = now_ + options_.mark_period;
  const TxnId mark = low_water();
  for (RmId rm = 0; rm < rms_.size(); ++rm) {
    if (!rms_[rm].linked || rms_[rm].mark_sent == mark) continue;
    rms_[rm].mark_sent = mark;
    emit(SendMark{rm, mark});
  }
}

void Coordinator::Impl::alarm_oldest() {
  if (live_.empty()) return;
  const Transaction& oldest = live_.begin()->second;
  if (oldest.id <= mark_alarmed_ || oldest.started + options_.mark_alarm > now_) return;
  mark_alarmed_ = oldest.id;
  const auto minutes =
      std::chrono::duration_cast<std::chrono::seconds>(now_ - oldest.started).count();
  alarm("transaction " + gtrid_text(oldest.gtrid) + " has not ended for " +
        std::to_string(minutes) + " s (" + std::string(name(oldest.phase)) +
        "): no resource manager can purge what is newer; `twofold show` tells what it waits for");
}

// ---- shared -------------------------------------------------------------------------------------

std::uint64_t Coordinator::Impl::persist(LogRecord record, bool forced, bool refusable,
                                         Pending pending) {
  const std::uint64_t ticket = ++ticket_;
  pending_.emplace(ticket, pending);
  emit(Persist{ticket, std::move(record), forced, refusable});
  return ticket;
}

void Coordinator::Impl::on(Durable& event) {
  const auto found = pending_.find(event.ticket);
  if (found == pending_.end()) return;
  const Pending pending = found->second;
  pending_.erase(found);
  switch (pending.kind) {
    case Pending::Kind::intent: return intent_durable(*live(pending.id));
    case Pending::Kind::decision: return decided(*live(pending.id));
    case Pending::Kind::refusal: return decided(*live(pending.id));
    case Pending::Kind::heuristic: return heuristic_durable(event.ticket);
    case Pending::Kind::end: ends_not_durable_.erase(pending.id); return purge();
    case Pending::Kind::purge: purging_ = false; return purge();
    case Pending::Kind::participants: return participants_recorded(event.ticket);
  }
}

// Rule 23: only what may still be turned down is.
void Coordinator::Impl::on(Refused& event) {
  const auto found = pending_.find(event.ticket);
  if (found == pending_.end()) return;
  const Pending pending = found->second;
  pending_.erase(found);
  const std::string text = "the decision log has no room: try again later, or give it a larger map";
  Transaction* txn = live(pending.id);
  switch (pending.kind) {
    case Pending::Kind::decision:
      if (TWOFOLD_PLANTED(refused_taken_as_written)) return decided(*txn);
      [[fallthrough]];
    case Pending::Kind::intent:  // nothing was sent and nothing is in the log
    case Pending::Kind::refusal: return abort(*txn, Reason::space, text);
    case Pending::Kind::heuristic:
    case Pending::Kind::end:
    case Pending::Kind::purge:
    case Pending::Kind::participants: TWOFOLD_CHECK(!"a record that must be written was refused");
  }
}

void Coordinator::Impl::enter(Transaction& txn, Phase phase) {
  txn.phase = phase;
  txn.phases.emplace_back(phase, now_);
}

void Coordinator::Impl::alarm(std::string text) {
  ++counts_.alarms;
  emit(Alarm{std::move(text)});
}

Transaction* Coordinator::Impl::live(TxnId id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}
const Transaction* Coordinator::Impl::live(TxnId id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

Coordinator::Impl::Found Coordinator::Impl::find(BranchKey key) {
  Transaction* txn = live(key.id);
  if (!txn) return {};
  for (Branch& branch : txn->branches) {
    if (branch.index == key.index) return {txn, &branch};
  }
  return {};
}

void Coordinator::Impl::unlink_request(const Transaction& txn) {
  const auto found = live_requests_.find(txn.request.id);
  if (found != live_requests_.end() && found->second == txn.id) live_requests_.erase(found);
}

std::string Coordinator::Impl::rm_name(const Branch& branch) const {
  if (branch.rm != kNoRm) return rms_[branch.rm].name;
  const auto bqual = Bqual::decode(branch.bqual);
  return bqual ? bqual->rm : "?";
}

Duration Coordinator::Impl::pause(std::uint32_t attempts) const {
  const Duration doubled = options_.retry_first * (std::uint64_t{1} << std::min(attempts, 20u));
  return std::min(doubled, options_.retry_max);
}

Counts Coordinator::Impl::counts() const {
  Counts counts = counts_;
  counts.live = live_.size();
  counts.outcomes = outcomes_.size();
  counts.heuristics = 0;
  for (const auto& [id, found] : heuristics_) counts.heuristics += found.size();
  return counts;
}

}  // namespace twofold::coordinator
