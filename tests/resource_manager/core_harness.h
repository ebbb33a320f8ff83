// Drives a branch core by hand: one core, named shorthands for its events, and the effects of the
// last step. Time stands still unless a test moves it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "resource_manager/core/branches.h"

namespace twofold::resource_manager {

using RunWork = Run;  // in a test, Run is Google Test's

inline constexpr LogId kLog{0xa1};
inline constexpr std::uint64_t kEpoch = 3;
inline constexpr std::uint64_t kNonce = 77;
inline constexpr std::uint64_t kIncarnation = 4711;

inline Xid make_xid(std::uint64_t sequence, std::string node = "n1", LogId log = kLog,
                    std::uint64_t epoch = kEpoch, std::uint64_t nonce = kNonce,
                    std::uint16_t index = 0) {
  Xid xid;
  xid.gtrid = Gtrid{log, epoch, nonce, sequence, std::move(node)}.encode();
  xid.bqual = Bqual{index, "rm"}.encode();
  return xid;
}

inline std::vector<LockRequest> write_locks(std::vector<std::string> keys) {
  std::vector<LockRequest> locks;
  for (std::string& key : keys) locks.push_back({std::move(key), LockMode::exclusive});
  return locks;
}

inline std::vector<LockRequest> read_locks(std::vector<std::string> keys) {
  std::vector<LockRequest> locks;
  for (std::string& key : keys) locks.push_back({std::move(key), LockMode::shared});
  return locks;
}

// An effect in a word, for tables and messages: an Answer by its code.
inline std::string summary(const Effect& effect) {
  if (const auto* answer = std::get_if<Answer>(&effect)) return std::string{name(answer->code)};
  if (const auto* evidence = std::get_if<AnswerEvidence>(&effect)) {
    constexpr std::string_view kinds[] = {"prepared", "busy", "impossible"};
    return "evidence=" + std::string{kinds[static_cast<std::size_t>(evidence->kind)]};
  }
  if (const auto* told = std::get_if<AnswerRecover>(&effect)) {
    std::string text = "listed=";
    for (const RecoveredBranch& branch : told->branches)
      text += branch.busy ? "busy " : "in-doubt ";
    return text.back() == ' ' ? text.substr(0, text.size() - 1) : text + "none";
  }
  return std::string{name(effect)};
}

inline std::string summary(const std::vector<Effect>& effects) {
  std::string text;
  for (const Effect& effect : effects) text += (text.empty() ? "" : ", ") + summary(effect);
  return text;
}

class Core {
 public:
  explicit Core(Options options = default_options(), Recovered recovered = {})
      : branches(std::move(options), std::move(recovered), Time{}) {}

  static Options default_options() {
    Options options;
    options.name = "rm";
    options.incarnation = kIncarnation;
    return options;
  }

  // Each step's effects replace those of the one before.
  const std::vector<Effect>& step(Event event) {
    effects.clear();
    branches.step(std::move(event), now, effects);
    return effects;
  }
  const std::vector<Effect>& tick(Duration later) {
    now += later;
    return step(Tick{});
  }

  SessionRequested hello(ConnectionId from, std::uint64_t counter, std::string node = "n1") const {
    return {from, std::move(node), kLog, kEpoch, kNonce, counter, false};
  }
  // A session of `node` up to its acceptance, on the connection `from`.
  void open(ConnectionId from = 1, std::uint64_t counter = 1, std::string node = "n1") {
    step(hello(from, counter, std::move(node)));
    if (has<PersistNode>()) step(Persisted{last<PersistNode>().ticket});
    ASSERT_TRUE(has<AcceptSession>()) << summary(effects);
  }

  Start start(const Xid& xid, std::vector<LockRequest> locks, Then then = Then::prepare) {
    Start event;
    event.requester = ask();
    event.xid = xid;
    event.work = "work";
    event.locks = std::move(locks);
    event.then = then;
    event.remaining = std::chrono::seconds{5};
    return event;
  }
  Prepare prepare(const Xid& xid) { return {ask(), xid, kIncarnation, 1, true}; }
  Commit commit(const Xid& xid, bool one_phase = false) {
    return {ask(), xid, one_phase, false, kIncarnation, 1};
  }
  // A client's part, on a connection of its own, in thread 7.
  static constexpr ConnectionId kClient = 50;
  Start enlist(const Xid& xid) {
    Start event = start(xid, {}, Then::nothing);
    event.work.clear();
    event.interactive = true;
    return event;
  }
  Requester ask_as_client(ConnectionId client = kClient) { return {client, ++request}; }
  Join join(const Xid& xid) { return {ask_as_client(), xid, 7, false}; }
  Execute execute(const Xid& xid, std::vector<LockRequest> locks) {
    return {ask_as_client(), xid, 7, "work", std::move(locks), {}};
  }
  End end(const Xid& xid, End::Flag flag = End::Flag::success) {
    return {ask_as_client(), xid, 7, flag};
  }
  Rollback rollback(const Xid& xid) { return {ask(), xid}; }
  Release release(const Xid& xid) { return {ask(), xid}; }
  Ran ran(BranchId branch, bool wrote = true, std::string results = "results") const {
    return {branch, Xa::ok, std::move(results), {}, {}, wrote};
  }
  Ran failed(BranchId branch) const {
    Refusal refusal;
    refusal.check = "min";
    return {branch, Xa::rbintegrity, {}, {refusal}, {}, true};
  }
  Requester ask() { return {connection, ++request}; }
  Requester asked() const { return {connection, request}; }  // the last one

  // A branch up to its vote; returns its id.
  BranchId run(const Xid& xid, std::vector<LockRequest> locks, Then then = Then::prepare) {
    step(start(xid, std::move(locks), then));
    EXPECT_EQ(summary(effects), "Run");
    return last<RunWork>().branch;
  }
  BranchId prepared(const Xid& xid, std::vector<LockRequest> locks) {
    const BranchId branch = run(xid, std::move(locks));
    step(ran(branch));
    EXPECT_EQ(summary(effects), "PersistPrepare");
    step(Persisted{last<PersistPrepare>().ticket});
    EXPECT_EQ(summary(effects), "XA_OK");
    return branch;
  }

  template <class E>
  bool has() const {
    return std::any_of(effects.begin(), effects.end(),
                       [](const Effect& effect) { return std::holds_alternative<E>(effect); });
  }
  template <class E>
  const E& last() const {
    for (auto at = effects.rbegin(); at != effects.rend(); ++at) {
      if (const E* found = std::get_if<E>(&*at)) return *found;
    }
    ADD_FAILURE() << "no such effect in: " << summary(effects);
    static const E none{};
    return none;
  }
  Xa code() const { return last<Answer>().code; }
  BranchState state(BranchId branch) const {
    const auto view = branches.view(branch, now);
    EXPECT_TRUE(view);
    return view ? view->state : BranchState::waiting;
  }
  void expect_empty() const {
    EXPECT_EQ(branches.counts().branches, 0u);
    EXPECT_EQ(branches.counts().waiting, 0u);
    EXPECT_EQ(branches.counts().prepared, 0u);
    EXPECT_EQ(branches.locks().keys(), 0u);
    EXPECT_FALSE(branches.next_deadline());
  }

  Branches branches;
  std::vector<Effect> effects;
  Time now;
  ConnectionId connection = 1;  // whose verbs the shorthands make
  std::uint64_t request = 0;
};

}  // namespace twofold::resource_manager
