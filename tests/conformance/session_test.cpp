// "Sessions" of docs/protocol.md (rules 2 and 15): who is taken, and what a newer one ends.
#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

wire::Hello with_nonce(wire::Hello hello, std::uint64_t nonce) {
  hello.set_nonce(nonce);
  return hello;
}
wire::Hello with_log(wire::Hello hello, std::uint64_t log_id, bool rebuild) {
  hello.set_log_id(log_id);
  hello.set_rebuild(rebuild);
  return hello;
}

TEST_P(Participant, OnlyANewerSessionIsTaken) {
  auto main = connect(coordinator_hello(5));
  ASSERT_FALSE(main->refused());
  EXPECT_TRUE(connect(coordinator_hello(5))->refused());
  EXPECT_TRUE(connect(coordinator_hello(4))->refused());
  EXPECT_TRUE(main->recover().empty());  // the older one goes on
  EXPECT_FALSE(connect(coordinator_hello(6))->refused());
  EXPECT_FALSE(connect(coordinator_hello(1, 1, "other"))->refused());  // each node for itself
}

TEST_P(Participant, AStaleEpochIsRefused) {
  EXPECT_FALSE(connect(coordinator_hello(1, 2))->refused());
  EXPECT_TRUE(connect(coordinator_hello(9, 1))->refused());
  EXPECT_TRUE(connect(with_nonce(coordinator_hello(9, 2), 1))->refused());
  EXPECT_FALSE(connect(coordinator_hello(1, 3))->refused());  // counters begin anew
  EXPECT_TRUE(connect(coordinator_hello(9, 2))->refused());
}

TEST_P(Participant, AnEpochIsStaleForEver) {
  EXPECT_FALSE(connect(coordinator_hello(7, 2))->refused());
  restart();
  EXPECT_TRUE(connect(coordinator_hello(9, 1))->refused());
  EXPECT_TRUE(connect(with_nonce(coordinator_hello(9, 2), 1))->refused());
  EXPECT_TRUE(connect(with_log(coordinator_hello(9, 2), kLog.value + 1, false))->refused());
  EXPECT_FALSE(connect(coordinator_hello(1, 2))->refused());  // counters are of a process
}

TEST_P(Participant, AnotherLogIsTakenToRebuildOnly) {
  EXPECT_FALSE(connect(coordinator_hello(1, 5))->refused());
  EXPECT_TRUE(connect(with_log(coordinator_hello(2, 6), kLog.value + 1, false))->refused());
  EXPECT_FALSE(connect(with_log(coordinator_hello(1, 1), kLog.value + 1, true))->refused());
  EXPECT_TRUE(connect(coordinator_hello(9, 9))->refused());  // the old log is another one now
  restart();
  EXPECT_TRUE(connect(coordinator_hello(9, 9))->refused());
  EXPECT_FALSE(connect(with_log(coordinator_hello(1, 2), kLog.value + 1, false))->refused());
}

// Rule 2: reported, never presumed aborted. The new log may not end what it has not begun.
TEST_P(Participant, BranchesOfAnotherLogAreListedAndLeftAlone) {
  Xid xid;
  {
    auto main = session();
    xid = prepared(*main, "k", 7);
  }
  auto rebuilt = connect(with_log(coordinator_hello(1), kLog.value + 1, true));
  ASSERT_FALSE(rebuilt->refused());
  EXPECT_EQ(rebuilt->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(rebuilt->code(FakePeer::commit(xid)), Xa::er_nota);
  EXPECT_EQ(rebuilt->code(FakePeer::rollback(xid)), Xa::er_nota);
  EXPECT_EQ(rebuilt->outcome_of(xid), wire::Evidence::IMPOSSIBLE);
  EXPECT_EQ(rebuilt->recover(), std::vector<Xid>{xid});
}

// Rule 2: the copy has raised its own epoch above the one that is known, and never recorded that.
TEST_P(Participant, AnOlderCopyOfTheLogIsRefusedWhateverItsEpoch) {
  EXPECT_FALSE(connect(coordinator_hello(1, 3))->refused());
  wire::Hello copy = coordinator_hello(1, 6);
  copy.set_earlier(2, ~std::uint64_t{0});  // its epoch 3 was another
  for (int times = 0; times < 2; ++times) {
    auto refused = connect(copy);
    ASSERT_TRUE(refused->refused());
    EXPECT_EQ(refused->refused()->fault, Fault::outdated);
    copy.mutable_earlier()->Truncate(2);  // it must go back as far as it can
  }
  EXPECT_EQ(connect(coordinator_hello(1, 2))->refused()->fault, Fault::outdated);
  EXPECT_EQ(connect(with_nonce(coordinator_hello(9, 3), 1))->refused()->fault, Fault::outdated);
  EXPECT_FALSE(connect(coordinator_hello(1, 6))->refused());
}

// It names the log ids that it had: their branches are its own, in this process and in later ones.
TEST_P(Participant, ARestoredLogIsTakenAndEndsTheBranchesOfItsFormerOne) {
  Xid first, second, third;
  {
    auto main = session();
    first = prepared(*main, "a", 1);
    second = prepared(*main, "b", 1);
    third = prepared(*main, "c", 1);
  }
  wire::Hello hello = with_log(coordinator_hello(1), kLog.value + 1, false);
  hello.add_former_logs(kLog.value + 2);
  EXPECT_TRUE(connect(hello)->refused());  // none of them is the known one
  hello.add_former_logs(kLog.value);
  {
    auto restored = connect(hello);
    ASSERT_FALSE(restored->refused()) << restored->refused()->message;
    EXPECT_EQ(restored->recover().size(), 3u);
    EXPECT_EQ(restored->code(FakePeer::commit(first)), Xa::ok);
    EXPECT_EQ(restored->code(FakePeer::start(next_xid(), {write("d", 1)})), Xa::er_inval);
  }
  restart();
  EXPECT_TRUE(connect(coordinator_hello(9, 9))->refused());  // the former log itself no more
  hello.set_session(2);
  auto later = connect(hello);
  ASSERT_FALSE(later->refused()) << later->refused()->message;
  EXPECT_EQ(later->outcome_of(first), wire::Evidence::COMMITTED);
  EXPECT_EQ(later->outcome_of(second), wire::Evidence::PREPARED);
  EXPECT_EQ(later->code(FakePeer::commit(second)), Xa::ok);
  EXPECT_EQ(later->code(FakePeer::rollback(third)), Xa::ok);
  EXPECT_TRUE(later->recover().empty());
}

// Its low-water mark goes on to count for its branches: they have ended.
TEST_P(Participant, AFormerLogKeepsItsLowWaterMark) {
  {
    auto main = session();
    main->mark({1, 100});
    settle(*main);
  }
  wire::Hello hello = with_log(coordinator_hello(1), kLog.value + 1, false);
  hello.add_former_logs(kLog.value);
  for (const bool again : {false, true}) {
    if (again) restart();
    hello.set_session(again ? 2 : 1);
    auto restored = connect(hello);
    ASSERT_FALSE(restored->refused()) << restored->refused()->message;
    EXPECT_EQ(restored->code(FakePeer::commit(branch_xid(99))), Xa::ok);
    EXPECT_EQ(restored->outcome_of(branch_xid(99)), wire::Evidence::IMPOSSIBLE);
    EXPECT_EQ(restored->code(FakePeer::commit(branch_xid(100))), Xa::er_nota);
  }
}

// ---- fencing ------------------------------------------------------------------------------------

TEST_P(Participant, ANewerSessionEndsTheOlderOne) {
  auto older = session();
  const std::uint64_t here = older->welcome().incarnation();
  const Xid voted = prepared(*older, "voted", 1), active = next_xid(), reader = next_xid(),
            refused = next_xid(), waiter = next_xid();
  EXPECT_EQ(older->code(FakePeer::start(active, {write("active", 1)}, wire::THEN_NOTHING)), Xa::ok);
  EXPECT_EQ(older->code(FakePeer::start(reader, {read("reader")})), Xa::rdonly);
  EXPECT_EQ(older->code(FakePeer::start(refused, {write("refused", 1), fail("none")})),
            Xa::rbintegrity);
  older->send(FakePeer::start(waiter, {write("voted", 2), write("waiter", 2)}));
  settle(*older);

  auto newer = session();
  older->wait_closed();
  EXPECT_EQ(newer->recover(), std::vector<Xid>{voted});
  for (const Xid& gone : {active, reader, refused, waiter}) {
    EXPECT_EQ(newer->code(FakePeer::prepare(gone, here, 1)), Xa::er_nota);
    EXPECT_EQ(newer->outcome_of(gone), wire::Evidence::NONE);
  }
  for (const char* key : {"active", "reader", "refused", "waiter"}) expect_free(*newer, key);
  expect_locked(*newer, "voted");
  EXPECT_EQ(newer->code(FakePeer::commit(voted)), Xa::ok);
  EXPECT_EQ(value_of(*newer, "voted"), written(1));
}

// What an older session sends when the newer one has been welcomed runs never: the newer one has
// drawn its conclusions from what was listed.
TEST_P(Participant, LateVerbsOfAnOlderSessionDoNotRun) {
  boost::asio::io_context other;  // so that this side has not heard of its end
  auto older = connect(other, coordinator_hello(1));
  const Xid voted = branch_xid(1), active = branch_xid(2), late = branch_xid(3);
  EXPECT_EQ(older->code(FakePeer::start(voted, {write("voted", 1)})), Xa::ok);
  EXPECT_EQ(older->code(FakePeer::start(active, {write("active", 1)}, wire::THEN_NOTHING)), Xa::ok);
  auto newer = connect(coordinator_hello(2));
  ASSERT_FALSE(newer->refused());

  older->send(FakePeer::commit(voted));
  older->send(FakePeer::prepare(active, older->welcome().incarnation(), 1));
  older->send(FakePeer::start(late, {write("late", 1)}));
  older->flush();
  older->wait_closed();
  EXPECT_EQ(newer->recover(), std::vector<Xid>{voted});
  EXPECT_EQ(newer->outcome_of(active), wire::Evidence::NONE);
  EXPECT_EQ(newer->outcome_of(late), wire::Evidence::NONE);
  EXPECT_EQ(newer->code(FakePeer::rollback(voted)), Xa::ok);
  EXPECT_EQ(value_of(*newer, "voted"), Value{});
}

// Sent before the newer session asks, and perhaps taken before: then it is done, and listed.
TEST_P(Participant, AVerbUnderWayIsDoneOrNot) {
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const Xid xid = branch_xid(round);
    const std::string key = "k" + std::to_string(round);
    boost::asio::io_context other;
    auto older = connect(other, coordinator_hello(2 * round - 1));
    older->send(FakePeer::start(xid, {write(key, 1)}));
    older->flush();
    auto newer = connect(coordinator_hello(2 * round));
    ASSERT_FALSE(newer->refused());
    const bool listed = newer->recover() == std::vector<Xid>{xid};
    if (!listed) {
      EXPECT_EQ(newer->outcome_of(xid), wire::Evidence::NONE);
    }
    EXPECT_EQ(newer->code(FakePeer::commit(xid)), listed ? Xa::ok : Xa::er_nota);
    EXPECT_EQ(value_of(*newer, key), listed ? written(1) : Value{});
    expect_free(*newer, key);
  }
}

TEST_P(Participant, ALostConnectionEndsItsSession) {
  auto first = session();
  const Xid voted = prepared(*first, "voted", 1), active = next_xid(), reader = next_xid();
  EXPECT_EQ(first->code(FakePeer::start(active, {write("active", 1)}, wire::THEN_NOTHING)), Xa::ok);
  EXPECT_EQ(first->code(FakePeer::start(reader, {read("reader")})), Xa::rdonly);
  first.reset();
  auto other = session(1, "other");  // nobody of that node has come back
  for (const char* key : {"active", "reader"}) {
    Xid xid = branch_xid(1, 1, "other");
    EXPECT_EQ(other->code(FakePeer::start(xid, {write(key, 2)}, wire::THEN_NOTHING)), Xa::ok);
    EXPECT_EQ(other->code(FakePeer::rollback(xid)), Xa::ok);
  }
  EXPECT_EQ(session()->recover(), std::vector<Xid>{voted});
}

TEST_P(Participant, ABranchOfAnEarlierEpochIsEndedByALaterOne) {
  Xid committed, rolled_back;
  {
    auto main = session(1);
    committed = prepared(*main, "a", 1);
    rolled_back = prepared(*main, "b", 1);
  }
  auto main = session(2);
  EXPECT_EQ(main->recover().size(), 2u);
  EXPECT_EQ(main->code(FakePeer::commit(committed)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(rolled_back)), Xa::ok);
  EXPECT_TRUE(main->recover().empty());
  EXPECT_EQ(main->outcome_of(committed), wire::Evidence::COMMITTED);
  const Xid reader = branch_xid(1, 2);
  const wire::Frame read_both = main->ask(FakePeer::start(reader, {read("a"), read("b")}));
  EXPECT_EQ(decode_results(read_both.branch_answer().results()).value(),
            (Results{written(1), Value{}}));
}

}  // namespace
}  // namespace twofold::conformance
