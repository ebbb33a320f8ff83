// Recover, AskOutcome and Mark of docs/protocol.md (rules 14, 16 and 18).
#include <algorithm>
#include <set>

#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

std::set<Xid> as_set(const std::vector<Xid>& xids) {
  return {xids.begin(), xids.end()};
}

class Scan {
 public:
  explicit Scan(FakePeer& peer) : peer_(peer) {}
  // How many branches the answer holds; the answer is a Failure: none.
  std::optional<int> ask(bool start, std::uint32_t batch, bool close = false) {
    const wire::Frame answer = peer_.ask(FakePeer::recover_frame(start, batch, close));
    if (answer.has_failure()) {
      EXPECT_EQ(answer.failure().code(), wire::FAILURE_REQUEST);
      return std::nullopt;
    }
    EXPECT_TRUE(answer.has_recover_answer());
    end = answer.recover_answer().end();
    for (const auto& branch : answer.recover_answer().branches()) {
      EXPECT_FALSE(branch.busy());
      EXPECT_EQ(branch.heuristic(), 0);
      EXPECT_TRUE(told.insert(from_wire(branch.xid()).value()).second);
    }
    return answer.recover_answer().branches_size();
  }
  std::set<Xid> told;
  bool end = false;

 private:
  FakePeer& peer_;
};

TEST_P(Participant, NothingInDoubtIsACompleteEmptyScan) {
  auto main = session();
  Scan scan(*main);
  EXPECT_EQ(scan.ask(true, 10), 0);
  EXPECT_TRUE(scan.end);
}

TEST_P(Participant, AScanGoesOnInBatches) {
  auto main = session();
  std::set<Xid> all;
  for (int i = 0; i < 5; ++i) all.insert(prepared(*main, "k" + std::to_string(i), i));
  Scan scan(*main);
  EXPECT_EQ(scan.ask(true, 2), 2);
  EXPECT_FALSE(scan.end);
  EXPECT_EQ(scan.ask(false, 0), 1);  // 0 counts as 1
  prepared(*main, "later", 1);       // for the next scan
  EXPECT_EQ(scan.ask(false, 1'000), 2);
  EXPECT_TRUE(scan.end);
  EXPECT_EQ(scan.told, all);
  EXPECT_EQ(scan.ask(false, 10), std::nullopt);  // that scan is over
  EXPECT_EQ(as_set(main->recover()).size(), 6u);
}

TEST_P(Participant, AScanIsClosedOrBegunAnew) {
  auto main = session();
  for (int i = 0; i < 3; ++i) prepared(*main, "k" + std::to_string(i), i);
  EXPECT_EQ(Scan(*main).ask(false, 10), std::nullopt);
  Scan closed(*main);
  EXPECT_EQ(closed.ask(true, 1, true), 1);
  EXPECT_EQ(closed.ask(false, 10), std::nullopt);
  Scan unfinished(*main), whole(*main);
  EXPECT_EQ(unfinished.ask(true, 1), 1);
  EXPECT_EQ(whole.ask(true, 10), 3);
  EXPECT_TRUE(whole.end);
  EXPECT_EQ(whole.ask(false, 10), std::nullopt);
}

TEST_P(Participant, AScanIsOfItsSession) {
  {
    auto older = session();
    for (int i = 0; i < 3; ++i) prepared(*older, "k" + std::to_string(i), i);
    EXPECT_EQ(Scan(*older).ask(true, 1), 1);
  }
  auto newer = session();
  EXPECT_EQ(Scan(*newer).ask(false, 10), std::nullopt);
  EXPECT_EQ(newer->recover().size(), 3u);
}

TEST_P(Participant, OnlyWhatIsInDoubtIsListed) {
  auto main = session();
  const Xid voted = prepared(*main, "voted", 1);
  main->code(FakePeer::start(next_xid(), {write("active", 1)}, wire::THEN_NOTHING));
  main->code(FakePeer::start(next_xid(), {read("reader")}));
  main->code(FakePeer::start(next_xid(), {fail("none")}));
  main->send(FakePeer::start(next_xid(), {write("voted", 2)}));
  main->code(FakePeer::commit(prepared(*main, "committed", 1)));
  main->code(FakePeer::rollback(prepared(*main, "rolled-back", 1)));
  EXPECT_EQ(main->recover(), std::vector<Xid>{voted});
}

// ---- evidence -----------------------------------------------------------------------------------

TEST_P(Participant, EvidenceOfEachState) {
  auto main = session();
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::NONE);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {write("k", 7)}, wire::THEN_NOTHING)),
            Xa::ok);
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::BUSY);
  EXPECT_EQ(main->code(FakePeer::prepare(branch_xid(1), main->welcome().incarnation(), 1)), Xa::ok);
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::PREPARED);
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(1))), Xa::ok);
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::COMMITTED);
  const Xid undone = prepared(*main, "k", 8);
  EXPECT_EQ(main->code(FakePeer::rollback(undone)), Xa::ok);
  EXPECT_EQ(main->outcome_of(undone), wire::Evidence::NONE);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(2), {read("k")})), Xa::rdonly);
  EXPECT_EQ(main->outcome_of(branch_xid(2)), wire::Evidence::BUSY);

  restart();
  main = session();
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::COMMITTED);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::heurcom);
  // The rollback need not have been forced.
  for (const Xid& xid : main->recover()) {
    EXPECT_EQ(xid, undone);
    EXPECT_EQ(main->code(FakePeer::rollback(xid)), Xa::ok);
  }
  EXPECT_EQ(main->outcome_of(undone), wire::Evidence::NONE);
}

TEST_P(Participant, EvidenceOfAnotherStoreNodeOrMakerIsImpossible) {
  auto main = session();
  const Xid xid = prepared(*main, "k", 7);
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  const std::uint64_t here = main->welcome().store_id();
  const auto kind = [&](const Xid& asked, std::uint64_t store_id) {
    return main->ask(FakePeer::ask_outcome(asked, store_id)).evidence().kind();
  };
  EXPECT_EQ(kind(xid, here), wire::Evidence::COMMITTED);
  EXPECT_EQ(kind(xid, here + 1), wire::Evidence::IMPOSSIBLE);
  EXPECT_EQ(kind(branch_xid(1), here + 1), wire::Evidence::IMPOSSIBLE);
  EXPECT_EQ(kind(branch_xid(1, 1, "other"), 0), wire::Evidence::IMPOSSIBLE);
  EXPECT_EQ(kind(foreign_xid(), 0), wire::Evidence::IMPOSSIBLE);
}

// ---- the low-water mark -------------------------------------------------------------------------

TEST_P(Participant, BelowTheMarkBranchesHaveEnded) {
  auto main = session();
  const Xid old = prepared(*main, "old", 1);  // 1001: below, and still here
  const Xid ended = prepared(*main, "k", 7);  // 1002
  EXPECT_EQ(main->code(FakePeer::commit(ended)), Xa::ok);
  main->mark({1, 1'010});
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(5), {write("k", 8)})), Xa::rbrollback);
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(5))), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(5))), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit(ended)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(ended)), Xa::ok);
  EXPECT_EQ(main->outcome_of(ended), wire::Evidence::IMPOSSIBLE);
  // Of a one-phase commit the mark proves nothing.
  EXPECT_EQ(main->code(FakePeer::commit_one_phase(branch_xid(5), 1, 1)), Xa::er_nota);
  EXPECT_EQ(main->recover(), std::vector<Xid>{old});
  EXPECT_EQ(main->outcome_of(old), wire::Evidence::PREPARED);
  EXPECT_EQ(main->code(FakePeer::commit(old)), Xa::ok);  // what is here is always taken
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1'010), {read("k")})), Xa::rdonly);
}

TEST_P(Participant, AMarkThatDoesNotRiseOrIsOfALaterEpochIsIgnored) {
  auto main = session();
  main->mark({1, 10});
  main->mark({1, 5});
  main->mark({2, 1});
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(9), {write("k", 7)})), Xa::rbrollback);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(10), {write("k", 7)})), Xa::ok);
}

// Stored no later than the first purge that it permits: evidence is never wrong, only missing.
TEST_P(Participant, AMarkAndWhatItPurgesSurviveTogether) {
  for (int round = 0; round < 5; ++round) {
    auto main = session();
    const Xid xid = prepared(*main, "k", 7);
    EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
    main->mark({1, Gtrid::decode(xid.gtrid)->sequence + 1});
    main->flush();
    if (round % 2 == 0) settle(*main);
    main.reset();
    restart();
    const wire::Evidence::Kind evidence = session()->outcome_of(xid);
    EXPECT_TRUE(evidence == wire::Evidence::COMMITTED || evidence == wire::Evidence::IMPOSSIBLE)
        << evidence;
  }
}

TEST_P(Participant, AMarkIsOfItsNode) {
  auto main = session();
  auto other = session(1, "other");
  const Xid xid = prepared(*main, "k", 7);
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  other->mark({1, 1'000'000});
  settle(*other);
  EXPECT_EQ(main->outcome_of(xid), wire::Evidence::COMMITTED);
}

}  // namespace
}  // namespace twofold::conformance
