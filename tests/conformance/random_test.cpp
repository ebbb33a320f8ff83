// Verbs in random order, from many connections at once, without waiting for answers: whatever they
// were, once connections and transactions are gone no lock and no branch is left. A seed that fails
// is a test case: TWOFOLD_SEED=n runs it alone, TWOFOLD_SEEDS=n more of them.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

class Random : public Interactive {
 protected:
  void play(std::uint64_t seed) {
    random_.seed(seed);
    xids_.clear();
    for (int i = 0; i < 6; ++i) xids_.push_back(next_xid());
    clients_.clear();
    for (int i = 0; i < 4; ++i) clients_.push_back(client());
    main_ = session();
    for (int i = 0; i < 250; ++i) turn();
    finish();
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  const Xid& xid() { return xids_[pick(xids_.size())]; }
  Work work() {
    const std::string key(1, static_cast<char>('a' + pick(4)));
    switch (pick(6)) {
      case 0: return {fail("missing")};
      case 1:
      case 2: return {read(key)};
      default: return {write(key, static_cast<std::int64_t>(pick(100)))};
    }
  }

  void turn() {
    const std::uint64_t dice = pick(100);
    if (dice < 45) {
      main_->send(of_the_coordinator());
    } else if (dice < 95) {
      clients_[pick(clients_.size())]->send(of_a_client());
    } else if (dice < 98) {
      clients_[pick(clients_.size())] = client();
    } else {
      main_ = session();  // the old one's unvoted branches end
    }
  }
  wire::Frame of_the_coordinator() {
    const std::uint64_t incarnation = main_->welcome().incarnation();
    switch (pick(11)) {
      case 0:
      case 1:
      case 2: {
        wire::Frame start = FakePeer::start(xid(), {}, wire::THEN_NOTHING);
        start.mutable_start()->set_interactive(true);
        start.mutable_start()->set_remaining_ms(60'000);
        return start;
      }
      case 3: return FakePeer::start(xid(), work(), static_cast<wire::Then>(pick(3)));
      case 4:
      case 5: return FakePeer::prepare(xid(), incarnation, pick(3));
      case 6: return FakePeer::commit(xid());
      case 7: return FakePeer::commit_one_phase(xid(), incarnation, pick(3));
      case 8: return FakePeer::rollback(xid());
      case 9: return FakePeer::release(xid());
      default: return FakePeer::forget(xid());
    }
  }
  wire::Frame of_a_client() {
    const std::uint64_t thread = 1 + pick(2);
    switch (pick(5)) {
      case 0:
      case 1: return FakePeer::join(xid(), thread, pick(4) == 0);
      case 2:
      case 3: return FakePeer::execute(xid(), work(), thread);
      default: return FakePeer::end(xid(), static_cast<wire::End::Flag>(pick(3)), thread);
    }
  }

  // The clients vanish, the coordinator recovers.
  void finish() {
    clients_.clear();
    main_ = session();
    for (const Xid& listed : main_->recover()) {
      EXPECT_EQ(std::count(xids_.begin(), xids_.end(), listed), 1);
      EXPECT_EQ(main_->code(pick(2) == 0 ? FakePeer::commit(listed) : FakePeer::rollback(listed)),
                Xa::ok);
    }
    EXPECT_TRUE(main_->recover().empty());
    auto looking = client();
    EXPECT_EQ(looking->locks().entries_size(), 0) << looking->locks().ShortDebugString();
    EXPECT_EQ(looking->in_doubt().branches_size(), 0);
    for (const char* key : {"a", "b", "c", "d"}) expect_free(*main_, key);
    for (const Xid& gone : xids_) {  // no branch; at most evidence of one that committed (rule 16)
      const Xa code = main_->code(FakePeer::rollback(gone));
      EXPECT_TRUE(code == Xa::er_nota || code == Xa::heurcom) << name(code);
    }
  }

  std::mt19937_64 random_;
  std::vector<Xid> xids_;
  std::vector<std::unique_ptr<FakePeer>> clients_;
};

std::uint64_t of_environment(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given ? std::strtoull(given, nullptr, 10) : otherwise;
}

TEST_P(Random, VerbsLeaveNothingBehind) {
  if (const std::uint64_t seed = of_environment("TWOFOLD_SEED", 0)) return play(seed);
  for (std::uint64_t seed = 1; seed <= of_environment("TWOFOLD_SEEDS", 20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    play(seed);
    if (HasFailure()) return;
    if (seed % 10 == 0) restart();  // nobody reads what it logs, and a pipe holds so much
  }
}

INSTANTIATE_TEST_SUITE_P(All, Random, ::testing::ValuesIn(kinds()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace twofold::conformance
