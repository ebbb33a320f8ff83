// Verbs where they do not belong: each is answered as docs/protocol.md says, and changes nothing.
#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

struct Misplaced {
  const char* what;
  wire::Frame verb;
  Xa answer;
};

void expect(FakePeer& peer, const std::vector<Misplaced>& verbs) {
  for (const Misplaced& one : verbs) {
    EXPECT_EQ(peer.code(one.verb), one.answer) << one.what;
  }
}

TEST_P(Participant, VerbsOnWhatIsNotHere) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  expect(*main, {{"prepare", FakePeer::prepare(xid, here, 0), Xa::er_nota},
                 {"commit", FakePeer::commit(xid), Xa::er_nota},
                 {"one phase", FakePeer::commit_one_phase(xid, here, 0), Xa::er_nota},
                 {"rollback", FakePeer::rollback(xid), Xa::er_nota},
                 {"release", FakePeer::release(xid), Xa::er_nota},
                 {"forget", FakePeer::forget(xid), Xa::er_nota}});
}

TEST_P(Participant, VerbsOnAnActiveBranch) {
  auto main = session();
  const Xid xid = branch_xid(1);
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7)}, wire::THEN_NOTHING)), Xa::ok);
  expect(*main, {{"start", FakePeer::start(xid, {write("k", 8)}), Xa::er_dupid},
                 {"commit", FakePeer::commit(xid), Xa::er_proto},
                 {"release", FakePeer::release(xid), Xa::er_proto},
                 {"forget", FakePeer::forget(xid), Xa::er_nota}});
  EXPECT_EQ(main->code(FakePeer::prepare(xid, main->welcome().incarnation(), 1)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

TEST_P(Participant, VerbsOnAWaitingBranch) {
  auto main = session();
  const Xid holder = prepared(*main, "k", 7);
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  const std::uint64_t start = main->send(FakePeer::start(xid, {write("k", 8)}));
  expect(*main, {{"start", FakePeer::start(xid, {write("k", 9)}), Xa::er_dupid},
                 {"prepare", FakePeer::prepare(xid, here, 1), Xa::er_proto},
                 {"commit", FakePeer::commit(xid), Xa::er_proto},
                 {"one phase", FakePeer::commit_one_phase(xid, here, 1), Xa::er_proto},
                 {"release", FakePeer::release(xid), Xa::er_proto}});
  EXPECT_EQ(main->code(FakePeer::rollback(holder)), Xa::ok);
  EXPECT_EQ(code_of(main->answer(start)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), written(8));
}

TEST_P(Participant, VerbsOnAReadOnlyVote) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  EXPECT_EQ(main->code(FakePeer::start(xid, {read("k")})), Xa::rdonly);
  expect(*main, {{"start", FakePeer::start(xid, {read("k")}), Xa::er_dupid},
                 {"prepare", FakePeer::prepare(xid, here, 1), Xa::er_proto},
                 {"commit", FakePeer::commit(xid), Xa::er_proto},
                 {"one phase", FakePeer::commit_one_phase(xid, here, 1), Xa::er_proto},
                 {"forget", FakePeer::forget(xid), Xa::er_nota}});
  expect_locked(*main, "k");
  EXPECT_EQ(main->code(FakePeer::release(xid)), Xa::ok);
}

TEST_P(Participant, VerbsOnARefusedBranch) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7), fail("none")})), Xa::rbintegrity);
  expect(*main, {{"start", FakePeer::start(xid, {write("k", 8)}), Xa::er_dupid},
                 {"commit", FakePeer::commit(xid), Xa::er_proto},
                 {"release", FakePeer::release(xid), Xa::er_proto}});
  EXPECT_TRUE(is_rollback(main->code(FakePeer::prepare(xid, here, 1))));
  expect_locked(*main, "k");
  EXPECT_EQ(main->code(FakePeer::rollback(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), Value{});
}

TEST_P(Participant, OnePhaseEndsARefusedBranch) {
  auto main = session();
  const Xid xid = branch_xid(1);
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7), fail("none")}, wire::THEN_NOTHING)),
            Xa::rbintegrity);
  EXPECT_TRUE(
      is_rollback(main->code(FakePeer::commit_one_phase(xid, main->welcome().incarnation(), 1))));
  EXPECT_EQ(main->code(FakePeer::rollback(xid)), Xa::er_nota);
  expect_free(*main, "k");
  EXPECT_EQ(value_of(*main, "k"), Value{});
}

TEST_P(Participant, VerbsOnAPreparedBranch) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7)})), Xa::ok);
  expect(*main, {{"start", FakePeer::start(xid, {write("k", 8)}), Xa::er_dupid},
                 {"prepare", FakePeer::prepare(xid, here, 1), Xa::er_proto},
                 {"one phase", FakePeer::commit_one_phase(xid, here, 1), Xa::er_proto},
                 {"release", FakePeer::release(xid), Xa::er_proto},
                 {"forget", FakePeer::forget(xid), Xa::er_nota}});
  EXPECT_EQ(main->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

TEST_P(Participant, VerbsOnACommittedBranch) {
  auto main = session();
  const Xid xid = branch_xid(1);
  const std::uint64_t here = main->welcome().incarnation();
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7)})), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  expect(*main, {{"prepare", FakePeer::prepare(xid, here, 1), Xa::er_nota},
                 {"commit", FakePeer::commit(xid), Xa::er_nota},
                 {"one phase", FakePeer::commit_one_phase(xid, here, 1), Xa::er_nota},
                 {"rollback", FakePeer::rollback(xid), Xa::heurcom},
                 {"release", FakePeer::release(xid), Xa::er_nota}});
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

// The second finds a branch that is being committed, or none that is left.
TEST_P(Participant, ACommitSentTwiceIsDoneOnce) {
  auto main = session();
  const Xid xid = prepared(*main, "k", 7);
  const std::uint64_t first = main->send(FakePeer::commit(xid));
  const std::uint64_t second = main->send(FakePeer::commit(xid));
  EXPECT_EQ(code_of(main->answer(first)), Xa::ok);
  const Xa again = code_of(main->answer(second));
  EXPECT_TRUE(again == Xa::ok || again == Xa::er_nota) << name(again);
  EXPECT_EQ(value_of(*main, "k"), written(7));
}

// ---- whose xid it is ----------------------------------------------------------------------------

TEST_P(Participant, XidsThatNoTwofoldMade) {
  auto main = session();
  Xid empty = branch_xid(1);
  empty.gtrid.clear();
  for (const Xid& xid : {foreign_xid(), empty}) {
    expect(*main, {{"start", FakePeer::start(xid, {write("k", 7)}), Xa::er_inval},
                   {"prepare", FakePeer::prepare(xid, 1, 1), Xa::er_inval},
                   {"commit", FakePeer::commit(xid), Xa::er_inval},
                   {"rollback", FakePeer::rollback(xid), Xa::er_inval},
                   {"release", FakePeer::release(xid), Xa::er_inval},
                   {"forget", FakePeer::forget(xid), Xa::er_inval}});
  }
  EXPECT_TRUE(main->recover().empty());
}

TEST_P(Participant, ASessionStartsBranchesOfItsOwnEpochOnly) {
  auto main = session(2);
  Xid other_log = branch_xid(1, 2);
  other_log.gtrid[0] ^= 1;
  for (const Xid& xid :
       {branch_xid(1, 1), branch_xid(1, 3), branch_xid(1, 2, "other"), other_log}) {
    EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 7)})), Xa::er_inval);
  }
}

TEST_P(Participant, AnotherCoordinatorsBranchIsNotHere) {
  auto main = session();
  auto other = session(1, "other");
  const Xid xid = prepared(*main, "k", 7);
  expect(*other, {{"prepare", FakePeer::prepare(xid, 1, 1), Xa::er_nota},
                  {"commit", FakePeer::commit(xid), Xa::er_nota},
                  {"rollback", FakePeer::rollback(xid), Xa::er_nota},
                  {"release", FakePeer::release(xid), Xa::er_nota}});
  EXPECT_TRUE(other->recover().empty());
  EXPECT_EQ(main->recover(), std::vector<Xid>{xid});
}

TEST_P(Participant, NoTimeLeftIsATimeout) {
  auto main = session();
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7)}, wire::THEN_PREPARE, 0)),
            Xa::rbtimeout);
}

}  // namespace
}  // namespace twofold::conformance
