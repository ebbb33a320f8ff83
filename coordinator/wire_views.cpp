#include "coordinator/wire_views.h"

#include <algorithm>
#include <string>

#include "coordinator/driver.h"
#include "protocol/convert.h"

namespace twofold::coordinator {

WallClock::WallClock()
    : offset_(std::chrono::duration_cast<Duration>(
                  std::chrono::system_clock::now().time_since_epoch()) -
              monotonic_now().time_since_epoch()) {}

void to_wire(const TransactionView& view, const WallClock& wall, Time now,
             wire::TransactionView& out) {
  out.set_gtrid(view.gtrid);
  out.set_request_id(view.request_id);
  out.set_phase(std::string(name(view.phase)));
  to_wire(view.outcome, *out.mutable_outcome());
  for (const BranchView& branch : view.branches) {
    wire::BranchView& shown = *out.add_branches();
    shown.set_rm(branch.rm);
    to_wire(branch.xid, *shown.mutable_xid());
    shown.set_state(std::string(name(branch.state)));
    if (branch.vote) shown.set_vote(static_cast<std::int32_t>(*branch.vote));
  }
  for (const auto& [phase, entered] : view.phases) {
    wire::PhaseView& shown = *out.add_phases();
    shown.set_phase(std::string(name(phase)));
    shown.set_wall_us(wall.us_since_1970(entered));
  }
  if (view.started == Time{}) return;  // nobody knows any more
  const auto age = std::chrono::floor<std::chrono::milliseconds>(now - view.started).count();
  out.set_age_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(age, 0)));
}

}  // namespace twofold::coordinator
