// A branch's life under its verbs and votes. Locks and deadlines: core_waits_test.cpp; sessions:
// core_session_test.cpp.
#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const Xid kOne = make_xid(1);
const Xid kTwo = make_xid(2);

// ---- the straight ways ------------------------------------------------------------------------

TEST(BranchCore, EarlyPrepareThenCommit) {
  Core core;
  core.open();
  core.step(core.start(kOne, write_locks({"a"})));
  ASSERT_EQ(summary(core.effects), "Run");
  EXPECT_EQ(core.last<RunWork>().xid, kOne);
  EXPECT_EQ(core.last<RunWork>().work, "work");
  const BranchId branch = core.last<RunWork>().branch;
  core.step(core.ran(branch));
  ASSERT_EQ(summary(core.effects), "PersistPrepare");
  EXPECT_EQ(core.last<PersistPrepare>().locks, write_locks({"a"}));
  EXPECT_EQ(core.last<PersistPrepare>().branch, branch);
  core.step(Persisted{core.last<PersistPrepare>().ticket});  // the vote comes only now
  ASSERT_EQ(summary(core.effects), "XA_OK");
  EXPECT_EQ(core.last<Answer>().results, "results");
  EXPECT_EQ(core.last<Answer>().requester, core.asked());
  EXPECT_EQ(core.branches.counts().prepared, 1u);

  core.step(core.commit(kOne));
  ASSERT_EQ(summary(core.effects), "PersistCommit");
  EXPECT_FALSE(core.last<PersistCommit>().one_phase);
  EXPECT_TRUE(core.last<PersistCommit>().may_wait);
  core.step(Persisted{core.last<PersistCommit>().ticket});
  EXPECT_EQ(summary(core.effects), "XA_OK");
  EXPECT_EQ(core.last<Answer>().requester, core.asked());
  core.expect_empty();
  EXPECT_EQ(core.branches.counts().committed, 1u);
  EXPECT_EQ(core.branches.counts().voted_yes, 1u);
}

// Rule 13: only when the locks are gone and nobody waits for the end.
TEST(BranchCore, ACommitIsForcedAtOnceIfSomebodyWaitsForIt) {
  for (const bool early : {true, false}) {
    for (const bool awaited : {true, false}) {
      Options options = Core::default_options();
      options.early_release = early;
      Core core(options);
      core.open();
      core.prepared(kOne, write_locks({"a"}));
      core.step(Commit{core.ask(), kOne, false, awaited});
      EXPECT_EQ(core.last<PersistCommit>().may_wait, early && !awaited);
    }
  }
}

TEST(BranchCore, WorkThenPrepareInTwoRoundTrips) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}), Then::nothing);
  core.step(core.ran(branch));
  EXPECT_EQ(summary(core.effects), "XA_OK");
  EXPECT_EQ(core.last<Answer>().results, "results");
  EXPECT_EQ(core.state(branch), BranchState::active);
  core.step(core.prepare(kOne));
  ASSERT_EQ(summary(core.effects), "PersistPrepare");
  core.step(Persisted{core.last<PersistPrepare>().ticket});
  EXPECT_EQ(summary(core.effects), "XA_OK");
  EXPECT_EQ(core.last<Answer>().results, "");  // told already
  EXPECT_EQ(core.last<Answer>().requester, core.asked());
}

TEST(BranchCore, OnePhaseWithItsWorkReleasesWhenDurable) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}), Then::commit_one_phase);
  core.step(core.start(kTwo, write_locks({"a"})));
  EXPECT_EQ(summary(core.effects), "");
  core.step(core.ran(branch));
  ASSERT_EQ(summary(core.effects), "PersistCommit");  // nobody runs yet (rule 13)
  EXPECT_TRUE(core.last<PersistCommit>().one_phase);
  core.step(Persisted{core.last<PersistCommit>().ticket});
  EXPECT_EQ(summary(core.effects), "XA_OK, Run");
  EXPECT_EQ(std::get<Answer>(core.effects[0]).results, "results");
  EXPECT_EQ(core.branches.counts().committed_one_phase, 1u);
}

TEST(BranchCore, OnePhaseOfAnActiveBranch) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}), Then::nothing);
  core.step(core.ran(branch));
  core.step(core.commit(kOne, true));
  ASSERT_EQ(summary(core.effects), "PersistCommit");
  const std::uint64_t ticket = core.last<PersistCommit>().ticket;
  EXPECT_EQ(summary(core.step(core.commit(kOne, true))), "");
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "XA_OK, XA_OK");
  core.expect_empty();
}

TEST(BranchCore, OnePhaseThatOnlyReadNeedsNoRecord) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, read_locks({"a"}), Then::commit_one_phase);
  EXPECT_EQ(summary(core.step(core.ran(branch, false))), "XA_OK, Discard");
  core.expect_empty();
}

TEST(BranchCore, OnePhaseThatFailedHasEnded) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}), Then::commit_one_phase);
  EXPECT_EQ(summary(core.step(core.failed(branch))), "XA_RBINTEGRITY, Discard");
  EXPECT_EQ(core.last<Answer>().refusals.size(), 1u);
  core.expect_empty();
}

// ---- votes ------------------------------------------------------------------------------------

TEST(BranchCore, AReadOnlyVoterKeepsItsLocksUntilRelease) {
  Core core;
  core.open();
  const BranchId reader = core.run(kOne, read_locks({"a"}));
  EXPECT_EQ(summary(core.step(core.ran(reader, false))), "XA_RDONLY");
  EXPECT_EQ(core.last<Answer>().results, "results");
  EXPECT_EQ(summary(core.step(core.start(kTwo, write_locks({"a"})))), "");
  EXPECT_EQ(summary(core.tick(seconds{6})), "XA_RBTIMEOUT");  // the writer's end, not the reader's
  EXPECT_EQ(core.state(reader), BranchState::read_only);
  EXPECT_EQ(summary(core.step(core.release(kOne))), "XA_OK, Discard");
  core.expect_empty();
}

TEST(BranchCore, ReadOnlyVotesCanBeSwitchedOff) {
  Core core;
  core.open();
  Start start = core.start(kOne, read_locks({"a"}));
  start.read_only_vote = false;
  core.step(std::move(start));
  core.step(core.ran(core.last<RunWork>().branch, false));
  EXPECT_EQ(summary(core.effects), "PersistPrepare");
}

TEST(BranchCore, AFailedBranchKeepsItsLocksUntilRollback) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}));
  EXPECT_EQ(summary(core.step(core.failed(branch))), "XA_RBINTEGRITY");
  EXPECT_EQ(core.last<Answer>().refusals.size(), 1u);
  EXPECT_EQ(core.state(branch), BranchState::rollback_only);
  EXPECT_EQ(summary(core.step(core.start(kTwo, write_locks({"a"})))), "");
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "XA_OK, Discard, Run");
  EXPECT_EQ(core.branches.counts().voted_no, 1u);
}

TEST(BranchCore, WorkThatCannotBeUnderstoodVotesNoWithoutRunning) {
  Core core;
  core.open();
  Start start = core.start(kOne, write_locks({"a"}));
  start.invalid.resize(2);
  EXPECT_EQ(summary(core.step(start)), "XA_RBINTEGRITY");
  EXPECT_EQ(core.last<Answer>().refusals.size(), 2u);
  EXPECT_EQ(core.branches.locks().keys(), 0u);
  EXPECT_EQ(core.branches.counts().branches, 1u);
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "XA_OK");  // the adapter never knew it
  start.then = Then::commit_one_phase;
  start.xid = kTwo;
  EXPECT_EQ(summary(core.step(start)), "XA_RBINTEGRITY");
  EXPECT_EQ(core.last<Answer>().refusals.size(), 2u);
  core.expect_empty();
}

TEST(BranchCore, ARefusedPrepareIsANoVoteThatMayBeRetried) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}));
  core.step(core.ran(branch));
  core.step(Refused{core.last<PersistPrepare>().ticket});
  EXPECT_EQ(summary(core.effects), "XA_RBOTHER");
  EXPECT_TRUE(core.last<Answer>().no_room);
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("full"));
  EXPECT_EQ(core.state(branch), BranchState::rollback_only);
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "XA_OK, Discard");
  core.expect_empty();
}

TEST(BranchCore, ARefusedOnePhaseCommitHasEnded) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}), Then::commit_one_phase);
  core.step(core.ran(branch));
  const std::uint64_t ticket = core.last<PersistCommit>().ticket;
  core.step(core.commit(kOne, true));
  EXPECT_EQ(summary(core.step(Refused{ticket})), "XA_RBOTHER, XA_RBOTHER, Discard");
  EXPECT_TRUE(core.last<Answer>().no_room);
  core.expect_empty();
}

TEST(BranchCore, WithoutRoomWritersVoteNoAndReadersGoOn) {
  Core core;
  core.open();
  core.step(SpaceChanged{false});
  core.step(core.ran(core.run(kOne, write_locks({"a"}))));
  EXPECT_EQ(summary(core.effects), "XA_RBOTHER");
  EXPECT_TRUE(core.last<Answer>().no_room);
  core.step(core.ran(core.run(kTwo, read_locks({"b"})), false));
  EXPECT_EQ(summary(core.effects), "XA_RDONLY");
  core.step(core.ran(core.run(make_xid(3), write_locks({"c"}), Then::commit_one_phase)));
  EXPECT_EQ(summary(core.effects), "XA_RBOTHER, Discard");
  EXPECT_TRUE(core.last<Answer>().no_room);
  // Whoever only erases makes room, so it goes on; the adapter may still refuse it.
  Ran erased = core.ran(core.run(make_xid(5), write_locks({"e"})));
  erased.frees = true;
  core.step(erased);
  EXPECT_EQ(summary(core.effects), "PersistPrepare");
  core.step(Refused{core.last<PersistPrepare>().ticket});
  EXPECT_TRUE(core.last<Answer>().no_room);
  erased = core.ran(core.run(make_xid(6), write_locks({"f"}), Then::commit_one_phase));
  erased.frees = true;
  core.step(erased);
  EXPECT_EQ(summary(core.effects), "PersistCommit");
  core.step(SpaceChanged{true});
  core.step(core.ran(core.run(make_xid(4), write_locks({"d"}))));
  EXPECT_EQ(summary(core.effects), "PersistPrepare");
}

TEST(BranchCore, PrepareChecksIncarnationAndWorkItems) {
  Core core;
  core.open();
  for (const bool restarted : {true, false}) {
    const BranchId branch = core.run(kOne, write_locks({"a"}), Then::nothing);
    core.step(core.ran(branch));
    Prepare prepare = core.prepare(kOne);
    (restarted ? prepare.incarnation : prepare.work_items) += 1;
    EXPECT_EQ(summary(core.step(prepare)), "XA_RBROLLBACK, Discard");
    EXPECT_THAT(core.last<Answer>().text, HasSubstr(restarted ? "restarted" : "2 work items"));
    core.expect_empty();
  }
  Start empty = core.start(kOne, {}, Then::nothing);
  empty.work.clear();
  empty.interactive = true;
  core.step(std::move(empty));
  Prepare prepare = core.prepare(kOne);
  prepare.work_items = 0;
  EXPECT_EQ(summary(core.step(prepare)), "XA_RDONLY");
}

// ---- refused starts ---------------------------------------------------------------------------

TEST(BranchCore, RefusesStartsThatAreNotOfTheSession) {
  Core core;
  core.open();
  auto code = [&](const Xid& xid) {
    core.step(core.start(xid, {}));
    EXPECT_EQ(core.effects.size(), 1u);
    EXPECT_FALSE(core.last<Answer>().text.empty());
    return core.code();
  };
  EXPECT_EQ(code(make_xid(1, "n2")), Xa::er_inval);
  EXPECT_EQ(code(make_xid(1, "n1", LogId{0xb2})), Xa::er_inval);
  EXPECT_EQ(code(make_xid(1, "n1", kLog, kEpoch - 1)), Xa::er_inval);
  EXPECT_EQ(code(make_xid(1, "n1", kLog, kEpoch, kNonce + 1)), Xa::er_inval);
  Xid foreign = kOne;
  foreign.format_id = 1;
  EXPECT_EQ(code(foreign), Xa::er_inval);
  foreign = kOne;
  foreign.gtrid = "not ours";
  EXPECT_EQ(code(foreign), Xa::er_inval);
  core.expect_empty();
}

TEST(BranchCore, RefusesASecondStartOfABranch) {
  Core core;
  core.open();
  const BranchId branch = core.prepared(kOne, write_locks({"a"}));
  EXPECT_EQ(summary(core.step(core.start(kOne, write_locks({"b"})))), "XAER_DUPID");
  EXPECT_EQ(core.state(branch), BranchState::prepared);
  EXPECT_EQ(core.branches.locks().keys(), 1u);
}

TEST(BranchCore, LimitsOnBranchesLocksAndTime) {
  Options options = Core::default_options();
  options.branches_max = 1;
  options.locks_max = 2;
  Core core(options);
  core.open();
  // Never to be done, so a refusal: a retryable no would only be tried again.
  for (const Then then : {Then::prepare, Then::nothing, Then::commit_one_phase}) {
    Start greedy = core.start(kOne, write_locks({"a", "b", "c"}), then);
    EXPECT_EQ(summary(core.step(std::move(greedy))), "XA_RBINTEGRITY");
    const Answer answer = core.last<Answer>();
    ASSERT_EQ(answer.refusals.size(), 1u);
    EXPECT_EQ(answer.refusals[0].check, "invalid");
    EXPECT_THAT(answer.refusals[0].limit, HasSubstr("at most 2 locks (locks_max)"));
    EXPECT_EQ(answer.refusals[0].value, "3");
    EXPECT_EQ(core.branches.locks().keys(), 0u);
    if (then != Then::commit_one_phase) core.step(core.rollback(kOne));
    core.expect_empty();
  }
  Start late = core.start(kOne, write_locks({"a"}));
  late.remaining = Duration{0};
  EXPECT_EQ(summary(core.step(std::move(late))), "XA_RBTIMEOUT");
  core.run(kOne, write_locks({"a", "b"}));
  EXPECT_EQ(summary(core.step(core.start(kTwo, {}))), "XA_RBTRANSIENT");
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("branches_max"));
}

// ---- rollback ---------------------------------------------------------------------------------

TEST(BranchCore, RollbackWhileRunningWaitsForTheVerb) {
  Core core;
  core.open();
  const BranchId branch = core.run(kOne, write_locks({"a"}));
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "");
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "");
  EXPECT_EQ(core.state(branch), BranchState::rolling_back);
  EXPECT_EQ(summary(core.step(core.ran(branch))), "XA_RBROLLBACK, XA_OK, XA_OK, Discard");
  core.expect_empty();
}

TEST(BranchCore, RollbackWhilePreparing) {
  for (const bool durable : {true, false}) {
    Core core;
    core.open();
    core.step(core.ran(core.run(kOne, write_locks({"a"}))));
    const std::uint64_t ticket = core.last<PersistPrepare>().ticket;
    EXPECT_EQ(summary(core.step(core.rollback(kOne))), "");
    if (durable) {
      EXPECT_EQ(summary(core.step(Persisted{ticket})), "PersistRollback, XA_RBROLLBACK, XA_OK");
    } else {
      EXPECT_EQ(summary(core.step(Refused{ticket})), "XA_RBROLLBACK, XA_OK, Discard");
    }
    core.expect_empty();
  }
}

TEST(BranchCore, RollbackWhileWaitingAnswersBoth) {
  Core core;
  core.open();
  core.run(kOne, write_locks({"a"}));
  core.step(core.start(kTwo, write_locks({"a"})));
  EXPECT_EQ(summary(core.step(core.rollback(kTwo))), "XA_RBROLLBACK, XA_OK");
  EXPECT_FALSE(core.branches.next_deadline());
}

TEST(BranchCore, RollbackWhileCommittingIsRefusedWithAnAlarm) {
  Core core;
  core.open();
  const BranchId branch = core.prepared(kOne, write_locks({"a"}));
  core.step(core.commit(kOne));
  const std::uint64_t ticket = core.last<PersistCommit>().ticket;
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "Alarm, XAER_PROTO");
  EXPECT_EQ(core.state(branch), BranchState::committing);
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "XA_OK");
}

TEST(BranchCore, ASecondCommitIsAnsweredWithTheFirst) {
  Core core;
  core.open();
  core.prepared(kOne, write_locks({"a"}));
  core.step(core.commit(kOne));
  const std::uint64_t ticket = core.last<PersistCommit>().ticket;
  EXPECT_EQ(summary(core.step(core.commit(kOne))), "");
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "XA_OK, XA_OK");
}

// ---- branches that are not here ---------------------------------------------------------------

TEST(BranchCore, UnknownBranches) {
  Core core;
  core.open();
  EXPECT_EQ(summary(core.step(core.commit(kOne))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(core.prepare(kOne))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(core.release(kOne))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(Forget{core.ask(), kOne})), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "AnswerFromEvidence");
  EXPECT_TRUE(core.last<AnswerFromEvidence>().rollback);
  EXPECT_EQ(core.last<AnswerFromEvidence>().xid, kOne);
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), kOne, 99})), "AnswerFromEvidence");
  EXPECT_FALSE(core.last<AnswerFromEvidence>().rollback);
  EXPECT_EQ(core.last<AnswerFromEvidence>().store_id, 99u);
}

TEST(BranchCore, BelowTheMarkOnlyWhatCreatesIsRefused) {
  Core core;
  core.open();
  core.prepared(kOne, write_locks({"a"}));
  core.step(Mark{1, {kEpoch, 10}});
  ASSERT_EQ(summary(core.effects), "PersistNode");
  EXPECT_EQ(core.last<PersistNode>().record,
            (NodeRecord{"n1", kLog, kEpoch, kNonce, {kEpoch, 10}}));
  EXPECT_FALSE(core.last<PersistNode>().forced);
  EXPECT_TRUE(core.last<PersistNode>().purge);

  EXPECT_EQ(summary(core.step(core.start(make_xid(9), {}))), "XA_RBROLLBACK");
  EXPECT_THAT(core.last<Answer>().text, HasSubstr("low-water mark"));
  EXPECT_EQ(summary(core.step(core.start(make_xid(10), {}))), "Run");
  EXPECT_EQ(summary(core.step(core.commit(make_xid(9)))), "XA_OK");
  EXPECT_EQ(core.last<Answer>().text, "ended");
  EXPECT_EQ(summary(core.step(core.rollback(make_xid(9)))), "XA_OK");
  // The mark does not tell that a one-phase commit happened.
  EXPECT_EQ(summary(core.step(core.commit(make_xid(9), true))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), make_xid(9), 0})), "evidence=impossible");
  EXPECT_EQ(summary(core.step(core.commit(kOne))), "PersistCommit");  // it is here: taken
}

TEST(BranchCore, TheMarkOnlyRises) {
  Core core;
  core.open();
  EXPECT_EQ(summary(core.step(Mark{1, {kEpoch, 10}})), "PersistNode");
  EXPECT_EQ(summary(core.step(Mark{1, {kEpoch, 10}})), "");
  EXPECT_EQ(summary(core.step(Mark{1, {kEpoch - 1, 99}})), "");
  EXPECT_EQ(summary(core.step(Mark{2, {kEpoch, 11}})), "");  // not the session's connection
  EXPECT_EQ(summary(core.step(Mark{1, {kEpoch + 1, 0}})), "Alarm");
  EXPECT_EQ(summary(core.step(core.start(make_xid(10), {}))), "Run");
}

TEST(BranchCore, EachCoordinatorSeesOnlyItsOwn) {
  Core core;
  core.open(1, 1, "n1");
  core.open(2, 1, "n2");
  core.prepared(kOne, write_locks({"a"}));
  core.connection = 2;
  EXPECT_EQ(summary(core.step(core.commit(kOne))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(core.rollback(kOne))), "XAER_NOTA");
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), kOne, 0})), "evidence=impossible");
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=none");
  EXPECT_EQ(summary(core.step(core.commit(make_xid(1, "n2", LogId{5})))), "XAER_NOTA");
  Xid malformed = kOne;
  malformed.gtrid.clear();
  EXPECT_EQ(summary(core.step(core.commit(malformed))), "XAER_INVAL");
  core.connection = 1;
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=in-doubt");
}

// ---- views ------------------------------------------------------------------------------------

TEST(BranchCore, Views) {
  Core core;
  core.open();
  const BranchId second = core.prepared(kTwo, write_locks({"b"}));
  core.now += seconds{1};
  const BranchId first = core.prepared(kOne, read_locks({"a"}));
  core.now += seconds{2};
  const auto in_doubt = core.branches.in_doubt(core.now);
  ASSERT_EQ(in_doubt.size(), 2u);
  EXPECT_EQ(in_doubt[0].xid, kOne);
  EXPECT_EQ(in_doubt[0].age, seconds{2});
  EXPECT_EQ(in_doubt[0].locks, read_locks({"a"}));
  EXPECT_EQ(in_doubt[1].age, seconds{3});
  EXPECT_EQ(core.branches.view(second, core.now)->xid, kTwo);
  EXPECT_EQ(core.branches.view(first, core.now)->state, BranchState::prepared);
  EXPECT_FALSE(core.branches.view(1000, core.now));
}

TEST(BranchCore, EventsThatNoLongerMatterChangeNothing) {
  Core core;
  core.open();
  const BranchId branch = core.prepared(kOne, write_locks({"a"}));
  EXPECT_EQ(summary(core.step(core.ran(branch))), "");
  EXPECT_EQ(summary(core.step(core.ran(1000))), "");
  EXPECT_EQ(summary(core.step(Persisted{12345})), "");
  EXPECT_EQ(summary(core.step(Refused{12344})), "");
  EXPECT_EQ(summary(core.step(ConnectionClosed{77})), "");
  EXPECT_EQ(core.state(branch), BranchState::prepared);
}

TEST(BranchCore, NamesInTheVariantsOrder) {
  EXPECT_EQ(name(Event{Start{}}), "Start");
  EXPECT_EQ(name(Event{Tick{}}), "Tick");
  EXPECT_EQ(name(Effect{AcceptSession{}}), "AcceptSession");
  EXPECT_EQ(name(Effect{PersistNode{}}), "PersistNode");
  EXPECT_EQ(name(Effect{Alarm{}}), "Alarm");
  EXPECT_EQ(event_names().size(), std::variant_size_v<Event>);
  EXPECT_EQ(effect_names().size(), std::variant_size_v<Effect>);
  EXPECT_EQ(name(BranchState::rollback_only), "rollback_only");
}

}  // namespace
}  // namespace twofold::resource_manager
