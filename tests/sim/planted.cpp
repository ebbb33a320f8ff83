#include "tests/sim/planted.h"

#include <algorithm>
#include <array>

namespace twofold {

namespace {
std::string_view on;  // empty: none
}

bool planted(std::string_view bug) {
  return bug == on;
}

namespace sim {

namespace {
constexpr std::array kBugs{
    PlantedBug{"restored_log_presumes_abort", 2, "a restored log presumes abort for all epochs",
               3000},
    PlantedBug{"other_log_presumed_aborted", 2, "a branch of another log is rolled back", 100},
    PlantedBug{"commit_before_durable", 4, "Commit is sent before the decision is durable", 100},
    PlantedBug{"timeout_after_persist", 4, "a timeout aborts after Persist", 100},
    PlantedBug{"vote_before_durable", 4, "a yes vote before the prepared record is durable", 100},
    PlantedBug{"reply_before_durable", 5, "committed is told before the decision is durable", 100},
    PlantedBug{"one_phase_without_intent", 5, "a one-phase commit without its intent", 100},
    PlantedBug{"intent_presumed_aborted", 5, "after a crash an intent counts as aborted", 100},
    PlantedBug{"ended_at_the_first_answer", 6, "a commit is forgotten before all have answered",
               100},
    PlantedBug{"floor_without_scans", 6, "outcomes are purged before all were scanned", 1000},
    PlantedBug{"scan_before_rollbacks_durable", 6, "a scan does not wait for unforced rollbacks",
               20000},
    PlantedBug{"request_run_twice", 7, "a known request id is run again", 100},
    PlantedBug{"known_id_ignored", 7, "a request older than the floor is run again", 100},
    PlantedBug{"older_connection_not_fenced", 7, "a client's older connection is not ended", 6000},
    PlantedBug{"told_ended_at_the_decision", 9, "told that all has ended at the decision", 100},
    PlantedBug{"work_count_ignored", 10, "a vote does not compare the number of works", 1000},
    PlantedBug{"release_not_awaited", 11, "commits before readers say that they held their locks",
               100},
    PlantedBug{"reader_releases_at_its_vote", 11, "a read-only voter releases its locks", 100},
    PlantedBug{"shared_locks_not_retaken", 11, "a restart brings back exclusive locks only", 100},
    PlantedBug{"barging_readers", 12, "readers pass waiting writers", 100},
    PlantedBug{"locks_freed_at_the_vote", 13, "a prepared branch lets go of its locks", 100},
    PlantedBug{"one_phase_releases_early", 13, "a one-phase commit releases before it is durable",
               100},
    PlantedBug{"unlocked_before_it_is_queued", 13, "locks go before the commit is queued", 100},
    PlantedBug{"failed_scan_taken_as_complete", 14, "what a failed scan lacks is taken as absent",
               1000},
    PlantedBug{"commit_records_not_consulted", 14, "a listed branch of a commit is rolled back",
               100},
    PlantedBug{"undecided_rolled_back", 14, "a listed branch of an undecided one is rolled back",
               100},
    PlantedBug{"node_matched_by_prefix", 14, "a node's branches are told by a prefix", 100},
    PlantedBug{"busy_taken_as_absent", 15, "an older session's verb at work is not seen", 100},
    PlantedBug{"nota_on_commit_is_done", 16, "XAER_NOTA on Commit is taken as done", 3000},
    PlantedBug{"heuristic_not_recorded", 17, "a heuristic result is not recorded", 100},
    PlantedBug{"mark_passes_what_is_open", 18, "the low-water mark passes open transactions", 100},
    PlantedBug{"refused_taken_as_written", 23, "Refused is taken as Durable", 100},
    PlantedBug{"shutdown_after_persist", 25, "a shutdown aborts after Persist", 100},
};
}  // namespace

std::span<const PlantedBug> planted_bugs() {
  return kBugs;
}

bool plant(std::string_view name) {
  const auto found =
      std::find_if(kBugs.begin(), kBugs.end(), [&](const auto& bug) { return bug.name == name; });
  if (found == kBugs.end()) return false;
  on = found->name;
  return true;
}

}  // namespace sim
}  // namespace twofold
