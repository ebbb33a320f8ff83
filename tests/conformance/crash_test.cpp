#include "tests/conformance/crash_test.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <string_view>
#include <thread>

namespace twofold::conformance {

using Left = Crash::Left;

// The first forced write is the session's node record, the second the vote, the third the end.
std::vector<Crash> crashes() {
  return {
      {"before:Start", false, false, false, Left::nothing},
      {"after:Run", false, false, false, Left::nothing},
      {"before:PersistPrepare", false, false, false, Left::nothing},
      {"after:PersistPrepare", false, false, false, Left::nothing},  // asked for, not forced yet
      {"before:Persisted#2", false, false, false, Left::in_doubt},
      {"after:Persisted#2", false, false, false, Left::in_doubt},
      {"before:Answer", false, false, false, Left::in_doubt},
      {"after:Answer", false, true, false, Left::in_doubt},
      {"before:Commit", false, true, false, Left::in_doubt},
      {"before:PersistCommit", false, true, false, Left::in_doubt},
      {"after:PersistCommit", false, true, false, Left::in_doubt},
      {"before:Persisted#3", false, true, false, Left::committed},
      {"after:Persisted#3", false, true, false, Left::committed},
      {"after:Answer#2", false, true, true, Left::committed},
      {"before:PersistRollback", true, true, false, Left::in_doubt},
      {"after:PersistRollback", true, true, false, Left::in_doubt},
  };
}

std::string test_name(const Crash& crash) {
  std::string name;
  for (const char c : std::string_view(crash.point)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

namespace {

TEST_P(CrashPoints, LeaveWhatTheirPlaceSays) {
  const Crash& crash = std::get<1>(GetParam());
  const Xid xid = branch_xid(1);
  serve({"--crash-at", crash.point});
  auto main = session();

  const std::optional<wire::Frame> vote =
      main->answer(main->send(FakePeer::start(xid, {write("k", 7), read("r")})));
  ASSERT_EQ(vote.has_value(), crash.told_vote);
  if (vote) {
    EXPECT_EQ(code_of(vote), Xa::ok);
    const std::uint64_t request =
        main->send(crash.rolls_back ? FakePeer::rollback(xid) : FakePeer::commit(xid));
    EXPECT_EQ(main->answer(request).has_value(), crash.told_end);
  }
  ASSERT_EQ(ended(), -SIGKILL) << "the point was not reached";

  serve();
  main = session();
  const bool listed = crash.left == Left::in_doubt;
  EXPECT_EQ(main->recover(), listed ? std::vector<Xid>{xid} : std::vector<Xid>{});
  EXPECT_EQ(main->outcome_of(xid), listed                          ? wire::Evidence::PREPARED
                                   : crash.left == Left::committed ? wire::Evidence::COMMITTED
                                                                   : wire::Evidence::NONE);
  if (listed) {
    expect_locked(*main, "k");
    expect_locked(*main, "r");
    EXPECT_EQ(main->code(crash.rolls_back ? FakePeer::rollback(xid) : FakePeer::commit(xid)),
              Xa::ok);
  }
  const bool commits = crash.left != Left::nothing && !crash.rolls_back;
  EXPECT_EQ(value_of(*main, "k"), commits ? written(7) : Value{});
  expect_free(*main, "k");
  expect_free(*main, "r");
  EXPECT_EQ(main->locks().entries_size(), 0);
}

}  // namespace

// ---- killed from outside ------------------------------------------------------------------------

std::optional<wire::Frame> Killed::send_and_kill(FakePeer& peer, const wire::Frame& verb,
                                                 std::optional<std::chrono::microseconds> delay) {
  const std::uint64_t request = peer.send(verb);
  std::optional<wire::Frame> answer;
  if (delay) {
    peer.flush();
    std::this_thread::sleep_for(*delay);  // chooses the moment of the kill
  } else {
    answer = peer.answer(request);
    EXPECT_TRUE(answer);
  }
  kill();
  if (delay) answer = peer.answer(request);  // it may have been under way
  serve();
  return answer;
}

void Killed::expect_in_doubt(const Xid& xid, const std::string& key, bool commits) {
  auto main = session();
  EXPECT_EQ(main->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(main->outcome_of(xid), wire::Evidence::PREPARED);
  expect_locked(*main, key);
  EXPECT_EQ(main->code(commits ? FakePeer::commit(xid) : FakePeer::rollback(xid)), Xa::ok);
  main.reset();
  expect_ended(xid, key, commits);
}

void Killed::expect_end(const Xid& xid, const std::string& key, bool in_doubt, bool commits,
                        bool committed) {
  if (in_doubt) return expect_in_doubt(xid, key, commits);
  expect_ended(xid, key, committed);
}

void Killed::expect_ended(const Xid& xid, const std::string& key, bool committed) {
  auto main = session();
  EXPECT_TRUE(main->recover().empty());
  EXPECT_EQ(main->outcome_of(xid), committed ? wire::Evidence::COMMITTED : wire::Evidence::NONE);
  EXPECT_EQ(value_of(*main, key), committed ? written(1) : Value{});
  expect_free(*main, key);
}

namespace {

using std::chrono::microseconds;

// Before the answer, at moments from "not arrived" to "long done".
const std::optional<microseconds> kMoments[] = {
    std::nullopt,        microseconds{0},     microseconds{100},   microseconds{300},
    microseconds{1'000}, microseconds{3'000}, microseconds{10'000}};

// Whether a branch is listed, in a session of its own.
template <class Session>
bool listed(Session session) {
  return !session->recover().empty();
}

TEST_P(Killed, AtItsVote) {
  bool commits = false;
  int round = 0;
  for (const bool with_work : {true, false}) {
    for (const auto& moment : kMoments) {
      const std::string key = "k" + std::to_string(++round);
      const Xid xid = next_xid();
      auto main = session();
      wire::Frame verb = FakePeer::start(xid, {write(key, 1)});
      if (!with_work) {
        verb.mutable_start()->set_then(wire::THEN_NOTHING);
        EXPECT_EQ(main->code(verb), Xa::ok);
        verb = FakePeer::prepare(xid, main->welcome().incarnation(), 1);
      }
      const auto vote = send_and_kill(*main, verb, moment);
      const bool in_doubt = listed(session());
      if (vote) {
        EXPECT_EQ(code_of(vote), Xa::ok);
        EXPECT_TRUE(in_doubt) << "a vote was lost";
      }
      commits = !commits;
      expect_end(xid, key, in_doubt, commits, false);
    }
  }
}

TEST_P(Killed, AtItsCommit) {
  int round = 0;
  for (const bool awaited : {true, false}) {
    for (const auto& moment : kMoments) {
      const std::string key = "k" + std::to_string(++round);
      auto main = session();
      const Xid xid = prepared(*main, key, 1);
      wire::Frame commit = FakePeer::commit(xid);
      commit.mutable_commit()->set_awaited(awaited);
      const auto done = send_and_kill(*main, commit, moment);
      const bool in_doubt = listed(session());
      if (done) {
        EXPECT_EQ(code_of(done), Xa::ok);
        EXPECT_FALSE(in_doubt) << "a commit was lost";
      }
      expect_end(xid, key, in_doubt, true, true);
    }
  }
}

// It need not be forced: a branch that comes back is rolled back once more.
TEST_P(Killed, AtItsRollback) {
  int round = 0;
  for (const auto& moment : kMoments) {
    const std::string key = "k" + std::to_string(++round);
    auto main = session();
    const Xid xid = prepared(*main, key, 1);
    const auto done = send_and_kill(*main, FakePeer::rollback(xid), moment);
    if (done) {
      EXPECT_EQ(code_of(done), Xa::ok);
    }
    expect_end(xid, key, listed(session()), false, false);
  }
}

TEST_P(Killed, AtItsOnePhaseCommit) {
  int round = 0;
  for (const bool with_work : {true, false}) {
    for (const auto& moment : kMoments) {
      const std::string key = "k" + std::to_string(++round);
      const Xid xid = next_xid();
      auto main = session();
      wire::Frame verb = FakePeer::start(xid, {write(key, 1)}, wire::THEN_COMMIT_ONE_PHASE);
      if (!with_work) {
        verb.mutable_start()->set_then(wire::THEN_NOTHING);
        EXPECT_EQ(main->code(verb), Xa::ok);
        verb = FakePeer::commit_one_phase(xid, main->welcome().incarnation(), 1);
      }
      const auto done = send_and_kill(*main, verb, moment);
      // Nothing in between: it is never in doubt, and the evidence is the truth.
      const bool committed = session()->outcome_of(xid) == wire::Evidence::COMMITTED;
      if (done) {
        EXPECT_EQ(code_of(done), Xa::ok);
        EXPECT_TRUE(committed) << "a commit was lost";
      }
      expect_ended(xid, key, committed);
    }
  }
}

TEST_P(Killed, AtItsWorkAndWithAReadOnlyVote) {
  for (const auto& moment : kMoments) {
    const Xid worked = next_xid(), reader = next_xid();
    auto main = session();
    EXPECT_EQ(main->code(FakePeer::start(reader, {read("r")})), Xa::rdonly);
    send_and_kill(*main, FakePeer::start(worked, {write("k", 1)}, wire::THEN_NOTHING), moment);
    expect_ended(worked, "k", false);
    expect_ended(reader, "r", false);
    main = session();
    EXPECT_EQ(main->code(FakePeer::start(reader, {read("r")})), Xa::rdonly);
    send_and_kill(*main, FakePeer::release(reader), moment);
    expect_ended(reader, "r", false);
  }
}

// Work that was done under another incarnation is lost, and the vote says so (rule 10).
TEST_P(Killed, BetweenWorkAndVote) {
  auto main = session();
  const std::uint64_t before = main->welcome().incarnation();
  const Xid xid = next_xid();
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 1)}, wire::THEN_NOTHING)), Xa::ok);
  restart();
  main = session();
  EXPECT_EQ(main->code(FakePeer::prepare(xid, before, 1)), Xa::er_nota);
  // Started once more, the earlier incarnation's count does not fit.
  EXPECT_EQ(main->code(FakePeer::start(xid, {write("k", 1)}, wire::THEN_NOTHING)), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::prepare(xid, before, 1)), Xa::rbrollback);
  main.reset();
  expect_ended(xid, "k", false);
}

// Several branches at once, and a second kill while they are being ended.
TEST_P(Killed, WithManyInDoubt) {
  constexpr int kBranches = 20;
  std::vector<Xid> xids;
  {
    auto main = session();
    for (int i = 0; i < kBranches; ++i) {
      xids.push_back(prepared(*main, "k" + std::to_string(i), 1));
    }
  }
  restart();
  {
    auto main = session();
    EXPECT_EQ(main->recover().size(), xids.size());
    for (int i = 0; i < kBranches; ++i) {
      main->send(i % 2 == 0 ? FakePeer::commit(xids[i]) : FakePeer::rollback(xids[i]));
    }
    main->flush();
  }
  restart();
  auto main = session();
  for (const Xid& xid : main->recover()) {
    const bool commits = (std::find(xids.begin(), xids.end(), xid) - xids.begin()) % 2 == 0;
    EXPECT_EQ(main->code(commits ? FakePeer::commit(xid) : FakePeer::rollback(xid)), Xa::ok);
  }
  for (int i = 0; i < kBranches; ++i) {
    const std::string key = "k" + std::to_string(i);
    EXPECT_EQ(value_of(*main, key), i % 2 == 0 ? written(1) : Value{}) << key;
    expect_free(*main, key);
  }
}

}  // namespace
}  // namespace twofold::conformance
