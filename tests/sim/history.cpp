#include "tests/sim/history.h"

#include <algorithm>
#include <type_traits>

namespace twofold::sim {

std::string id_of(const std::string& gtrid) {
  const auto decoded = Gtrid::decode(gtrid);
  return decoded ? decoded->node + ":" + to_text(decoded->txn_id()) : "?";
}

std::string History::node_of(const std::string& gtrid) {
  const auto decoded = Gtrid::decode(gtrid);
  return decoded ? decoded->node : "";
}

History::Transaction& History::of(const std::string& gtrid) {
  const auto [at, fresh] = transactions_.try_emplace(gtrid);
  if (fresh) {
    at->second.gtrid = gtrid;
    at->second.writer = by_writer_.size();
    by_writer_.push_back(gtrid);
  }
  return at->second;
}

Writer History::writer(const std::string& gtrid) {
  return of(gtrid).writer;
}

void History::fault(std::string text, const std::string& gtrid) {
  if (!promised(gtrid)) return;
  if (faults_.empty()) suspect_ = gtrid;
  if (!gtrid.empty()) text = id_of(gtrid) + " " + text;
  faults_.push_back(std::move(text));
}

bool History::excused(const std::string& gtrid) const {
  const auto found = transactions_.find(gtrid);
  if (found != transactions_.end() && found->second.by_hand) return true;
  return went_back_.contains(node_of(gtrid));
}

bool History::decided_commit(const std::string& gtrid) const {
  const auto found = transactions_.find(gtrid);
  return found != transactions_.end() && found->second.commit;
}

void History::log_went_back(const std::string& node, bool said) {
  went_back_.insert(node);
  if (!said) silently_.insert(node);
}

// ---- decisions ----------------------------------------------------------------------------------

void History::logged(const LogRecord& record) {
  if (const auto* intent = std::get_if<IntentRecord>(&record)) {
    Transaction& txn = of(intent->gtrid);
    txn.intent = true;
    txn.request = intent->request.id;
  } else if (const auto* commit = std::get_if<CommitRecord>(&record)) {
    Transaction& txn = of(commit->gtrid);
    txn.commit = true;
    txn.request = commit->request.id;
    for (const BranchRecord& branch : commit->branches) {
      txn.named.insert(branch.xid.bqual);
      const Branch& known = txn.branches[branch.xid.bqual];
      if (!known.prepared && !excused(txn.gtrid))
        fault("was decided commit, and a branch is not prepared", txn.gtrid);
      if (known.rolled_back && !known.by_hand) {
        fault("was decided commit after a branch was rolled back", txn.gtrid);
      }
    }
    if (txn.told == Verdict::aborted) fault("was decided commit and told aborted", txn.gtrid);
    for (const auto& [bqual, branch] : txn.branches) {
      if (branch.no) fault("was decided commit against a no vote (invariant 3)", txn.gtrid);
    }
    carried_out(txn);
  } else if (const auto* heuristic = std::get_if<HeuristicRecord>(&record)) {
    of(heuristic->xid).reported = true;
  } else if (const auto* end = std::get_if<EndRecord>(&record)) {
    Transaction& txn = of(end->gtrid);
    for (const std::string& bqual : end->bquals) {
      const Branch& branch = txn.branches[bqual];
      if (!branch.prepared && !branch.commits) continue;  // only read, in one phase
      if (branch.committed || branch.by_hand || excused(txn.gtrid)) continue;
      fault("is recorded as ended, and a branch is not durably committed (rule 6)", txn.gtrid);
    }
  }
}

void History::carried_out(Transaction& txn) {
  if (txn.request.empty() || excused(txn.gtrid)) return;
  const auto [first, fresh] = requests_committed_.emplace(txn.request, txn.gtrid);
  if (!fresh && first->second != txn.gtrid) {
    fault("carries out request " + txn.request + " again, after " + id_of(first->second) +
              " (rule 7)",
          txn.gtrid);
  }
  if (given_up_.contains(txn.request)) {
    fault("carries out request " + txn.request +
              ", and its client had been told that nothing has "
              "happened (rule 7)",
          txn.gtrid);
  }
}

void History::gave_up(const std::string& request) {
  given_up_.insert(request);
}

// ---- branches -----------------------------------------------------------------------------------

void History::started(const Xid& xid) {
  Transaction& txn = of(xid.gtrid);
  if (!txn.branches.emplace(xid.bqual, Branch{}).second) {
    fault("a branch was created twice (rule 10)", xid.gtrid);
  }
  if (txn.commit) fault("a branch was created after the decision (rule 10)", xid.gtrid);
}

void History::ran(const Xid& xid) {
  ++of(xid).works;
}

std::uint64_t History::works(const std::string& gtrid, const std::string& rm) const {
  std::uint64_t sum = 0;
  const auto found = transactions_.find(gtrid);
  if (found == transactions_.end()) return 0;
  for (const auto& [bqual, branch] : found->second.branches) {
    if (Bqual::decode(bqual)->rm == rm) sum += branch.works;
  }
  return sum;
}

void History::read(const Xid& xid, const std::string& key, Writer version) {
  of(xid.gtrid).reads.emplace_back(key, version);
}

void History::voted(const Xid& xid, bool yes, bool read_only) {
  Branch& branch = of(xid);
  (yes ? (read_only ? branch.read_only : branch.yes) : branch.no) = true;
  if (yes && !read_only && !branch.prepared) {
    fault("a branch voted yes before that was durable (rule 4)", xid.gtrid);
  }
}

void History::prepared(const Xid& xid) {
  of(xid).prepared = true;
}

void History::commits(const Xid& xid, bool one_phase) {
  Transaction& txn = of(xid.gtrid);
  Branch& branch = txn.branches[xid.bqual];
  branch.commits = true;
  branch.one_phase = one_phase;
  if (one_phase) {
    if (!txn.intent) fault("commits in one phase without a durable intent (rule 5)", xid.gtrid);
    return;
  }
  if (!txn.commit) fault("a branch commits without a durable decision (rule 4)", xid.gtrid);
  if (!txn.named.contains(xid.bqual)) {
    fault("a branch commits that the decision does not name (rule 14)", xid.gtrid);
  }
}

void History::committed(const Xid& xid) {
  Transaction& txn = of(xid.gtrid);
  Branch& branch = txn.branches[xid.bqual];
  branch.committed = true;
  if (!branch.one_phase) return;
  if (txn.told == Verdict::aborted && !excused(xid.gtrid)) {
    fault("committed in one phase after it was told aborted", xid.gtrid);
  }
  carried_out(txn);
}

void History::rolls_back(const Xid& xid) {
  Transaction& txn = of(xid.gtrid);
  Branch& branch = txn.branches[xid.bqual];
  branch.rolled_back = true;
  if (txn.named.contains(xid.bqual)) {
    fault("a branch is rolled back after the decision to commit (invariant 1)", xid.gtrid);
  }
}

void History::by_hand(const Xid& xid, bool commit) {
  Transaction& txn = of(xid.gtrid);
  Branch& branch = txn.branches[xid.bqual];
  txn.by_hand = branch.by_hand = true;
  (commit ? branch.committed : branch.rolled_back) = true;
}

void History::applied(const std::string& rm, const std::string& key, Writer writer) {
  versions_[rm + "/" + key].push_back(writer);
}

void History::cut(const std::string& rm, const std::string& key, Writer last) {
  auto& versions = versions_[rm + "/" + key];
  while (!versions.empty() && versions.back() != last) versions.pop_back();
}

// ---- clients ------------------------------------------------------------------------------------

void History::told(const Outcome& outcome) {
  if (outcome.gtrid.empty()) return;
  if (outcome.verdict != Verdict::committed && outcome.verdict != Verdict::aborted) return;
  Transaction& txn = of(outcome.gtrid);
  const bool wrote = std::any_of(txn.branches.begin(), txn.branches.end(), [](const auto& one) {
    return one.second.yes || one.second.commits || one.second.one_phase;
  });
  if (ended_.insert(txn.gtrid).second && outcome.verdict == Verdict::committed) ++commits_told_;
  if (excused(txn.gtrid)) return;
  // What only read is told without a record (rule 5), and presumed aborted after a crash.
  if (txn.told && *txn.told != outcome.verdict && wrote) {
    fault("was told " + std::string(name(*txn.told)) + ", then " +
              std::string(name(outcome.verdict)) + " (invariant 2)",
          txn.gtrid);
  }
  if (!txn.told) txn.told = outcome.verdict;
  const bool one_phase = std::any_of(txn.branches.begin(), txn.branches.end(), [](const auto& one) {
    return one.second.one_phase && one.second.committed;
  });
  if (outcome.verdict == Verdict::aborted) {
    if (txn.commit || one_phase)
      fault("was told aborted and is committed (invariant 2)", txn.gtrid);
    return;
  }
  for (const auto& [bqual, branch] : txn.branches) {
    if (branch.no) fault("was told committed against a no vote (invariant 3)", txn.gtrid);
    if (outcome.ended && txn.named.contains(bqual) && !branch.committed) {
      fault("was told that it has ended, and a branch has not (rule 9)", txn.gtrid);
    }
  }
  if (wrote && !txn.commit && !one_phase) {
    fault("was told committed before that was durable (rule 5)", txn.gtrid);
  }
}

// ---- the end ------------------------------------------------------------------------------------

bool History::took_effect(const Transaction& txn) const {
  if (txn.told == Verdict::committed) return true;
  return std::any_of(txn.branches.begin(), txn.branches.end(),
                     [](const auto& one) { return one.second.committed || one.second.commits; });
}

std::size_t History::transactions_committed() const {
  return static_cast<std::size_t>(
      std::count_if(transactions_.begin(), transactions_.end(),
                    [&](const auto& one) { return took_effect(one.second); }));
}

void History::judge() {
  judge_atomicity();
  judge_order();
}

void History::judge_atomicity() {
  for (const auto& [gtrid, txn] : transactions_) {
    for (const auto& [bqual, branch] : txn.branches) {
      const bool against = branch.by_hand && branch.rolled_back && txn.named.contains(bqual);
      if (against && !branch.reported && !went_back(node_of(gtrid))) {
        fault("a branch was rolled back by hand, and nothing says so (rule 17)", gtrid);
      }
    }
    if (excused(gtrid)) continue;
    for (const auto& [bqual, branch] : txn.branches) {
      const bool named = txn.named.contains(bqual);
      if (named && !branch.committed) fault("a branch was never committed (invariant 1)", gtrid);
      if (branch.commits && !branch.committed && !branch.one_phase) {
        fault("a commit was lost (rule 13)", gtrid);
      }
      if (branch.prepared && !named && branch.committed && !branch.one_phase) {
        fault("a branch committed that should not have", gtrid);
      }
    }
  }
}

// Serialisability (invariant 6): who took effect and saw whose version, in each key's order of
// versions, is a graph without a circle.
void History::judge_order() {
  std::vector<std::vector<Writer>> after(by_writer_.size());
  const auto edge = [&](Writer earlier, Writer later) {
    if (earlier != 0 && earlier != later) after[earlier].push_back(later);
  };
  for (const auto& [key, versions] : versions_) {
    for (std::size_t i = 1; i < versions.size(); ++i) edge(versions[i - 1], versions[i]);
  }
  for (const auto& [gtrid, txn] : transactions_) {
    if (!took_effect(txn) || txn.by_hand) continue;
    for (const auto& [key, seen] : txn.reads) {
      const auto& versions = versions_[key];
      auto at = versions.begin();
      if (seen != 0) {
        at = std::find(versions.begin(), versions.end(), seen);
        if (at == versions.end()) {
          if (!excused(by_writer_[seen])) {
            fault("read a version of " + key + " by " + id_of(by_writer_[seen]) + " that is gone",
                  gtrid);
          }
          continue;
        }
        edge(seen, txn.writer);
        ++at;
      }
      while (at != versions.end() && *at == txn.writer) ++at;
      if (at != versions.end()) edge(txn.writer, *at);
    }
  }
  // Depth first, without recursion; 1: on the way, 2: done.
  std::vector<char> state(after.size(), 0);
  std::vector<std::pair<Writer, std::size_t>> way;
  for (Writer root = 1; root < after.size(); ++root) {
    if (state[root] != 0) continue;
    way.emplace_back(root, 0);
    state[root] = 1;
    while (!way.empty()) {
      auto& [at, next] = way.back();
      if (next == after[at].size()) {
        state[at] = 2;
        way.pop_back();
        continue;
      }
      const Writer to = after[at][next++];
      if (state[to] == 1) {
        std::string text = "closes a circle of";
        for (const auto& [writer, unused] : way) text += " " + id_of(by_writer_[writer]);
        return fault(text + ": not serialisable (invariant 6)", by_writer_[to]);
      }
      if (state[to] == 0) {
        state[to] = 1;
        way.emplace_back(to, 0);
      }
    }
  }
}

}  // namespace twofold::sim
