// Who takes part. Presumed abort leaves no trace in the log of a branch that is in doubt and
// undecided, so the log remembers where branches may be: each resource manager with its store, from
// before its first branch until it is drained (docs/decisions/0012).
#include <algorithm>
#include <utility>

#include "coordinator/core/impl.h"

namespace twofold::coordinator {
namespace {

using State = Participant::State;

constexpr std::size_t kListedMax = 20;

std::string hex(std::uint64_t number) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

// For a person, who asks `twofold show` for more.
std::string some_of(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size() && i < kListedMax; ++i) {
    text += (i == 0 ? "" : ", ") + items[i];
  }
  if (items.size() <= kListedMax) return text;
  return text + " and " + std::to_string(items.size() - kListedMax) + " more";
}

}  // namespace

std::string_view name(ParticipantView::Standing standing) {
  using Standing = ParticipantView::Standing;
  switch (standing) {
    case Standing::away: return "away";
    case Standing::recording: return "recording";
    case Standing::barred: return "barred";
    case Standing::serving: return "serving";
  }
  return "?";
}

// ---- the start ----------------------------------------------------------------------------------

std::optional<std::string> left_out(const Recovered& recovered,
                                    const std::vector<std::string>& resource_managers) {
  const auto configured = [&](const std::string& name) {
    return std::find(resource_managers.begin(), resource_managers.end(), name) !=
           resource_managers.end();
  };
  std::vector<std::string> names;
  std::vector<std::string> open;
  const auto leave_out = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const auto look = [&](TxnId id, const BranchRecord& branch) {
    const auto bqual = Bqual::decode(branch.xid.bqual);
    if (!bqual || configured(bqual->rm)) return;
    leave_out(bqual->rm);
    open.push_back(to_text(id) + " at " + bqual->rm);
  };
  for (const Participant& one : recovered.participants) {
    if (!configured(one.name) && one.state != State::drained) leave_out(one.name);
  }
  for (const CommitRecord& record : recovered.commits) {
    for (const BranchRecord& branch : record.branches) look(record.id, branch);
  }
  for (const IntentRecord& record : recovered.intents) look(record.id, record.branch);
  if (names.empty()) return std::nullopt;

  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return "the configuration leaves out " + all +
         ", which may hold branches of this log: not drained yet. Put it back, start, and drain "
         "it: twofold drain " +
         names.front() + (open.empty() ? std::string{} : ". Known to be open: " + some_of(open));
}

// ---- links --------------------------------------------------------------------------------------

// What must be recorded first is; the session then waits for that record.
bool Coordinator::Impl::admit(const LinkUp& event) {
  ResourceManager& rm = rms_[event.rm];
  rm.barred = false;
  const bool accepted = std::exchange(rm.accept_store, false);  // for one session, whoever answers
  if (rm.store_id != event.store_id) {
    const bool may_hold_branches = rm.store_id != 0 && rm.state != State::drained;
    if (may_hold_branches && !accepted) {
      bar(event.rm, event.store_id);
      return false;
    }
    if (may_hold_branches) {
      alarm(rm.name + "'s store " + hex(rm.store_id) +
            " was given up by the operator: " + hex(event.store_id) + " takes its place");
    }
    rm.store_id = event.store_id;
    if (rm.state == State::drained) rm.state = State::active;
    record_participant(event.rm);
    rm.recording_store = rm.recording;
  }
  if (!rm.recording_store) return true;
  rm.arriving = event;
  return false;
}

// Else rule 16 would find no evidence there of what the other store still holds.
void Coordinator::Impl::bar(RmId id, std::uint64_t store_id) {
  ResourceManager& rm = rms_[id];
  rm.barred = true;
  std::vector<std::string> open;
  for (const TxnId txn : open_at(id)) open.push_back(to_text(txn));
  alarm(rm.name + " answers with another store (" + hex(store_id) + ") than the one (" +
        hex(rm.store_id) +
        ") that may hold branches of this log: nothing is sent to it. Bring the former store "
        "back, and drain it before it is replaced: twofold drain " +
        rm.name + ". If it is lost for good, start once with --accept-store " + rm.name +
        (open.empty() ? std::string{} : ". Known to be open: " + some_of(open)));
}

bool Coordinator::Impl::takes_new(const ResourceManager& rm) const {
  return rm.linked && rm.state == State::active && !rm.recording;
}

std::string Coordinator::Impl::why_not(const ResourceManager& rm) const {
  if (rm.barred) return rm.name + " answers with another store than before (see `twofold stats`)";
  if (rm.state != State::active) {
    return rm.name + " is " + (rm.state == State::draining ? "being drained" : "drained");
  }
  return rm.name + (rm.linked ? " is about to serve again" : " is not connected");
}

// ---- the record ---------------------------------------------------------------------------------

void Coordinator::Impl::record_participant(RmId id) {
  ParticipantsRecord record{former_participants_};
  for (const ResourceManager& rm : rms_) {
    if (rm.store_id == 0 && rm.state == State::active) continue;
    record.all.push_back({rm.name, rm.store_id, rm.state});
  }
  std::sort(record.all.begin(), record.all.end(),
            [](const Participant& a, const Participant& b) { return a.name < b.name; });
  rms_[id].recording = persist(std::move(record), true, false, {Pending::Kind::participants, {}});
}

void Coordinator::Impl::participants_recorded(std::uint64_t ticket) {
  for (ResourceManager& rm : rms_) {
    if (rm.recording == ticket) {
      rm.recording.reset();
      const auto id = static_cast<RmId>(&rm - rms_.data());
      for (const Requester asked : std::exchange(rm.drain_asked, {})) emit(DrainTold{asked, id});
    }
    if (rm.recording_store != ticket) continue;
    rm.recording_store.reset();
    if (const auto arriving = std::exchange(rm.arriving, std::nullopt)) link_up(*arriving);
  }
}

// ---- draining -----------------------------------------------------------------------------------

// The live transactions with a branch there. Also where that branch has ended, and others have not:
// their commit record names it, and recovery would look for it there.
std::vector<TxnId> Coordinator::Impl::open_at(RmId rm) const {
  std::vector<TxnId> open;
  for (const auto& [id, txn] : live_) {
    const bool there = std::any_of(txn.branches.begin(), txn.branches.end(),
                                   [rm](const Branch& branch) { return branch.rm == rm; });
    if (there) open.push_back(id);
  }
  return open;
}

// Who waits for it asks again and again, and by that has it looked at.
void Coordinator::Impl::on(Drain& event) {
  ResourceManager& rm = rms_[event.rm];
  switch (event.what) {
    case Drain::What::begin: begin_draining(event.rm); break;
    case Drain::What::cancel:
      if (rm.state == State::active) break;
      rm.state = State::active;
      record_participant(event.rm);
      break;
    case Drain::What::ask: break;
  }
  const bool settling = rm.state == State::draining && rm.linked && rm.orphans.empty();
  if (settling && open_at(event.rm).empty()) want_scan(event.rm);
  if (!rm.recording) return emit(DrainTold{event.requester, event.rm});
  rm.drain_asked.push_back(event.requester);
}

void Coordinator::Impl::begin_draining(RmId id) {
  ResourceManager& rm = rms_[id];
  if (rm.state != State::active) return;
  // A restored log may have seen it and not know that any more.
  const bool never_seen = rm.store_id == 0 && open_at(id).empty() && epoch_.former.empty();
  rm.state = never_seen ? State::drained : State::draining;
  rm.draining_since = clock_.now();
  rm.listed = 0;  // by an earlier scan, and out of date
  record_participant(id);
}

// The scan names none of ours, and began when nothing new could begin there any more and the last
// branch had ended. What had ended by then had ended there too, or the scan would name it: a
// session's verbs run in order, and a lost session's end before the next one's scan (rule 15). An
// earlier scan may lack a branch whose rollback, which is not forced, came during that scan. An
// orphan's end is one that only its answer tells to be durable.
void Coordinator::Impl::settle_drained(const InDoubtListed& complete, std::uint64_t scan) {
  ResourceManager& rm = rms_[complete.rm];
  if (scan <= rm.draining_since) return;
  rm.listed = static_cast<std::size_t>(
      std::count_if(complete.branches.begin(), complete.branches.end(),
                    [&](const auto& listed) { return of_this_node(listed.xid).has_value(); }));
  if (rm.state == State::drained && rm.listed > 0) {
    alarm(rm.name + " was drained, and lists branches of this coordinator all the same (" +
          std::to_string(rm.listed) +
          "): a copy of its data was put back, or another coordinator runs under this node's name. "
          "It is being drained again; see `twofold in-doubt`");
    rm.state = State::draining;
    rm.draining_since = clock_.now();
    return record_participant(complete.rm);
  }
  if (rm.state != State::draining) return;
  if (rm.listed > 0 || !rm.orphans.empty() || !open_at(complete.rm).empty()) return;
  if (scan <= rm.last_end) return;
  rm.state = State::drained;
  record_participant(complete.rm);
}

std::optional<RmId> Coordinator::Impl::find_participant(std::string_view name) const {
  const auto found = rm_ids_.find(name);
  return found == rm_ids_.end() ? std::nullopt : std::optional<RmId>(found->second);
}

ParticipantView Coordinator::Impl::participant(RmId id, bool with_open) const {
  using Standing = ParticipantView::Standing;
  const ResourceManager& rm = rms_[id];
  ParticipantView view;
  view.standing = rm.linked     ? Standing::serving
                  : rm.barred   ? Standing::barred
                  : rm.arriving ? Standing::recording
                                : Standing::away;
  view.state = rm.state == State::drained && rm.recording ? State::draining : rm.state;
  if (with_open) view.open = open_at(id);
  view.listed = rm.listed;
  return view;
}

}  // namespace twofold::coordinator
