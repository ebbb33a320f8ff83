#include "resource_manager/inspection.h"

#include <algorithm>
#include <map>
#include <optional>

#include "protocol/convert.h"
#include "protocol/utf8.h"
#include "resource_manager/stats_view.h"

namespace twofold::resource_manager {
namespace {

constexpr std::size_t kLockEntriesDefault = 1'000;
constexpr std::size_t kLockEntriesMax = 100'000;

std::uint64_t to_ms(Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return ms < 0 ? 0 : static_cast<std::uint64_t>(ms);
}

// Who the owners of locks are; each is looked up once.
class Owners {
 public:
  Owners(const Branches& branches, Time now) : branches_(branches), now_(now) {}

  void fill(const LockTable::Held& held, wire::LockHolder& out) {
    auto [known, added] = known_.try_emplace(held.owner);
    if (added) known->second = branches_.view(held.owner, now_);
    if (const std::optional<BranchView>& view = known->second) {
      to_wire(view->xid, *out.mutable_xid());
      out.set_prepared(view->state == BranchState::prepared ||
                       view->state == BranchState::committing);
    }
    out.set_exclusive(held.mode == LockMode::exclusive);
    out.set_age_ms(to_ms(now_ - held.since));
  }

 private:
  const Branches& branches_;
  const Time now_;
  std::map<BranchId, std::optional<BranchView>> known_;
};

}  // namespace

wire::LocksAnswer locks_answer(const Branches& branches, const wire::Locks& question, Time now) {
  std::size_t limit = question.entries_max() == 0 ? kLockEntriesDefault : question.entries_max();
  limit = std::min(limit, kLockEntriesMax);
  wire::LocksAnswer answer;
  Owners owners(branches, now);
  for (const LockTable::Entry& entry : branches.locks().entries(limit)) {
    wire::LockEntry& out = *answer.add_entries();
    out.set_key(std::string(entry.key));
    for (const auto& holder : entry.holders) owners.fill(holder, *out.add_holders());
    for (const auto& waiter : entry.waiters) owners.fill(waiter, *out.add_waiters());
  }
  answer.set_truncated(branches.locks().keys() > limit);
  return answer;
}

wire::InDoubtAnswer in_doubt_answer(const Branches& branches, Time now) {
  wire::InDoubtAnswer answer;
  for (const BranchView& view : branches.in_doubt(now)) {
    wire::InDoubtBranch& out = *answer.add_branches();
    to_wire(view.xid, *out.mutable_xid());
    const std::optional<Gtrid> gtrid = Gtrid::decode(view.xid.gtrid);
    if (gtrid && is_utf8(gtrid->node)) out.set_node(gtrid->node);
    out.set_age_ms(to_ms(view.age));
    for (const LockRequest& lock : view.locks) out.add_keys(lock.key);
  }
  return answer;
}

wire::StatsAnswer stats_answer(const Engine& engine, const Adapter& adapter) {
  const Branches& branches = engine.branches();
  const Counts counts = branches.counts();
  wire::StatsAnswer stats;
  add_number(stats, "started", counts.started);
  add_number(stats, "committed", counts.committed);
  add_number(stats, "committed_one_phase", counts.committed_one_phase);
  add_number(stats, "rolled_back", counts.rolled_back);
  add_number(stats, "read_only", counts.read_only);
  add_number(stats, "voted_yes", counts.voted_yes);
  add_number(stats, "voted_no", counts.voted_no);
  add_number(stats, "lock_timeouts", counts.lock_timeouts);
  add_number(stats, "deadlocks", counts.deadlocks);
  add_number(stats, "fenced", counts.fenced);
  add_number(stats, "branches", counts.branches);
  add_number(stats, "prepared", counts.prepared);
  add_number(stats, "waiting", counts.waiting);
  add_number(stats, "locked_keys", branches.locks().keys());
  add_number(stats, "alarms", engine.alarms());
  adapter.add_stats(stats);
  add_histogram(stats, "lock_hold_us", branches.locks().hold_us());
  add_histogram(stats, "lock_wait_us", branches.locks().wait_us());
  return stats;
}

}  // namespace twofold::resource_manager
