// What a branch waits for, and for how long: locks and deadlines.
#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const Xid kWaitsOne = make_xid(1);
const Xid kWaitsTwo = make_xid(2);

// ---- locks ------------------------------------------------------------------------------------

TEST(BranchCore, AWaitForItsOwnTransactionIsADeadlockAtOnce) {
  Core core;
  core.open();
  const BranchId first = core.run(kWaitsOne, write_locks({"a"}));
  const Xid sibling = make_xid(1, "n1", kLog, kEpoch, kNonce, 1);
  EXPECT_EQ(summary(core.step(core.start(sibling, write_locks({"a", "b"})))), "XA_RBDEADLOCK");
  EXPECT_EQ(core.branches.locks().keys(), 1u);
  EXPECT_EQ(core.branches.counts().deadlocks, 1u);
  EXPECT_EQ(core.branches.counts().branches, 1u);
  // Through a waiter in between, too.
  core.step(core.start(kWaitsTwo, write_locks({"a"})));
  EXPECT_EQ(summary(core.step(core.start(sibling, read_locks({"a"})))), "XA_RBDEADLOCK");
  // A sibling that waits for nobody of its own is no deadlock.
  EXPECT_EQ(summary(core.step(core.start(sibling, write_locks({"b"})))), "Run");
  EXPECT_EQ(core.state(first), BranchState::running);
}

// Of another coordinator's transaction the id alone says nothing.
TEST(BranchCore, ALockHolderOfAnotherCoordinatorIsNamedWithItsNode) {
  Options options = Core::default_options();
  options.lock_timeout = milliseconds{100};
  Core core(options);
  core.open();
  core.prepared(kWaitsOne, write_locks({"a"}));
  core.open(2, 1, "n2");
  core.connection = 2;
  core.step(core.start(make_xid(9, "n2"), write_locks({"a"})));
  while (!core.has<Answer>()) {
    ASSERT_TRUE(core.branches.next_deadline());
    core.tick(*core.branches.next_deadline() - core.now);
  }
  EXPECT_EQ(core.code(), Xa::rbtimeout);
  const TxnId holder = Gtrid::decode(kWaitsOne.gtrid)->txn_id();
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("held by " + to_text(holder) + " of node n1 ("));
}

TEST(BranchCore, ALockWaitEndsAtTheJitteredTimeout) {
  Options options = Core::default_options();
  options.lock_timeout = milliseconds{100};
  Core core(options);
  core.open();
  core.prepared(kWaitsOne, write_locks({"a"}));
  std::set<Duration> waits;
  for (std::uint64_t i = 2; i < 40; ++i) {
    EXPECT_EQ(summary(core.step(core.start(make_xid(i), write_locks({"a"})))), "");
    const Time since = core.now;
    while (!core.has<Answer>()) {  // meanwhile the wait is reported
      ASSERT_TRUE(core.branches.next_deadline());
      core.tick(*core.branches.next_deadline() - core.now);
    }
    const Duration wait = core.now - since;
    EXPECT_LE(wait, milliseconds{100});
    EXPECT_GE(wait, milliseconds{75});
    waits.insert(wait);
    EXPECT_EQ(core.code(), Xa::rbtimeout);
    EXPECT_THAT(core.last<Answer>().text, HasSubstr("\"a\""));
    const TxnId holder = Gtrid::decode(kWaitsOne.gtrid)->txn_id();  // as everybody names it
    EXPECT_THAT(core.last<Answer>().text, HasSubstr("held by " + to_text(holder) + " (prepared)"));
  }
  EXPECT_GT(waits.size(), 30u);  // they do not all give up at once
  EXPECT_EQ(core.branches.counts().lock_timeouts, 38u);
  EXPECT_EQ(core.branches.counts().branches, 1u);
}

TEST(BranchCore, ALockWaitEndsAtTheTransactionsDeadline) {
  Core core;
  core.open();
  core.run(kWaitsOne, write_locks({"a"}));
  Start start = core.start(kWaitsTwo, write_locks({"a", "b"}));
  start.remaining = milliseconds{20};
  core.step(std::move(start));
  core.step(core.start(make_xid(3), write_locks({"b"})));
  EXPECT_EQ(summary(core.tick(milliseconds{20})), "XA_RBTIMEOUT, Run");  // b is free again
  EXPECT_EQ(core.last<RunWork>().xid, make_xid(3));
}

TEST(BranchCore, WaitersRunInTheirOrderWhenLocksAreReleased) {
  Core core;
  core.open();
  core.prepared(kWaitsOne, write_locks({"a", "b"}));
  core.step(core.start(make_xid(5), write_locks({"b"})));
  core.step(core.start(make_xid(4), write_locks({"a"})));
  core.step(core.rollback(kWaitsOne));
  ASSERT_EQ(summary(core.effects), "PersistRollback, XA_OK, Run, Run");
  EXPECT_EQ(std::get<RunWork>(core.effects[2]).xid, make_xid(5));
  EXPECT_EQ(std::get<RunWork>(core.effects[3]).xid, make_xid(4));
}

TEST(BranchCore, EarlyReleaseLetsLocksGoInTheStepThatQueuesTheCommit) {
  for (const bool early : {true, false}) {
    Options options = Core::default_options();
    options.early_release = early;
    Core core(options);
    core.open();
    core.prepared(kWaitsOne, write_locks({"a"}));
    core.step(core.start(kWaitsTwo, write_locks({"a"})));
    core.step(core.commit(kWaitsOne));
    EXPECT_EQ(summary(core.effects), early ? "PersistCommit, Run" : "PersistCommit");
    const std::uint64_t ticket = core.last<PersistCommit>().ticket;
    EXPECT_EQ(summary(core.step(Persisted{ticket})), early ? "XA_OK" : "XA_OK, Run");
  }
}

// ---- deadlines --------------------------------------------------------------------------------

TEST(BranchCore, AnActiveBranchEndsAtItsDeadline) {
  Core core;
  core.open();
  core.step(core.ran(core.run(kWaitsOne, write_locks({"a"}), Then::nothing)));
  EXPECT_EQ(core.branches.next_deadline(), core.now + seconds{5});
  EXPECT_EQ(summary(core.tick(seconds{5})), "Discard");
  core.expect_empty();
  EXPECT_EQ(summary(core.step(core.prepare(kWaitsOne))), "XAER_NOTA");
}

TEST(BranchCore, TheDeadlineCountsBeforeAnyEventOfItsTime) {
  Core core;
  core.open();
  core.step(core.ran(core.run(kWaitsOne, write_locks({"a"}), Then::nothing)));
  core.now += seconds{5};
  EXPECT_EQ(summary(core.step(core.prepare(kWaitsOne))), "Discard, XAER_NOTA");
}

TEST(BranchCore, WorkThatIsDoneTooLateIsThrownAway) {
  Core core;
  core.open();
  const BranchId branch = core.run(kWaitsOne, write_locks({"a"}));
  EXPECT_EQ(summary(core.tick(seconds{5})), "");
  EXPECT_EQ(summary(core.step(core.ran(branch))), "XA_RBTIMEOUT, Discard");
  core.expect_empty();
}

TEST(BranchCore, APreparedBranchHasNoDeadline) {
  Core core;
  core.open();
  const BranchId branch = core.prepared(kWaitsOne, write_locks({"a"}));
  EXPECT_FALSE(core.branches.next_deadline());
  EXPECT_EQ(summary(core.tick(std::chrono::hours{1000})), "");
  EXPECT_EQ(core.state(branch), BranchState::prepared);
}

}  // namespace
}  // namespace twofold::resource_manager
