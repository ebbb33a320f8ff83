// A driver that blocks, on its pool: order, what waits for what, no room, the end.
#include "resource_manager/adapters/blocking.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>

#include "tests/resource_manager/test_host.h"

namespace twofold::resource_manager {
namespace {

using RunWork = Run;  // in a test, Run is Google Test's
using Story = std::vector<std::string>;

class ScriptedDriver final : public BlockingDriver {
 public:
  std::uint64_t store_id() const override { return 5; }
  Plan plan(std::string_view) const override { return {}; }
  void add_stats(wire::StatsAnswer&) const override {}
  Recovered recover(Time) override { return {}; }

  Ran run(const RunWork& effect) override {
    if (together_) together_->arrive_and_wait();
    tell("run " + std::to_string(effect.branch));
    Ran ran;
    ran.branch = effect.branch;
    return ran;
  }
  void discard(const Discard& effect) override { tell("discard " + std::to_string(effect.branch)); }
  Written prepare(const PersistPrepare& effect) override { return write("prepare", effect.ticket); }
  Written commit(const PersistCommit& effect) override { return write("commit", effect.ticket); }
  Written roll_back(const PersistRollback& effect) override {
    return write("rollback", effect.ticket);
  }
  Written record(const PersistNode& effect) override { return write("node", effect.ticket); }
  Evidence evidence(const Xid&) override { return Evidence::committed; }
  Result<wire::ScanAnswer> scan(const wire::Scan&, std::uint64_t) override {
    tell("scan");
    return wire::ScanAnswer{};
  }

  // Writes wait while it is closed.
  void gate(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void answer(std::uint64_t ticket, Written written) {
    std::lock_guard lock(mutex_);
    answers_[ticket] = written;
  }
  Story story() {
    std::lock_guard lock(mutex_);
    return story_;
  }
  std::optional<std::barrier<>> together_;

 private:
  Written write(const char* what, std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    story_.push_back(what + (" " + std::to_string(ticket)));
    const auto answer = answers_.find(ticket);
    return answer == answers_.end() ? Written::durable : answer->second;
  }
  void tell(std::string what) {
    std::lock_guard lock(mutex_);
    story_.push_back(std::move(what));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  std::map<std::uint64_t, Written> answers_;
  Story story_;
};

class BlockingTest : public ::testing::Test {
 protected:
  BlockingTest() {
    auto driver = std::make_unique<ScriptedDriver>();
    driver_ = driver.get();
    adapter_ = run_on_pool(std::move(driver), {.threads = 3, .full_retry = retry_});
    adapter_->attach(host_);
  }
  ~BlockingTest() override {
    driver_->gate(true);
    adapter_->stop();
  }
  void prepare(std::uint64_t ticket) { adapter_->persist(PersistPrepare{ticket, 1, {}, {}}); }
  void commit(std::uint64_t ticket, bool one_phase = false) {
    adapter_->persist(PersistCommit{ticket, 1, {}, one_phase});
  }
  std::uint64_t persisted() { return std::get<Persisted>(host_.next()).ticket; }
  std::uint64_t refused() { return std::get<Refused>(host_.next()).ticket; }
  bool room() { return std::get<SpaceChanged>(host_.next()).room; }

  static constexpr std::chrono::milliseconds retry_{1};
  TestHost host_;
  ScriptedDriver* driver_ = nullptr;
  std::unique_ptr<Adapter> adapter_;
};

TEST_F(BlockingTest, WritesKeepTheirOrderAndAreToldInIt) {
  for (std::uint64_t ticket = 1; ticket <= 20; ++ticket) prepare(ticket);
  EXPECT_TRUE(driver_->story().empty());  // handed over by flush()
  adapter_->flush();
  for (std::uint64_t ticket = 1; ticket <= 20; ++ticket) EXPECT_EQ(persisted(), ticket);
}

// Whoever gets a lock that an early release freed reads what was written (rule 13).
TEST_F(BlockingTest, WorkWaitsForTheWritesBeforeIt) {
  driver_->gate(false);
  adapter_->run(RunWork{1, {}, {}});
  commit(7);
  adapter_->run(RunWork{2, {}, {}});
  adapter_->discard(Discard{3});
  adapter_->flush();
  EXPECT_EQ(std::get<Ran>(host_.next()).branch, 1u);  // asked for before it
  driver_->gate(true);
  EXPECT_EQ(persisted(), 7u);
  EXPECT_EQ(std::get<Ran>(host_.next()).branch, 2u);
  EXPECT_TRUE(adapter_->stop());
  const Story story = driver_->story();
  EXPECT_EQ(Story(story.begin(), story.begin() + 2), (Story{"run 1", "commit 7"}));
  EXPECT_EQ(story.size(), 4u);
}

TEST_F(BlockingTest, WorkOfDifferentBranchesGoesSideBySide) {
  driver_->together_.emplace(3);  // each of three waits for the others
  for (BranchId branch = 1; branch <= 3; ++branch) adapter_->run(RunWork{branch, {}, {}});
  adapter_->flush();
  for (int i = 0; i < 3; ++i) host_.next_of<Ran>();
}

TEST_F(BlockingTest, EvidenceWaitsForNothing) {
  driver_->gate(false);
  commit(7);
  adapter_->flush();
  std::optional<Evidence> found;
  adapter_->evidence({}, [&](Evidence told) { found = told; });
  host_.run_until([&] { return found.has_value(); });
  EXPECT_EQ(found, Evidence::committed);
}

TEST_F(BlockingTest, AScanHasItsPlaceAmongTheWrites) {
  bool told = false;
  commit(7);
  adapter_->scan({}, 1, [&](const Result<wire::ScanAnswer>& answer) { told = answer.has_value(); });
  commit(8);
  adapter_->flush();
  host_.run_until([&] { return told; });
  adapter_->stop();
  EXPECT_EQ(driver_->story(), (Story{"commit 7", "scan", "commit 8"}));
}

TEST_F(BlockingTest, AWriteMayBeRefusedByTheDriver) {
  driver_->answer(7, Written::refused);
  prepare(7);
  commit(8);
  adapter_->flush();
  EXPECT_EQ(refused(), 7u);
  EXPECT_EQ(persisted(), 8u);
}

// Rule 23: the same call again, nothing that was asked for later before it, and what may be refused
// is.
TEST_F(BlockingTest, WithoutRoomWhatMustBeWrittenIsRepeated) {
  driver_->answer(1, Written::no_room);
  driver_->gate(false);
  commit(1);
  prepare(2);
  commit(3, true);
  commit(4);
  bool scan_failed = false;
  adapter_->scan(
      {}, 1, [&](const Result<wire::ScanAnswer>& answer) { scan_failed = !answer.has_value(); });
  adapter_->run(RunWork{9, {}, {}});
  adapter_->flush();
  driver_->gate(true);
  EXPECT_FALSE(room());
  EXPECT_EQ(refused(), 2u);
  EXPECT_EQ(refused(), 3u);
  host_.run_until([&] { return scan_failed; });
  wire::StatsAnswer stats;
  adapter_->add_stats(stats);
  EXPECT_EQ(stats.texts(0).name(), "room");
  EXPECT_EQ(stats.texts(0).value(), "no: branches that write are refused");
  driver_->answer(1, Written::durable);
  EXPECT_EQ(persisted(), 1u);
  EXPECT_TRUE(room());
  EXPECT_EQ(persisted(), 4u);
  EXPECT_EQ(std::get<Ran>(host_.next()).branch, 9u);
}

TEST_F(BlockingTest, AtTheEndWhatWasAskedForIsDone) {
  driver_->gate(false);
  prepare(1);
  commit(2);
  adapter_->run(RunWork{9, {}, {}});
  std::thread opener([&] { driver_->gate(true); });
  EXPECT_TRUE(adapter_->stop());
  opener.join();
  EXPECT_EQ(driver_->story(), (Story{"prepare 1", "commit 2", "run 9"}));
  EXPECT_TRUE(adapter_->stop());  // once more is nothing
  adapter_->discard(Discard{1});
  adapter_->flush();
}

TEST_F(BlockingTest, AtTheEndAFullDiskIsNotWaitedForForEver) {
  driver_->answer(1, Written::no_room);
  commit(1);
  commit(2);
  EXPECT_FALSE(adapter_->stop());
  const Story story = driver_->story();
  EXPECT_EQ(std::count(story.begin(), story.end(), "commit 2"), 0);
}

}  // namespace
}  // namespace twofold::resource_manager
