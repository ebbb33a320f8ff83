// "Verbs" of docs/protocol.md: what each is answered, and what has happened then.
#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

TEST_P(Participant, WorkThenVoteThenCommit) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const wire::Frame work =
      main->ask(FakePeer::start(xid, {write("k", 7), read("k")}, wire::THEN_NOTHING));
  EXPECT_EQ(code_of(work), Xa::ok);
  const auto results = decode_results(work.branch_answer().results());
  ASSERT_TRUE(results);
  ASSERT_EQ(results->size(), 2u);  // one for each operation
  EXPECT_EQ(results->at(1), written(7));
  EXPECT_EQ(main->code(FakePeer::prepare(xid, main->welcome().incarnation(), 1)), Xa::ok);
  expect_locked(*main, "k");
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), written(7));
  expect_free(*main, "k");
}

TEST_P(Participant, WorkWithItsVote) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const wire::Frame vote = main->ask(FakePeer::start(xid, {write("k", 7), read("k")}));
  EXPECT_EQ(code_of(vote), Xa::ok);
  EXPECT_EQ(decode_results(vote.branch_answer().results()).value().at(1), written(7));
  EXPECT_EQ(main->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_TRUE(main->recover().empty());
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

TEST_P(Participant, RolledBackWorkLeavesNothing) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7)}, wire::THEN_NOTHING)),
            Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::ok);
  const Xid voted = prepared(*main, "k", 8);
  EXPECT_EQ(main->code(FakePeer::rollback(voted)), Xa::ok);
  EXPECT_TRUE(main->recover().empty());
  EXPECT_EQ(value_of(*main, "k"), Value{});
  expect_free(*main, "k");
}

// Rule 11: letting go of a shared lock before all have voted would break serialisability.
TEST_P(Participant, AReadOnlyVoteKeepsItsLocksUntilRelease) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {read("k")})), Xa::rdonly);
  EXPECT_TRUE(main->recover().empty());
  expect_locked(*main, "k");
  const std::uint64_t waiter = main->send(FakePeer::start(branch_xid(2), {write("k", 1)}));
  settle(*main);
  EXPECT_FALSE(main->answered(waiter));
  EXPECT_EQ(main->code(FakePeer::release(branch_xid(1))), Xa::ok);
  EXPECT_EQ(code_of(main->answer(waiter)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::release(branch_xid(1))), Xa::er_nota);
}

TEST_P(Participant, AReadOnlyVoteEndsByRollbackToo) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {read("k")}, wire::THEN_NOTHING)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::prepare(branch_xid(1), main->welcome().incarnation(), 1)),
            Xa::rdonly);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::ok);
  expect_free(*main, "k");
}

TEST_P(Participant, WithoutReadOnlyVotesAReaderIsPrepared) {
  auto main = session();
  wire::Frame start = FakePeer::start(branch_xid(1), {read("k")});
  start.mutable_start()->set_read_only_vote(false);
  EXPECT_EQ(main->code(start), Xa::ok);
  EXPECT_EQ(main->recover(), std::vector<Xid>{branch_xid(1)});
  restart();
  main = session();
  EXPECT_EQ(main->recover(), std::vector<Xid>{branch_xid(1)});
  expect_locked(*main, "k");  // shared locks too are back
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(1))), Xa::ok);
  expect_free(*main, "k");
}

TEST_P(Participant, AFailedCheckIsRefusedByNameAndKeepsItsLocks) {
  auto main = session();
  const wire::Frame vote = main->ask(FakePeer::start(branch_xid(1), {write("k", 7), fail("none")}));
  EXPECT_EQ(code_of(vote), Xa::rbintegrity);
  ASSERT_EQ(vote.branch_answer().refusals_size(), 1);
  const wire::Refusal& refusal = vote.branch_answer().refusals(0);
  EXPECT_EQ(refusal.operation(), 1u);
  EXPECT_EQ(refusal.op(), fail("none").name);
  EXPECT_EQ(refusal.check(), "absent");
  EXPECT_TRUE(refusal.rm().empty());
  expect_locked(*main, "k");
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::ok);
  expect_free(*main, "k");
  EXPECT_EQ(value_of(*main, "k"), Value{});
}

TEST_P(Participant, WhatItDoesNotUnderstandIsInvalid) {
  auto main = session();
  const Operation unknown{"no_such_operation", {}};
  Operation surplus = write("k", 7);
  surplus.arguments.emplace_back("no_such_argument", Value{true});
  std::uint64_t sequence = 0;
  for (const Operation& operation : {unknown, surplus}) {
    for (const wire::Then then :
         {wire::THEN_NOTHING, wire::THEN_PREPARE, wire::THEN_COMMIT_ONE_PHASE}) {
      const Xid xid = branch_xid(++sequence);
      const wire::Frame answer = main->ask(FakePeer::start(xid, {write("k", 7), operation}, then));
      EXPECT_EQ(code_of(answer), Xa::rbintegrity);
      ASSERT_EQ(answer.branch_answer().refusals_size(), 1);
      EXPECT_EQ(answer.branch_answer().refusals(0).check(), "invalid");
      EXPECT_EQ(answer.branch_answer().refusals(0).operation(), 1u);
      main->code(FakePeer::rollback(xid));
    }
  }
  wire::Frame garbage = FakePeer::start(branch_xid(++sequence), {});
  garbage.mutable_start()->set_work("\xff garbage");
  EXPECT_EQ(main->code(garbage), Xa::rbintegrity);
  EXPECT_EQ(value_of(*main, "k"), Value{});
  expect_free(*main, "k");
}

// ---- one phase ----------------------------------------------------------------------------------

TEST_P(Participant, WorkWithItsCommitInOnePhase) {
  auto main = session();
  const wire::Frame answer = main->ask(
      FakePeer::start(branch_xid(1), {write("k", 7), read("k")}, wire::THEN_COMMIT_ONE_PHASE));
  EXPECT_EQ(code_of(answer), Xa::ok);
  EXPECT_EQ(decode_results(answer.branch_answer().results()).value().at(1), written(7));
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::COMMITTED);
  EXPECT_EQ(value_of(*main, "k"), written(7));
  expect_free(*main, "k");
}

TEST_P(Participant, ARefusedOnePhaseCommitIsItsEnd) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7), fail("none")},
                                       wire::THEN_COMMIT_ONE_PHASE)),
            Xa::rbintegrity);
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::NONE);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::er_nota);
  EXPECT_EQ(value_of(*main, "k"), Value{});
  expect_free(*main, "k");
}

TEST_P(Participant, CommitInOnePhaseAfterItsWork) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7)}, wire::THEN_NOTHING)),
            Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit_one_phase(branch_xid(1), main->welcome().incarnation(), 1)),
            Xa::ok);
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::COMMITTED);
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

// It leaves no row, and nothing was lost by that.
TEST_P(Participant, AReaderCommitsInOnePhase) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {read("k")}, wire::THEN_COMMIT_ONE_PHASE)),
            Xa::ok);
  expect_free(*main, "k");
}

// ---- what was lost must not be left out (rule 10) -----------------------------------------------

TEST_P(Participant, AVoteOverOtherWorkIsNo) {
  auto main = session();
  const std::uint64_t here = main->welcome().incarnation();
  std::uint64_t sequence = 0;
  const auto vote = [&](std::uint64_t incarnation, std::uint64_t items, bool one_phase) {
    const Xid xid = branch_xid(++sequence);
    EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7)}, wire::THEN_NOTHING)), Xa::ok);
    const Xa code = main->code(one_phase ? FakePeer::commit_one_phase(xid, incarnation, items)
                                         : FakePeer::prepare(xid, incarnation, items));
    EXPECT_EQ(main->code(FakePeer::rollback(xid)), Xa::er_nota);  // it is gone
    return code;
  };
  for (const bool one_phase : {false, true}) {
    EXPECT_EQ(vote(here + 1, 1, one_phase), Xa::rbrollback);
    EXPECT_EQ(vote(here, 0, one_phase), Xa::rbrollback);
    EXPECT_EQ(vote(here, 2, one_phase), Xa::rbrollback);
  }
  EXPECT_EQ(value_of(*main, "k"), Value{});
  expect_free(*main, "k");
}

// ---- locks --------------------------------------------------------------------------------------

TEST_P(Participant, AWaiterGoesOnWhenTheHolderEnds) {
  auto main = session();
  const Xid holder = prepared(*main, "k", 7);
  const std::uint64_t second = main->send(FakePeer::start(branch_xid(2), {read("k")}));
  const std::uint64_t third = main->send(FakePeer::start(branch_xid(3), {write("k", 9)}));
  settle(*main);
  EXPECT_FALSE(main->answered(second));
  EXPECT_FALSE(main->answered(third));
  EXPECT_EQ(main->code(FakePeer::commit(holder)), Xa::ok);
  const auto read_vote = main->answer(second);
  EXPECT_EQ(code_of(read_vote), Xa::rdonly);
  EXPECT_EQ(decode_results(read_vote->branch_answer().results()).value().at(0), written(7));
  settle(*main);
  EXPECT_FALSE(main->answered(third));  // first come, first served
  EXPECT_EQ(main->code(FakePeer::release(branch_xid(2))), Xa::ok);
  EXPECT_EQ(code_of(main->answer(third)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(3))), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

TEST_P(Participant, TwoReadersShareAKey) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {read("k")})), Xa::rdonly);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(2), {read("k")})), Xa::rdonly);
}

TEST_P(Participant, AWaitEndsWithItsTime) {
  auto main = session();
  prepared(*main, "k", 7);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(2), {write("k", 8)}, wire::THEN_PREPARE, 30)),
            Xa::rbtimeout);
}

TEST_P(Participant, AWaitForItsOwnTransactionIsADeadlock) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7)})), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::start(second_branch(1), {write("k", 8)})), Xa::rbdeadlock);
  EXPECT_EQ(main->code(FakePeer::start(second_branch(2), {write("other", 8)})), Xa::ok);
}

TEST_P(Participant, RollbackEndsAWait) {
  auto main = session();
  prepared(*main, "k", 7);
  const std::uint64_t waiter = main->send(FakePeer::start(branch_xid(2), {write("k", 8)}));
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(2))), Xa::ok);
  EXPECT_EQ(code_of(main->answer(waiter)), Xa::rbrollback);
}

// Rule 10. A yes has no deadline.
TEST_P(Participant, AnUnvotedBranchEndsAtItsDeadline) {
  auto main = session();
  const Xid voted = next_xid();
  EXPECT_EQ(main->code(FakePeer::start(voted, {write("v", 1)}, wire::THEN_PREPARE, 2'000)), Xa::ok);
  const Xa started =
      main->code(FakePeer::start(branch_xid(1), {write("k", 7)}, wire::THEN_NOTHING, 2'000));
  EXPECT_EQ(started, Xa::ok);
  expect_free(*main, "k");  // waits until it has ended
  EXPECT_EQ(main->code(FakePeer::prepare(branch_xid(1), main->welcome().incarnation(), 1)),
            Xa::er_nota);
  EXPECT_EQ(main->recover(), std::vector<Xid>{voted});
}

}  // namespace
}  // namespace twofold::conformance
