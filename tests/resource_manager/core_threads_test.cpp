// Interactive branches: the coordinator starts them, clients join, work and end their parts.
#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const Xid kShared = make_xid(1);
const Xid kOther = make_xid(2);

// Enlisted by the coordinator; returns its id.
BranchId enlisted(Core& core, const Xid& xid, Duration age = {}) {
  Start start = core.enlist(xid);
  start.age = age;
  EXPECT_EQ(summary(core.step(std::move(start))), "XA_OK");
  return core.branches.counts().started;
}

// Of the client on `connection`, joined with its thread 7.
Execute work(Core& core, const Xid& xid, std::vector<LockRequest> locks, ConnectionId client) {
  return {core.ask_as_client(client), xid, 7, "work", std::move(locks), {}};
}
void join(Core& core, const Xid& xid, ConnectionId client) {
  EXPECT_EQ(summary(core.step(Join{core.ask_as_client(client), xid, 7, false})), "XA_OK");
}
void finish_work(Core& core) {
  ASSERT_TRUE(core.has<RunWork>()) << summary(core.effects);
  core.step(core.ran(core.last<RunWork>().branch));
}

TEST(Interactive, JoinsWorksEndsAndVotes) {
  Core core;
  core.open();
  enlisted(core, kShared);
  join(core, kShared, 50);
  core.step(work(core, kShared, write_locks({"b"}), 50));
  finish_work(core);
  EXPECT_EQ(summary(core.effects), "XA_OK");
  EXPECT_EQ(core.last<Answer>().requester, (Requester{50, core.request}));
  core.step(work(core, kShared, write_locks({"a"}), 50));
  finish_work(core);
  EXPECT_EQ(summary(core.step(core.end(kShared))), "XA_OK");
  Prepare prepare = core.prepare(kShared);
  prepare.work_items = 2;
  core.step(prepare);
  EXPECT_EQ(core.last<PersistPrepare>().locks, write_locks({"a", "b"}));  // all that it holds
}

TEST(Interactive, FramesMayBeSentWithoutWaiting) {
  Core core;
  core.open();
  core.run(kOther, write_locks({"a"}));
  enlisted(core, kShared);
  join(core, kShared, 50);
  EXPECT_EQ(summary(core.step(core.execute(kShared, write_locks({"a"})))), "");  // waits
  EXPECT_EQ(summary(core.step(core.execute(kShared, write_locks({"b"})))), "");
  EXPECT_EQ(summary(core.step(core.end(kShared))), "");
  core.step(core.rollback(kOther));
  core.step(core.ran(1));
  ASSERT_EQ(summary(core.effects), "XA_RBROLLBACK, XA_OK, Discard, Run");
  finish_work(core);
  ASSERT_EQ(summary(core.effects), "XA_OK, Run");
  finish_work(core);
  EXPECT_EQ(summary(core.effects), "XA_OK, XA_OK");  // the work's, the end's
}

TEST(Interactive, SeveralThreadsWorkInOneBranchOneAfterTheOther) {
  Core core;
  core.open();
  const BranchId branch = enlisted(core, kShared);
  join(core, kShared, 50);
  join(core, kShared, 51);
  core.step(work(core, kShared, write_locks({"a"}), 50));
  EXPECT_EQ(summary(core.step(work(core, kShared, write_locks({"a"}), 51))), "");
  core.step(core.ran(branch));
  ASSERT_EQ(summary(core.effects), "XA_OK, Run");  // the lock is its own
  core.step(core.ran(branch));
  EXPECT_EQ(summary(core.step(core.prepare(kShared))), "XAER_PROTO");
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("2 threads"));
  core.step(End{core.ask_as_client(50), kShared, 7, End::Flag::success});
  core.step(End{core.ask_as_client(51), kShared, 7, End::Flag::suspend});
  EXPECT_EQ(summary(core.step(core.prepare(kShared))), "XAER_PROTO");  // one is suspended
  core.step(Join{core.ask_as_client(51), kShared, 7, true});
  core.step(End{core.ask_as_client(51), kShared, 7, End::Flag::success});
  Prepare prepare = core.prepare(kShared);
  prepare.work_items = 2;
  EXPECT_EQ(summary(core.step(prepare)), "PersistPrepare");
}

// C193: a thread of control has one branch at a time, but may suspend its part and join another.
TEST(Interactive, AThreadHasOneBranchAtATime) {
  Core core;
  core.open();
  enlisted(core, kShared);
  enlisted(core, kOther);
  join(core, kShared, 50);
  EXPECT_EQ(summary(core.step(core.join(kOther))), "XAER_PROTO");
  core.step(core.end(kShared, End::Flag::suspend));
  EXPECT_EQ(summary(core.step(core.join(kOther))), "XA_OK");
  Join resume = core.join(kShared);
  resume.resume = true;
  EXPECT_EQ(summary(core.step(resume)), "XAER_PROTO");
  core.step(core.end(kOther));
  resume.requester = core.ask_as_client();
  EXPECT_EQ(summary(core.step(resume)), "XA_OK");
}

// A Join may be sent behind the End that it needs, too; what is out of order when its turn comes is
// refused then.
TEST(Interactive, EachIsLookedAtInItsTurn) {
  Core core;
  core.open();
  const BranchId branch = enlisted(core, kShared);
  join(core, kShared, 50);
  core.step(core.execute(kShared, write_locks({"a"})));
  core.step(core.end(kShared, End::Flag::suspend));
  core.step(core.execute(kShared, write_locks({"b"})));  // by a thread that is not there by then
  Join resume = core.join(kShared);
  resume.resume = true;
  core.step(resume);
  core.step(core.execute(kShared, write_locks({"c"})));
  core.step(core.end(kShared));
  core.step(core.end(kShared));
  EXPECT_EQ(summary(core.step(core.ran(branch))), "XA_OK, XA_OK, XAER_PROTO, XA_OK, Run");
  EXPECT_EQ(summary(core.step(core.ran(branch))), "XA_OK, XA_OK, XAER_PROTO");
  EXPECT_EQ(core.branches.locks().locks_of(branch), write_locks({"a", "c"}));
  EXPECT_EQ(summary(core.step(Prepare{core.ask(), kShared, kIncarnation, 2, true})),
            "PersistPrepare");
}

TEST(Interactive, TooManyRequestsAtOnceAreTurnedDown) {
  Options options = Core::default_options();
  options.items_max = 2;
  Core core(options);
  core.open();
  enlisted(core, kShared);
  join(core, kShared, 50);
  core.step(core.execute(kShared, {}));  // under way
  EXPECT_EQ(summary(core.step(core.execute(kShared, {}))), "");
  EXPECT_EQ(summary(core.step(core.execute(kShared, {}))), "");
  EXPECT_EQ(summary(core.step(core.execute(kShared, {}))), "XA_RETRY");
}

// C193, xa_commit with TMONEPHASE: the branch has been rolled back, and why.
TEST(Interactive, OneThatCanOnlyBeRolledBackSaysWhyInOnePhase) {
  Core core;
  core.open();
  const BranchId branch = enlisted(core, kShared);
  join(core, kShared, 50);
  core.step(core.execute(kShared, write_locks({"a"})));
  core.step(core.failed(branch));
  core.step(core.end(kShared));
  EXPECT_EQ(summary(core.step(core.commit(kShared, true))), "XA_RBINTEGRITY, Discard");
  EXPECT_EQ(core.last<Answer>().refusals.size(), 1u);
  core.expect_empty();
}

// The step that grants a lock may be the one in which its asker is cancelled, and the next work of
// the branch waits for something else.
TEST(Interactive, RunsOnlyWithTheLocksOfItsOwnWork) {
  Core core;
  core.open();
  core.run(make_xid(8), read_locks({"k"}));
  core.run(make_xid(9), write_locks({"m"}));
  const BranchId first = enlisted(core, kShared, seconds{1}), second = enlisted(core, kOther);
  join(core, kShared, 50);
  core.step(Join{core.ask_as_client(50), kOther, 8, false});
  join(core, kOther, 51);
  core.step(work(core, kShared, write_locks({"k"}), 50));  // waits
  core.step(
      Execute{core.ask_as_client(50), kOther, 8, "work", read_locks({"k"}), {}});  // behind it
  core.step(work(core, kOther, write_locks({"m"}), 51));                           // in its turn
  EXPECT_EQ(core.state(first), BranchState::waiting);
  EXPECT_EQ(summary(core.step(ConnectionClosed{50})), "");  // k is granted, and m waited for
  EXPECT_EQ(core.state(second), BranchState::waiting);
  EXPECT_TRUE(core.branches.locks().waiting(second));
  core.step(core.rollback(make_xid(9)));
  core.step(core.ran(2));
  EXPECT_EQ(core.last<RunWork>().branch, second);
}

// Rule 10: its waiting verbs are cancelled, and nothing else.
TEST(Interactive, ALostConnectionCancelsItsWaitingWorkOnly) {
  Core core;
  core.open();
  const BranchId holder = core.run(kOther, write_locks({"a"}));
  const BranchId branch = enlisted(core, kShared);
  join(core, kShared, 50);
  join(core, kShared, 51);
  core.step(work(core, kShared, write_locks({"b"}), 50));
  finish_work(core);
  core.step(work(core, kShared, write_locks({"a", "c"}), 50));
  core.step(work(core, kShared, write_locks({"d"}), 51));
  EXPECT_EQ(core.state(branch), BranchState::waiting);
  core.step(ConnectionClosed{50});
  EXPECT_EQ(summary(core.effects), "Run");  // the other's
  EXPECT_EQ(core.branches.locks().locks_of(holder), write_locks({"a"}));
  finish_work(core);
  EXPECT_EQ(core.last<Answer>().requester.connection, 51u);
  core.step(End{core.ask_as_client(51), kShared, 7, End::Flag::success});
  Prepare prepare = core.prepare(kShared);
  prepare.work_items = 2;  // the two that were answered
  EXPECT_EQ(summary(core.step(prepare)), "PersistPrepare");
}

// Rule 10: work whose answer was lost is not left in, nor out, of a commit unnoticed.
TEST(Interactive, WorkWhoseAnswerWasLostMakesTheCountsDiffer) {
  for (const bool one_phase : {false, true}) {
    Core core;
    core.open();
    const BranchId branch = enlisted(core, kShared);
    join(core, kShared, 50);
    core.step(work(core, kShared, write_locks({"a"}), 50));
    core.step(ConnectionClosed{50});
    EXPECT_EQ(summary(core.step(core.ran(branch))), "");  // done, and nobody to tell
    Event vote = core.commit(kShared, true);
    if (one_phase) {
      std::get<Commit>(vote).work_items = 0;
    } else {
      vote = Prepare{core.ask(), kShared, kIncarnation, 0, true};
    }
    EXPECT_EQ(summary(core.step(std::move(vote))), "XA_RBROLLBACK, Discard");
    core.expect_empty();
  }
}

TEST(Interactive, WhoWaitsWhenTheCoordinatorIsLostIsToldSo) {
  Core core;
  core.open();
  enlisted(core, kShared);
  core.open(2, 1, "n2");
  core.connection = 2;
  core.prepared(make_xid(9, "n2"), write_locks({"a"}));
  join(core, kShared, 50);
  EXPECT_EQ(summary(core.step(work(core, kShared, write_locks({"a"}), 50))), "");
  core.step(ConnectionClosed{1});
  EXPECT_EQ(core.code(), Xa::rbrollback);
  EXPECT_EQ(core.last<Answer>().requester.connection, 50u);
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("the coordinator's session ended"));
}

TEST(Interactive, FailedWorkKeepsItsLocksAndTheVoteSaysWhy) {
  Core core;
  core.open();
  const BranchId branch = enlisted(core, kShared);
  join(core, kShared, 50);
  core.step(work(core, kShared, write_locks({"a"}), 50));
  EXPECT_EQ(summary(core.step(core.failed(branch))), "XA_RBINTEGRITY");
  EXPECT_EQ(core.branches.locks().keys(), 1u);  // rule 11
  EXPECT_EQ(summary(core.step(core.end(kShared))), "XA_RBROLLBACK");
  EXPECT_EQ(summary(core.step(core.prepare(kShared))), "XA_RBINTEGRITY");
  ASSERT_EQ(core.last<Answer>().refusals.size(), 1u);
  EXPECT_EQ(core.last<Answer>().refusals[0].check, "min");
  core.step(core.rollback(kShared));
  core.expect_empty();
}

TEST(Interactive, EndsWithItsSessionAndAtItsDeadline) {
  for (const bool session : {true, false}) {
    Core core;
    core.open();
    const BranchId branch = enlisted(core, kShared);
    join(core, kShared, 50);
    core.step(work(core, kShared, write_locks({"a"}), 50));
    core.step(core.ran(branch));
    if (session) {
      EXPECT_EQ(summary(core.step(ConnectionClosed{1})), "Discard");
    } else {
      EXPECT_EQ(summary(core.tick(seconds{5})), "Discard");
    }
    EXPECT_EQ(summary(core.step(core.execute(kShared, {}))), "XAER_NOTA");
    core.expect_empty();
  }
}

// ---- deadlocks ----------------------------------------------------------------------------------

// Two that took their locks in turn, in different orders.
TEST(Deadlock, TheYoungestOfACircleIsEndedWhenItCloses) {
  for (const bool first_is_older : {true, false}) {
    Core core;
    core.open();
    const BranchId one = enlisted(core, kShared, first_is_older ? seconds{2} : seconds{1});
    const BranchId two = enlisted(core, kOther, first_is_older ? seconds{1} : seconds{2});
    join(core, kShared, 50);
    join(core, kOther, 51);
    core.step(work(core, kShared, write_locks({"a"}), 50));
    finish_work(core);
    core.step(work(core, kOther, write_locks({"b"}), 51));
    finish_work(core);
    EXPECT_EQ(summary(core.step(work(core, kShared, write_locks({"b"}), 50))), "");
    core.step(work(core, kOther, write_locks({"a"}), 51));
    ASSERT_EQ(summary(core.effects), "XA_RBDEADLOCK, Discard, Run");
    EXPECT_EQ(core.last<Answer>().requester.connection, first_is_older ? 51u : 50u);
    // Whom it waits for is named as everywhere else.
    const auto other = Gtrid::decode((first_is_older ? kShared : kOther).gtrid);
    const std::string why = core.last<Answer>().text;
    EXPECT_THAT(
        why, HasSubstr("deadlock: it waits for key \"" + std::string(first_is_older ? "a" : "b") +
                       "\", held by " + to_text(other->txn_id()) + " ("));
    EXPECT_EQ(core.last<RunWork>().branch, first_is_older ? one : two);
    EXPECT_EQ(core.branches.counts().deadlocks, 1u);
    // The victim has let go of everything, and can only be rolled back.
    const BranchId victim = first_is_older ? two : one;
    EXPECT_TRUE(core.branches.locks().locks_of(victim).empty());
    EXPECT_EQ(core.state(victim), BranchState::rollback_only);
    // Whoever comes later is told why.
    core.step(work(core, first_is_older ? kOther : kShared, write_locks({"c"}),
                   first_is_older ? 51 : 50));
    EXPECT_EQ(core.code(), Xa::rbrollback);
    EXPECT_THAT(core.last<Answer>().text, HasSubstr(why));
    core.step(core.prepare(first_is_older ? kOther : kShared));
    EXPECT_EQ(core.code(), Xa::rbdeadlock);
  }
}

TEST(Deadlock, TwoUpgradesOfOneKey) {
  Core core;
  core.open();
  enlisted(core, kShared, seconds{1});
  enlisted(core, kOther);
  join(core, kShared, 50);
  join(core, kOther, 51);
  for (const auto& [xid, client] : {std::pair{kShared, 50}, {kOther, 51}}) {
    core.step(work(core, xid, read_locks({"a"}), static_cast<ConnectionId>(client)));
    finish_work(core);
  }
  EXPECT_EQ(summary(core.step(work(core, kShared, write_locks({"a"}), 50))), "");
  core.step(work(core, kOther, write_locks({"a"}), 51));
  EXPECT_EQ(summary(core.effects), "XA_RBDEADLOCK, Discard, Run");
}

// A submitted branch that waits in two queues can be the middle of a circle.
TEST(Deadlock, ASubmittedBranchInTheMiddle) {
  Core core;
  core.open();
  enlisted(core, kShared, seconds{9});
  join(core, kShared, 50);
  core.step(work(core, kShared, write_locks({"a"}), 50));
  finish_work(core);
  EXPECT_EQ(summary(core.step(core.start(kOther, write_locks({"a", "b"})))), "");  // has b
  core.step(work(core, kShared, write_locks({"b"}), 50));
  EXPECT_EQ(summary(core.effects), "XA_RBDEADLOCK, Run");
  EXPECT_EQ(core.branches.counts().branches, 1u);
}

// ---- waits that last ----------------------------------------------------------------------------

TEST(Waits, AreReportedWhenTheyLastAndWhenTheyChange) {
  Core core;
  core.open();
  const BranchId first = core.run(kShared, write_locks({"a"}));
  core.step(core.start(kOther, write_locks({"a"})));
  core.step(core.start(make_xid(3), write_locks({"a"})));
  EXPECT_EQ(summary(core.tick(kLongWait - Duration{1})), "");
  ASSERT_EQ(summary(core.tick(Duration{1})), "ReportWaits");
  EXPECT_EQ(core.last<ReportWaits>().waits,
            (std::vector<WaitEdge>{{kOther, kShared}, {make_xid(3), kOther}}));
  EXPECT_EQ(summary(core.tick(kLongWait)), "");  // as it was
  core.step(core.ran(first, false));
  core.step(core.release(kShared));
  ASSERT_EQ(summary(core.tick(kLongWait)), "ReportWaits");
  EXPECT_EQ(core.last<ReportWaits>().waits, (std::vector<WaitEdge>{{make_xid(3), kOther}}));
  core.step(core.rollback(make_xid(3)));
  ASSERT_EQ(summary(core.tick(kLongWait)), "ReportWaits");
  EXPECT_TRUE(core.last<ReportWaits>().waits.empty());
  EXPECT_EQ(summary(core.tick(kLongWait)), "");
}

}  // namespace
}  // namespace twofold::resource_manager
