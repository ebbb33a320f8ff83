// The coordinator's core as text, for tests: events are read from and effects written as short
// lines, and a log that keeps what was made durable. tests/scripts/README.md describes the words.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/core/coordinator.h"

namespace twofold::coordinator::test {

// The decision log's table as log/record.h describes it: what a crash leaves.
class FakeLog {
 public:
  // As if those resource managers had all been seen before, with stores 500, 501, …
  // Or, not `seen`, as a new one.
  explicit FakeLog(const Options& options, bool seen = true);
  void apply(const LogRecord& record);
  Recovered replay() const;

 private:
  using Row = std::variant<IntentRecord, CommitRecord, RefusalRecord, EndRecord>;
  std::map<TxnId, Row> rows_;
  std::map<Xid, HeuristicRecord> heuristics_;
  TxnId floor_;
  Participants participants_;
};

// A coordinator, its log, and a clock that only moves when told.
class Bench {
 public:
  explicit Bench(Options options, bool seen = true);

  // Steps and appends the effects; Persist effects wait for durable() or refused().
  std::vector<Effect> step(Event event);
  std::vector<Effect> durable(std::uint64_t ticket);  // applied to the log, then told
  std::vector<Effect> durable();                      // all that waits, in order
  std::vector<Effect> refused(std::uint64_t ticket);
  std::vector<Effect> advance(Duration duration);  // ticks on the way, each when it is due
  void crash();                                    // what is not durable is gone; a new epoch
  // As crash(), and the log was restored from a copy that is certain below that epoch (rule 2).
  void restore(std::uint64_t certain_below);
  void link_all();  // all up, all scanned and empty; effects dropped

  Coordinator& core() { return *core_; }
  const Options& options() const { return options_; }
  RmId rm(std::string_view name) const;
  Time now() const { return now_; }
  const std::map<std::uint64_t, Persist>& waiting() const { return waiting_; }
  Xid xid(BranchKey branch, std::string_view rm) const;
  std::string gtrid(TxnId id) const;
  Phase phase(TxnId id) const;  // ended if it is not known

 private:
  std::uint64_t nonce(std::uint64_t epoch) const { return 1000 + epoch; }

  Options options_;
  Epoch epoch_;
  std::map<std::uint64_t, LogId> log_since_;  // by the first epoch under that id
  FakeLog log_;
  Time now_{std::chrono::seconds{1}};
  std::map<std::uint64_t, Persist> waiting_;
  std::optional<Coordinator> core_;
};

std::string text(const Options& options, const Effect& effect);  // "Start orders 1.1/0 prepare"
std::string text(const LogRecord& record);                       // "Commit 1.1 orders payments"
std::optional<Xa> parse_xa(std::string_view word);               // "rbdeadlock"
std::string_view short_name(Xa code);
Refusal refusal(std::string key);  // "min" of an add, for key

}  // namespace twofold::coordinator::test
