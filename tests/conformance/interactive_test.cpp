// "Join, Execute, End" of docs/protocol.md. A participant that only takes submitted work answers an
// interactive Start with XAER_INVAL, and these cases are skipped.
#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

TEST_P(Interactive, ClientsWorkAndTheCoordinatorCommits) {
  const Xid xid = begin();
  auto one = client(), two = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("a", 1)})), Xa::ok);
  const wire::Frame seen = two->ask(FakePeer::execute(xid, {read("a"), write("b", 2)}));
  EXPECT_EQ(code_of(seen), Xa::ok);
  EXPECT_EQ(decode_results(seen.branch_answer().results()).value().at(0), written(1));
  EXPECT_EQ(one->code(FakePeer::end(xid)), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::end(xid)), Xa::ok);
  EXPECT_EQ(vote(xid, 2), Xa::ok);
  EXPECT_EQ(main_->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(main_->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main_, "a"), written(1));
  EXPECT_EQ(value_of(*main_, "b"), written(2));
}

TEST_P(Interactive, FramesMayBeSentWithoutWaiting) {
  const Xid xid = begin();
  auto one = client();
  const std::uint64_t requests[] = {
      one->send(FakePeer::join(xid)), one->send(FakePeer::execute(xid, {write("a", 1)})),
      one->send(FakePeer::execute(xid, {write("b", 2)})), one->send(FakePeer::end(xid))};
  for (const std::uint64_t request : requests) EXPECT_EQ(code_of(one->answer(request)), Xa::ok);
  EXPECT_EQ(main_->code(FakePeer::commit_one_phase(xid, main_->welcome().incarnation(), 2)),
            Xa::ok);
  EXPECT_EQ(value_of(*main_, "b"), written(2));
}

TEST_P(Interactive, LocksAreHeldBetweenTheWorks) {
  const Xid xid = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {read("k")})), Xa::ok);
  expect_locked(*main_, "k");
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 1)})), Xa::ok);  // an upgrade
  EXPECT_EQ(one->code(FakePeer::end(xid)), Xa::ok);
  expect_locked(*main_, "k");
  EXPECT_EQ(main_->code(FakePeer::rollback(xid)), Xa::ok);
  expect_free(*main_, "k");
  EXPECT_EQ(value_of(*main_, "k"), Value{});
}

TEST_P(Interactive, ItBringsNoWorkOfItsOwn) {
  wire::Frame start = FakePeer::start(branch_xid(1), {write("k", 1)}, wire::THEN_NOTHING);
  start.mutable_start()->set_interactive(true);
  EXPECT_EQ(main_->code(start), Xa::er_inval);
  start = FakePeer::start(branch_xid(1), {}, wire::THEN_PREPARE);
  start.mutable_start()->set_interactive(true);
  EXPECT_EQ(main_->code(start), Xa::er_inval);
}

TEST_P(Interactive, WithoutWorkItVotesReadOnly) {
  const Xid xid = begin();
  EXPECT_EQ(vote(xid, 0), Xa::rdonly);
  EXPECT_EQ(main_->code(FakePeer::release(xid)), Xa::ok);
}

TEST_P(Interactive, TheVoteCountsTheWorks) {
  for (const std::uint64_t counted : {0, 2}) {
    const Xid xid = begin();
    auto one = client();
    EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
    EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 1)})), Xa::ok);
    EXPECT_EQ(one->code(FakePeer::end(xid)), Xa::ok);
    EXPECT_EQ(vote(xid, counted), Xa::rbrollback);
    EXPECT_EQ(main_->code(FakePeer::rollback(xid)), Xa::er_nota);
    expect_free(*main_, "k");
  }
}

// ---- threads of control -------------------------------------------------------------------------

TEST_P(Interactive, AThreadHasOneBranchJoined) {
  const Xid first = begin(), second = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(first)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::join(first)), Xa::er_proto);
  EXPECT_EQ(one->code(FakePeer::join(second)), Xa::er_proto);
  EXPECT_EQ(one->code(FakePeer::join(second, 2)), Xa::ok);   // another thread
  EXPECT_EQ(client()->code(FakePeer::join(first)), Xa::ok);  // the same number, another client
  EXPECT_EQ(one->code(FakePeer::execute(first, {write("k", 1)}, 2)), Xa::er_proto);
  EXPECT_EQ(one->code(FakePeer::end(first, wire::End::SUCCESS, 3)), Xa::er_proto);
}

TEST_P(Interactive, AThreadSuspendsAndResumes) {
  const Xid first = begin(), second = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(first, 1, true)), Xa::er_proto);  // has not suspended it
  EXPECT_EQ(one->code(FakePeer::join(first)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::end(first, wire::End::SUSPEND)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(first, {write("k", 1)})), Xa::er_proto);
  EXPECT_EQ(one->code(FakePeer::join(first)), Xa::er_proto);  // it is to be resumed
  EXPECT_EQ(one->code(FakePeer::join(second)), Xa::ok);       // meanwhile
  EXPECT_EQ(one->code(FakePeer::end(second)), Xa::ok);
  EXPECT_EQ(vote(first, 0), Xa::er_proto);  // a part has not ended
  EXPECT_EQ(one->code(FakePeer::join(first, 1, true)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(first, {write("k", 1)})), Xa::ok);
  EXPECT_EQ(vote(first, 1), Xa::er_proto);
  EXPECT_EQ(one->code(FakePeer::end(first)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::end(first)), Xa::er_proto);
  EXPECT_EQ(vote(first, 1), Xa::ok);
  EXPECT_EQ(main_->code(FakePeer::commit(first)), Xa::ok);
}

TEST_P(Interactive, APartEndedAsFailedDoomsTheBranch) {
  const Xid xid = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 1)})), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::end(xid, wire::End::FAIL)), Xa::ok);
  EXPECT_TRUE(is_rollback(client()->code(FakePeer::join(xid))));
  EXPECT_TRUE(is_rollback(vote(xid, 1)));
  EXPECT_EQ(main_->code(FakePeer::rollback(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main_, "k"), Value{});
}

TEST_P(Interactive, WorkThatFailsDoomsTheBranch) {
  const Xid xid = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  const wire::Frame failed = one->ask(FakePeer::execute(xid, {write("k", 1), fail("none")}));
  EXPECT_EQ(code_of(failed), Xa::rbintegrity);
  EXPECT_EQ(failed.branch_answer().refusals_size(), 1);
  EXPECT_TRUE(is_rollback(one->code(FakePeer::execute(xid, {write("k", 1)}))));
  EXPECT_TRUE(is_rollback(one->code(FakePeer::end(xid))));  // and yet it has ended
  EXPECT_TRUE(is_rollback(vote(xid, 0)));
  expect_locked(*main_, "k");
  EXPECT_EQ(main_->code(FakePeer::rollback(xid)), Xa::ok);
  expect_free(*main_, "k");
}

// ---- where a client has no part -----------------------------------------------------------------

TEST_P(Interactive, SubmittedVotedAndEndedBranchesAreNotJoined) {
  auto one = client();
  const Xid submitted = next_xid();
  EXPECT_EQ(main_->code(FakePeer::start(submitted, {write("s", 1)}, wire::THEN_NOTHING)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::join(submitted)), Xa::er_proto);
  const Xid voted = begin();
  EXPECT_EQ(vote(voted, 0), Xa::rdonly);
  EXPECT_EQ(one->code(FakePeer::join(voted)), Xa::er_proto);
  EXPECT_EQ(main_->code(FakePeer::release(voted)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::join(voted)), Xa::er_nota);
  EXPECT_EQ(one->code(FakePeer::execute(voted, {write("k", 1)})), Xa::er_nota);
  EXPECT_EQ(one->code(FakePeer::end(voted)), Xa::er_nota);
  EXPECT_EQ(one->code(FakePeer::join(branch_xid(5))), Xa::er_nota);
}

// ---- connections that end -----------------------------------------------------------------------

// Rule 10: it cancels what waits, and nothing else.
TEST_P(Interactive, AClientThatLeavesTakesItsPartAndItsWaitsAlong) {
  const Xid holder = prepared(*main_, "k", 7);
  const Xid xid = begin();
  auto one = client(), two = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("a", 1)})), Xa::ok);
  one->send(FakePeer::execute(xid, {write("k", 8)}));  // waits
  one->send(FakePeer::execute(xid, {write("b", 2)}));  // behind that
  one->flush();
  const std::uint64_t joins = two->send(FakePeer::join(xid));  // may have to wait behind both
  two->flush();
  one.reset();
  EXPECT_EQ(code_of(two->answer(joins)), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::execute(xid, {write("c", 3)})), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::end(xid)), Xa::ok);
  EXPECT_EQ(vote(xid, 2), Xa::ok);
  EXPECT_EQ(main_->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main_, "a"), written(1));
  EXPECT_EQ(value_of(*main_, "b"), Value{});
  EXPECT_EQ(value_of(*main_, "c"), written(3));
  EXPECT_EQ(main_->code(FakePeer::commit(holder)), Xa::ok);
  EXPECT_EQ(value_of(*main_, "k"), written(7));
}

TEST_P(Interactive, TheBranchEndsWithItsCoordinatorsSession) {
  const Xid xid = begin();
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 1)})), Xa::ok);
  main_ = session();
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 2)})), Xa::er_nota);
  expect_free(*main_, "k");
  EXPECT_EQ(one->code(FakePeer::join(begin())), Xa::ok);  // the thread is free again
}

TEST_P(Interactive, TheBranchEndsAtItsDeadline) {
  const Xid xid = begin(2'000);
  auto one = client();
  EXPECT_EQ(one->code(FakePeer::join(xid)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(xid, {write("k", 1)})), Xa::ok);
  expect_free(*main_, "k");  // waits until it has ended
  EXPECT_EQ(one->code(FakePeer::end(xid)), Xa::er_nota);
}

// A circle of two in one place: one of them is the victim, and lets go at once.
TEST_P(Interactive, ADeadlockHasAVictim) {
  const Xid first = begin(), second = begin();
  auto one = client(), two = client();
  EXPECT_EQ(one->code(FakePeer::join(first)), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::join(second)), Xa::ok);
  EXPECT_EQ(one->code(FakePeer::execute(first, {write("a", 1)})), Xa::ok);
  EXPECT_EQ(two->code(FakePeer::execute(second, {write("b", 2)})), Xa::ok);
  const std::uint64_t waits = one->send(FakePeer::execute(first, {write("b", 1)}));
  one->flush();
  settle(*main_);
  const std::uint64_t closes = two->send(FakePeer::execute(second, {write("a", 2)}));
  const Xa a = code_of(one->answer(waits)), b = code_of(two->answer(closes));
  EXPECT_TRUE((a == Xa::ok && b == Xa::rbdeadlock) || (a == Xa::rbdeadlock && b == Xa::ok))
      << name(a) << " " << name(b);
  EXPECT_EQ(main_->code(FakePeer::rollback(first)), Xa::ok);
  EXPECT_EQ(main_->code(FakePeer::rollback(second)), Xa::ok);
  expect_free(*main_, "a");
  expect_free(*main_, "b");
}

}  // namespace
}  // namespace twofold::conformance
