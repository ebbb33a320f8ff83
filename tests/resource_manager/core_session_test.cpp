// Sessions, fencing and scans of the branch core (rules 2, 14 and 15), and its restart.
#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const Xid kSessionOne = make_xid(1);
const Xid kSessionTwo = make_xid(2);

// ---- who may have a session -------------------------------------------------------------------

TEST(Session, FirstContactIsMadeDurableBeforeItIsAccepted) {
  Core core;
  core.step(core.hello(1, 1));
  ASSERT_EQ(summary(core.effects), "PersistNode");
  EXPECT_TRUE(core.last<PersistNode>().forced);
  EXPECT_EQ(core.last<PersistNode>().record, (NodeRecord{"n1", kLog, kEpoch, kNonce, {}}));
  const std::uint64_t ticket = core.last<PersistNode>().ticket;
  core.step(core.start(kSessionOne, {}));
  EXPECT_EQ(core.code(), Xa::er_proto);  // not accepted yet
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "AcceptSession");
  EXPECT_EQ(core.last<AcceptSession>().connection, 1u);
  EXPECT_EQ(summary(core.step(core.start(kSessionOne, {}))), "Run");
}

TEST(Session, TheSameEpochNeedsNoRecord) {
  Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {}}}});
  EXPECT_EQ(summary(core.step(core.hello(1, 1))), "AcceptSession");
}

// An epoch that was here and that the coordinator's log did not record: it is an older copy, also
// when its own starts have raised its epoch above that.
TEST(Session, RefusesAnOlderCopyOfTheLog) {
  Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {}}}});
  auto refused = [&](std::uint64_t epoch, std::uint64_t nonce, std::vector<std::uint64_t> earlier,
                     const std::string& word) {
    SessionRequested hello = core.hello(1, 1);
    hello.epoch = epoch;
    hello.nonce = nonce;
    hello.earlier = std::move(earlier);
    core.step(std::move(hello));
    EXPECT_EQ(summary(core.effects), "RefuseSession");
    EXPECT_EQ(core.last<RefuseSession>().why, RefuseSession::Why::outdated);
    EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr(word));
  };
  ASSERT_EQ(kEpoch, 3u);
  refused(2, 12, {11}, "epoch 2 of node n1 is over: epoch 3 has been here");
  refused(3, kNonce + 1, {12, 11}, "two coordinators");
  refused(4, 14, {13, 12, 11}, "epoch 3 of node n1 has been here, and");
  refused(6, 16, {15, 14, 13, 12, 11}, "did not record it");
  refused(6, 16, {15, 14}, "did not record it");  // it must go back as far as it can
  refused(6, 16, {}, "did not record it");
}

TEST(Session, TakesEveryLaterEpochOfALogThatRecordedTheKnownOne) {
  for (const std::vector<std::uint64_t>& earlier :
       {std::vector<std::uint64_t>{kNonce, 12, 11},
        {14, kNonce, 12, 11},
        {14, kNonce},
        // Too far back to be told.
        std::vector<std::uint64_t>(kEarlierEpochsMax, 99)}) {
    Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {}}}});
    SessionRequested hello = core.hello(1, 1);
    const bool too_far = earlier.size() == kEarlierEpochsMax;
    hello.epoch = kEpoch + (too_far ? earlier.size() + 1 : earlier[0] == kNonce ? 1 : 2);
    hello.nonce = 5;
    hello.earlier = earlier;
    EXPECT_EQ(summary(core.step(hello)), "PersistNode") << earlier.size();
  }
}

TEST(Session, RefusesWhatIsStale) {
  Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {}}}});
  auto refused = [&](SessionRequested hello, const std::string& word) {
    core.step(std::move(hello));
    EXPECT_EQ(summary(core.effects), "RefuseSession");
    EXPECT_EQ(core.last<RefuseSession>().why, RefuseSession::Why::stale);
    EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr(word));
  };
  EXPECT_EQ(summary(core.step(core.hello(1, 5))), "AcceptSession");
  refused(core.hello(2, 5), "not newer than session 5");
  refused(core.hello(2, 4), "not newer");
  refused(core.hello(1, 9), "already");  // a second request on one connection
  core.step(ConnectionClosed{1});
  refused(core.hello(2, 5), "not newer");  // its number stays used up
}

TEST(Session, RefusesAnotherLogUnlessRebuilt) {
  Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {kEpoch, 8}}}});
  SessionRequested hello = core.hello(1, 1);
  hello.log_id = LogId{0xb2};
  hello.epoch = 1;
  core.step(hello);
  EXPECT_EQ(summary(core.effects), "RefuseSession");
  EXPECT_EQ(core.last<RefuseSession>().why, RefuseSession::Why::wrong_log);
  EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr("00000000000000a1"));
  EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr("00000000000000b2"));
  EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr("--rebuild"));
  hello.rebuild = true;
  core.step(hello);
  ASSERT_EQ(summary(core.effects), "PersistNode");
  EXPECT_EQ(core.last<PersistNode>().record, (NodeRecord{"n1", LogId{0xb2}, 1, kNonce, {}}));
  core.step(Persisted{core.last<PersistNode>().ticket});
  EXPECT_EQ(summary(core.effects), "AcceptSession");
  EXPECT_EQ(summary(core.step(core.start(make_xid(1, "n1", LogId{0xb2}, 1), {}))), "Run");
}

// A restored log has a new id and names its former ones: the operator has confirmed it already.
TEST(Session, TakesARestoredLogAndKeepsTheMarksOfWhatItWas) {
  const LogId restored{0xb2};
  Recovered recovered{{{make_xid(9), write_locks({"a"}), Time{}}},
                      {{"n1", kLog, kEpoch, kNonce, {kEpoch, 8}, {{LogId{0x77}, {1, 4}}}}}};
  Core core(Core::default_options(), std::move(recovered));
  SessionRequested hello = core.hello(1, 1);
  hello.log_id = restored;
  hello.former = {LogId{0x66}};
  EXPECT_EQ(summary(core.step(hello)), "RefuseSession");
  hello.former = {LogId{0x77}, LogId{0x88}, kLog};
  EXPECT_EQ(summary(core.step(hello)), "PersistNode");
  EXPECT_EQ(core.last<PersistNode>().record,
            (NodeRecord{"n1",
                        restored,
                        kEpoch,
                        kNonce,
                        {},
                        {{LogId{0x77}, {1, 4}}, {LogId{0x88}, {}}, {kLog, {kEpoch, 8}}}}));
  core.step(Persisted{core.last<PersistNode>().ticket});
  EXPECT_EQ(summary(core.effects), "AcceptSession");

  // What the log was begun as can be ended and asked about, as far as its own mark allows.
  core.step(core.commit(make_xid(9)));
  EXPECT_EQ(summary(core.effects), "PersistCommit");
  core.step(core.commit(make_xid(7)));
  EXPECT_EQ(core.code(), Xa::ok);  // below the former mark: it ended
  core.step(core.commit(make_xid(10)));
  EXPECT_EQ(core.code(), Xa::er_nota);
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), make_xid(7), 0})), "evidence=impossible");
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), make_xid(10), 0})), "AnswerFromEvidence");
  core.step(core.start(make_xid(11), {}));
  EXPECT_EQ(core.code(), Xa::er_inval);  // nothing new is begun in it
  core.step(core.commit(make_xid(7, "n1", LogId{0x99})));
  EXPECT_EQ(core.code(), Xa::er_nota);
}

TEST(Session, RefusesAHelloWithoutNodeOrLog) {
  Core core;
  for (const std::string& node : {std::string{}, std::string(33, 'x')}) {
    core.step(core.hello(1, 1, node));
    EXPECT_EQ(summary(core.effects), "RefuseSession");
  }
  SessionRequested hello = core.hello(1, 1);
  hello.log_id = {};
  EXPECT_EQ(summary(core.step(hello)), "RefuseSession");
}

TEST(Session, AHigherEpochKeepsTheMark) {
  Core core(Core::default_options(), {{}, {{"n1", kLog, kEpoch, kNonce, {kEpoch, 8}}}});
  SessionRequested hello = core.hello(1, 1);
  hello.epoch = kEpoch + 1;
  hello.earlier = {kNonce};
  hello.nonce = 5;
  core.step(hello);
  EXPECT_EQ(core.last<PersistNode>().record, (NodeRecord{"n1", kLog, kEpoch + 1, 5, {kEpoch, 8}}));
}

TEST(Session, TheNewerOfTwoPendingWins) {
  Core core;
  core.step(core.hello(1, 1));
  const std::uint64_t ticket = core.last<PersistNode>().ticket;
  core.step(core.hello(2, 2));
  ASSERT_EQ(summary(core.effects), "RefuseSession");
  EXPECT_EQ(core.last<RefuseSession>().connection, 1u);
  core.step(core.hello(3, 1));
  EXPECT_EQ(core.last<RefuseSession>().connection, 3u);
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "AcceptSession");
  EXPECT_EQ(core.last<AcceptSession>().connection, 2u);
  EXPECT_FALSE(core.branches.next_deadline());
}

TEST(Session, APendingOneThatGoesAwayIsForgotten) {
  Core core;
  core.step(core.hello(1, 1));
  const std::uint64_t ticket = core.last<PersistNode>().ticket;
  EXPECT_EQ(summary(core.step(ConnectionClosed{1})), "");
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "");
  EXPECT_FALSE(core.branches.next_deadline());
  EXPECT_EQ(summary(core.step(core.hello(2, 2))), "AcceptSession");
}

// Its coordinator would else only see a handshake that does not end.
TEST(Session, OneThatCannotBeRecordedYetIsToldWhy) {
  Core core;
  core.step(SpaceChanged{false});
  core.step(core.hello(1, 1));
  const std::uint64_t ticket = core.last<PersistNode>().ticket;
  EXPECT_EQ(summary(core.tick(*core.branches.next_deadline() - core.now)), "RefuseSession");
  EXPECT_EQ(core.last<RefuseSession>().why, RefuseSession::Why::busy);
  EXPECT_THAT(core.last<RefuseSession>().text, HasSubstr("there is no room on its disk"));
  EXPECT_FALSE(core.branches.next_deadline());
  EXPECT_EQ(summary(core.step(core.hello(2, 2))), "");  // it is being recorded already
  core.step(SpaceChanged{true});
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "AcceptSession");
  EXPECT_EQ(core.last<AcceptSession>().connection, 2u);
}

TEST(Session, VerbsOfOtherConnectionsArePROTO) {
  Core core;
  core.open();
  core.prepared(kSessionOne, write_locks({"a"}));
  core.open(2, 2);
  for (const ConnectionId connection : {ConnectionId{1}, ConnectionId{99}}) {
    core.connection = connection;
    for (const Event& event :
         {Event{core.start(kSessionTwo, {})}, Event{core.prepare(kSessionOne)},
          Event{core.commit(kSessionOne)}, Event{core.rollback(kSessionOne)},
          Event{core.release(kSessionOne)}, Event{Forget{core.ask(), kSessionOne}}}) {
      EXPECT_EQ(summary(core.step(event)), "XAER_PROTO") << name(event);
      EXPECT_THAT(core.last<Answer>().text, HasSubstr("session"));
    }
    // Neither has a code that could say so.
    for (const Event& event :
         {Event{Recover{core.ask()}}, Event{AskOutcome{core.ask(), kSessionOne, 0}}}) {
      EXPECT_EQ(summary(core.step(event)), "AnswerFailure") << name(event);
      EXPECT_THAT(core.last<AnswerFailure>().text, HasSubstr("session"));
    }
  }
  core.connection = 2;
  EXPECT_EQ(summary(core.step(core.commit(kSessionOne))), "PersistCommit");
}

// ---- the end of a session ---------------------------------------------------------------------

TEST(Session, ANewSessionFencesTheOld) {
  Core core;
  core.open();
  core.step(core.ran(core.run(make_xid(1), write_locks({"a"}), Then::nothing)));  // active
  core.step(core.ran(core.run(make_xid(2), read_locks({"b"})), false));           // read_only
  core.step(core.failed(core.run(make_xid(3), write_locks({"c"}))));              // rollback_only
  core.step(core.start(make_xid(4), write_locks({"a"})));                         // waiting
  const BranchId kept = core.prepared(make_xid(5), write_locks({"e"}));
  core.step(core.hello(2, 2));
  EXPECT_EQ(summary(core.effects), "CloseConnection, Discard, Discard, Discard, AcceptSession");
  EXPECT_EQ(core.last<CloseConnection>().connection, 1u);
  EXPECT_EQ(core.branches.counts().branches, 1u);
  EXPECT_EQ(core.branches.counts().waiting, 0u);
  EXPECT_EQ(core.branches.counts().fenced, 4u);
  EXPECT_EQ(core.branches.locks().keys(), 1u);
  EXPECT_EQ(core.state(kept), BranchState::prepared);
  EXPECT_EQ(summary(core.step(ConnectionClosed{1})), "");  // tells of the old one: no matter
  core.connection = 2;
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=in-doubt");
}

TEST(Session, AnotherNodesWaiterRunsWhenAFencedBranchEnds) {
  Core core;
  core.open(1, 1, "n1");
  core.open(2, 1, "n2");
  core.step(core.ran(core.run(kSessionOne, write_locks({"a"}), Then::nothing)));
  core.step(core.start(kSessionTwo, write_locks({"a"})));
  core.connection = 2;
  core.step(core.start(make_xid(1, "n2"), write_locks({"a"})));
  core.step(ConnectionClosed{1});
  EXPECT_EQ(summary(core.effects), "Discard, Run");  // not the waiter that ended in the same step
  EXPECT_EQ(core.last<RunWork>().xid, make_xid(1, "n2"));
}

TEST(Session, AcceptsWhenTheOldVerbsHaveEnded) {
  Core core;
  core.open();
  const BranchId running = core.run(kSessionOne, write_locks({"a"}));
  core.step(core.ran(core.run(kSessionTwo, write_locks({"b"}))));
  const std::uint64_t prepare = core.last<PersistPrepare>().ticket;
  EXPECT_EQ(summary(core.step(core.hello(2, 2))), "CloseConnection");
  EXPECT_EQ(core.branches.next_deadline(), core.now + seconds{2});
  // A late prepare cannot slip past the new session's scan: what ran for the old one is thrown
  // away.
  EXPECT_EQ(summary(core.step(core.ran(running))), "XA_RBROLLBACK, Discard");
  EXPECT_EQ(summary(core.step(Persisted{prepare})), "XA_OK, AcceptSession");
  EXPECT_FALSE(core.branches.next_deadline());
  core.connection = 2;
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=in-doubt");
}

TEST(Session, AcceptsAfterTheFenceAndListsTheRestBusy) {
  Core core;
  core.open();
  const BranchId running = core.run(kSessionOne, write_locks({"a"}));
  core.step(core.hello(2, 2));
  EXPECT_EQ(summary(core.tick(seconds{2})), "AcceptSession");
  core.connection = 2;
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=busy");
  EXPECT_EQ(summary(core.step(core.prepare(kSessionOne))), "XA_RETRY");
  EXPECT_EQ(summary(core.step(core.commit(kSessionOne))), "XA_RETRY");
  EXPECT_EQ(summary(core.step(core.rollback(kSessionOne))), "XA_RETRY");
  EXPECT_EQ(summary(core.step(core.release(kSessionOne))), "XA_RETRY");
  EXPECT_EQ(summary(core.step(core.start(kSessionOne, {}))), "XAER_DUPID");
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), kSessionOne, 0})), "evidence=busy");
  core.step(core.ran(running));
  EXPECT_EQ(summary(core.effects), "XA_RBROLLBACK, Discard");
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=none");
  core.expect_empty();
}

TEST(Session, TheFenceWaitsForTheRecordToo) {
  Core core;
  core.open();
  core.run(kSessionOne, write_locks({"a"}));
  SessionRequested hello = core.hello(2, 1);
  hello.epoch = kEpoch + 1;
  hello.earlier = {kNonce};
  core.step(hello);
  ASSERT_EQ(summary(core.effects), "CloseConnection, PersistNode");
  const std::uint64_t ticket = core.last<PersistNode>().ticket;
  EXPECT_EQ(summary(core.tick(seconds{1})), "");
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "");  // the old session's verb still runs
  EXPECT_EQ(summary(core.tick(seconds{1})), "AcceptSession");
  EXPECT_FALSE(core.branches.next_deadline());
}

TEST(Session, ACommitUnderWayHoldsTheNextSessionBack) {
  Core core;
  core.open();
  core.prepared(kSessionOne, write_locks({"a"}));
  core.step(core.commit(kSessionOne));
  const std::uint64_t ticket = core.last<PersistCommit>().ticket;
  EXPECT_EQ(summary(core.step(core.hello(2, 2))), "CloseConnection");
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "XA_OK, AcceptSession");
  core.expect_empty();
}

TEST(Session, ClosingAConnectionEndsItsUnvotedBranches) {
  Core core;
  core.open();
  core.step(core.ran(core.run(make_xid(1), write_locks({"a"}), Then::nothing)));
  core.step(core.ran(core.run(make_xid(2), read_locks({"b"})), false));
  const BranchId running = core.run(make_xid(3), write_locks({"c"}));
  core.step(core.ran(core.run(make_xid(4), write_locks({"d"}))));
  const std::uint64_t full = core.last<PersistPrepare>().ticket;
  core.step(core.ran(core.run(make_xid(5), write_locks({"e"}))));
  const std::uint64_t durable = core.last<PersistPrepare>().ticket;
  EXPECT_EQ(summary(core.step(ConnectionClosed{1})), "Discard, Discard");
  core.step(core.ran(running));
  EXPECT_TRUE(core.has<Discard>());
  core.step(Refused{full});
  EXPECT_TRUE(core.has<Discard>());
  core.step(Persisted{durable});
  EXPECT_EQ(core.branches.counts().branches, 1u);
  EXPECT_EQ(core.branches.counts().prepared, 1u);
  EXPECT_EQ(core.branches.locks().keys(), 1u);
}

TEST(Session, ABranchOfTheCurrentSessionIsInDoubtOnlyWhenPrepared) {
  Core core;
  core.open();
  core.run(make_xid(1), write_locks({"a"}));
  core.step(core.ran(core.run(make_xid(2), write_locks({"b"}))));
  EXPECT_EQ(core.state(2), BranchState::preparing);
  core.prepared(make_xid(3), write_locks({"c"}));
  core.step(core.commit(make_xid(3)));
  core.prepared(make_xid(4), write_locks({"d"}));
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=in-doubt");
  EXPECT_EQ(core.last<AnswerRecover>().branches[0].xid, make_xid(4));
}

// ---- scans ------------------------------------------------------------------------------------

TEST(Scan, ListsInBatchesByXid) {
  Core core;
  core.open();
  for (const std::uint64_t i : {5u, 1u, 4u, 2u, 3u}) {
    core.prepared(make_xid(i), write_locks({std::to_string(i)}));
  }
  core.now += seconds{7};
  auto batch = [&](bool start) {
    core.step(Recover{core.ask(), start, 2});
    std::vector<Xid> xids;
    for (const auto& branch : core.last<AnswerRecover>().branches) xids.push_back(branch.xid);
    return xids;
  };
  using Xids = std::vector<Xid>;
  EXPECT_EQ(batch(true), (Xids{make_xid(1), make_xid(2)}));
  EXPECT_FALSE(core.last<AnswerRecover>().end);
  EXPECT_EQ(core.last<AnswerRecover>().branches[0].age, seconds{7});
  EXPECT_EQ(batch(true), (Xids{make_xid(1), make_xid(2)}));  // begins anew
  core.step(core.rollback(make_xid(3)));                     // ends in the middle of the scan
  EXPECT_EQ(batch(false), (Xids{make_xid(4), make_xid(5)}));
  EXPECT_TRUE(core.last<AnswerRecover>().end);
  core.step(Recover{core.ask(), false, 2});
  EXPECT_TRUE(core.has<AnswerFailure>());  // not an empty, complete scan
}

TEST(Scan, BelongsToItsSession) {
  Core core;
  core.open();
  core.prepared(make_xid(1), write_locks({"a"}));
  core.prepared(make_xid(2), write_locks({"b"}));
  core.step(Recover{core.ask(), true, 1});
  core.open(2, 2);
  core.connection = 2;
  core.step(Recover{core.ask(), false, 1});
  EXPECT_TRUE(core.has<AnswerFailure>());
}

TEST(Scan, ListsBranchesOfAnUnknownLogToo) {
  PreparedBranch old{make_xid(1, "n1", LogId{0xee}), write_locks({"a"}), Time{}};
  Core core(Core::default_options(), {{old}, {}});
  core.open();
  core.step(Recover{core.ask()});
  ASSERT_EQ(summary(core.effects), "listed=in-doubt");
  EXPECT_EQ(core.last<AnswerRecover>().branches[0].xid, old.xid);
  EXPECT_EQ(summary(core.step(core.rollback(old.xid))), "XAER_NOTA");  // reported, never touched
}

// ---- restart ----------------------------------------------------------------------------------

TEST(Restart, PreparedBranchesAreBackWithTheirLocks) {
  const Time since = Time{} - seconds{30};
  Recovered recovered{
      {{kSessionOne, write_locks({"a"}), since}, {kSessionTwo, read_locks({"b"}), since}},
      {{"n1", kLog, kEpoch, kNonce, {}}}};
  Core core(Core::default_options(), recovered);
  EXPECT_EQ(core.branches.counts().prepared, 2u);
  EXPECT_EQ(core.branches.in_doubt(core.now)[0].age, seconds{30});
  core.open(1, 1);
  EXPECT_EQ(summary(core.step(core.start(make_xid(3), read_locks({"a"})))), "");
  EXPECT_EQ(summary(core.step(core.start(make_xid(4), read_locks({"b"})))), "Run");
  EXPECT_EQ(summary(core.step(AskOutcome{core.ask(), kSessionOne, 0})), "evidence=prepared");
  core.step(core.commit(kSessionOne));
  ASSERT_EQ(summary(core.effects), "PersistCommit, Run");
  EXPECT_EQ(core.last<PersistCommit>().xid, kSessionOne);
  EXPECT_EQ(summary(core.step(core.rollback(kSessionTwo))), "PersistRollback, XA_OK");
}

// Rule 6: a crash could bring back what is not durably rolled back, after a scan without it.
TEST(Scan, WaitsForTheRollbacksBeforeIt) {
  Core core;
  core.open();
  core.prepared(kSessionOne, write_locks({"a"}));
  core.prepared(make_xid(2), write_locks({"b"}));
  core.step(core.rollback(kSessionOne));
  const std::uint64_t first = core.last<PersistRollback>().ticket;
  core.step(core.rollback(make_xid(2)));
  const std::uint64_t second = core.last<PersistRollback>().ticket;
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "");
  const Requester scanner = core.asked();
  EXPECT_EQ(summary(core.step(Persisted{first})), "");
  // A rollback after the scan has begun is none of its business.
  core.prepared(make_xid(3), write_locks({"c"}));
  core.step(core.rollback(make_xid(3)));
  const std::uint64_t third = core.last<PersistRollback>().ticket;
  EXPECT_EQ(summary(core.step(Persisted{second})), "listed=none");
  EXPECT_EQ(core.last<AnswerRecover>().requester, scanner);
  EXPECT_EQ(summary(core.step(Persisted{third})), "");
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "listed=none");
}

TEST(Scan, ThatWaitsEndsWithItsSessionOrANewerOne) {
  Core core;
  core.open();
  core.prepared(kSessionOne, write_locks({"a"}));
  core.step(core.rollback(kSessionOne));
  const std::uint64_t ticket = core.last<PersistRollback>().ticket;
  core.step(Recover{core.ask()});
  EXPECT_EQ(summary(core.step(Recover{core.ask()})), "AnswerFailure");  // to the older one
  core.step(ConnectionClosed{1});
  EXPECT_EQ(summary(core.step(Persisted{ticket})), "");
}

}  // namespace
}  // namespace twofold::resource_manager
