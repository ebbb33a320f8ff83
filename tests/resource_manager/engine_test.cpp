// The engine between a scripted adapter and a scripted outlet; the branch core is the real one.
#include "resource_manager/engine.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace twofold::resource_manager {
namespace {

using RunWork = Run;  // in a test, Run is Google Test's

constexpr LogId kLog{0xa1};

Xid make_xid(std::uint64_t sequence) {
  Xid xid;
  xid.gtrid = Gtrid{kLog, 1, 77, sequence, "main"}.encode();
  xid.bqual = Bqual{0, "payments"}.encode();
  return xid;
}

// Everything that happens, in order, as words.
using Story = std::vector<std::string>;

class ScriptedAdapter final : public Adapter {
 public:
  explicit ScriptedAdapter(Story& story) : story_(story) {}

  std::uint64_t store_id() const override { return 5; }
  Recovered recover(Time) override { return {}; }
  void attach(Host& host) override { host_ = &host; }
  bool stop() override {
    for (std::uint64_t ticket : std::exchange(tickets_, {})) host_->post(Persisted{ticket});
    story_.push_back("stop");
    return true;
  }
  Plan plan(std::string_view) const override { return {}; }
  void run(const RunWork& effect) override {
    story_.push_back("run");
    Ran ran;
    ran.branch = effect.branch;
    ran.wrote = true;
    host_->post(std::move(ran));
    story_.push_back("run returns");
  }
  void discard(const Discard&) override { story_.push_back("discard"); }
  void persist(PersistPrepare effect) override { remember("prepare", effect.ticket); }
  void persist(PersistCommit effect) override { remember("commit", effect.ticket); }
  void persist(PersistRollback effect) override { remember("rollback", effect.ticket); }
  void persist(PersistNode effect) override { remember("node", effect.ticket); }
  void flush() override {
    if (tickets_.empty()) return;
    story_.push_back("flush " + std::to_string(tickets_.size()));
    if (!writes_) return;
    for (std::uint64_t ticket : std::exchange(tickets_, {})) host_->post(Persisted{ticket});
  }
  void evidence(const Xid& xid, std::function<void(Evidence)> done) override {
    done(committed_.contains(xid) ? Evidence::committed : Evidence::none);
  }
  void scan(const wire::Scan&, std::uint64_t,
            std::function<void(Result<wire::ScanAnswer>)> done) override {
    done(Error{Fault::unsupported, "has no keys"});
  }
  void add_stats(wire::StatsAnswer&) const override {}

  bool writes_ = true;  // false: what is flushed stays under way until stop()
  std::set<Xid> committed_;

 private:
  void remember(const char* what, std::uint64_t ticket) {
    story_.push_back(what);
    tickets_.push_back(ticket);
  }
  Story& story_;
  Host* host_ = nullptr;
  std::vector<std::uint64_t> tickets_;
};

class ScriptedOutlet final : public Outlet {
 public:
  explicit ScriptedOutlet(Story& story) : story_(story) {}
  void accept(const AcceptSession&) override { story_.push_back("accept"); }
  void refuse(const RefuseSession&) override { story_.push_back("refuse"); }
  void close(const CloseConnection&) override { story_.push_back("close"); }
  void answer(Answer effect) override { story_.push_back(std::string(name(effect.code))); }
  void report(const ReportWaits&) override {}
  void answer(AnswerRecover effect) override {
    story_.push_back("listed " + std::to_string(effect.branches.size()));
  }
  void answer(const AnswerFailure&) override { story_.push_back("failure"); }
  void answer(const Requester&, wire::Evidence::Kind kind) override {
    story_.push_back("evidence " + std::to_string(kind));
  }
  void flush() override {}

 private:
  Story& story_;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : adapter_(story_), outlet_(story_), engine_(io_, {}, CrashPoint{}, adapter_) {
    engine_.attach(outlet_);
  }
  void open_session() {
    engine_.post(SessionRequested{1, "main", kLog, 1, 77, 1, false});
    run_ready();
    EXPECT_EQ(take_story(), (Story{"node", "flush 1", "accept"}));
  }
  void run_ready() {
    io_.restart();
    io_.poll();
  }
  Story take_story() { return std::exchange(story_, {}); }
  static Start start(std::uint64_t sequence, const std::string& key,
                     Duration remaining = std::chrono::minutes(1)) {
    Start event;
    event.requester = {1, sequence};
    event.xid = make_xid(sequence);
    event.work = "work";
    event.locks = {{key, LockMode::exclusive}};
    event.then = Then::prepare;
    event.remaining = remaining;
    return event;
  }

  Story story_;
  boost::asio::io_context io_{1};
  ScriptedAdapter adapter_;
  ScriptedOutlet outlet_;
  Engine engine_;
};

TEST_F(EngineTest, EventsWaitForTheOneBeforeAndABatchIsFlushedOnce) {
  open_session();
  for (std::uint64_t i = 1; i <= 3; ++i) engine_.post(start(i, "k" + std::to_string(i)));
  EXPECT_TRUE(story_.empty());  // nothing happens inside post()
  run_ready();
  EXPECT_EQ(take_story(),
            (Story{"run", "run returns", "run", "run returns", "run", "run returns", "prepare",
                   "prepare", "prepare", "flush 3", "XA_OK", "XA_OK", "XA_OK"}));
}

TEST_F(EngineTest, JobsAndEventsKeepTheirOrder) {
  open_session();
  engine_.post(start(1, "k"));
  engine_.call([&] { story_.push_back("job"); });
  run_ready();
  EXPECT_EQ(take_story(), (Story{"run", "run returns", "job", "prepare", "flush 1", "XA_OK"}));
}

TEST_F(EngineTest, EventsMayComeFromAnyThread) {
  open_session();
  std::thread other([&] { engine_.post(start(1, "k")); });
  other.join();
  run_ready();
  EXPECT_EQ(take_story().back(), "XA_OK");
}

TEST_F(EngineTest, DeadlinesComeByThemselves) {
  open_session();
  engine_.post(start(1, "k"));
  run_ready();
  take_story();
  engine_.post(start(2, "k", std::chrono::milliseconds(5)));  // waits for the first
  while (story_.empty()) {
    io_.restart();
    ASSERT_GT(io_.run_one_for(std::chrono::seconds(30)), 0u);
  }
  EXPECT_EQ(take_story(), (Story{"XA_RBTIMEOUT"}));
}

TEST_F(EngineTest, WhatIsNotHereIsAnsweredFromEvidence) {
  open_session();
  adapter_.committed_.insert(make_xid(1));
  const Requester requester{1, 9};
  engine_.post(AskOutcome{requester, make_xid(1), 0});
  engine_.post(AskOutcome{requester, make_xid(1), 5});
  engine_.post(AskOutcome{requester, make_xid(1), 6});  // another store's branch
  engine_.post(AskOutcome{requester, make_xid(2), 5});
  engine_.post(Rollback{requester, make_xid(1)});
  engine_.post(Rollback{requester, make_xid(2)});
  run_ready();
  const auto told = [](wire::Evidence::Kind kind) { return "evidence " + std::to_string(kind); };
  EXPECT_EQ(take_story(), (Story{told(wire::Evidence::COMMITTED), told(wire::Evidence::COMMITTED),
                                 told(wire::Evidence::IMPOSSIBLE), told(wire::Evidence::NONE),
                                 "XA_HEURCOM", "XAER_NOTA"}));
}

// Rule 25: what was asked for is written and told; what it would lead to is not begun.
TEST_F(EngineTest, StopTellsWhatWasUnderWayAndBeginsNothing) {
  open_session();
  engine_.post(start(1, "k"));
  run_ready();
  take_story();
  adapter_.writes_ = false;
  engine_.post(start(2, "k"));  // gets its lock from the commit
  engine_.post(Commit{{1, 3}, make_xid(1), false});
  run_ready();
  EXPECT_EQ(take_story(),
            (Story{"commit", "run", "run returns", "prepare", "flush 2"}));  // early release
  engine_.post(start(3, "other"));
  EXPECT_TRUE(engine_.stop());
  EXPECT_EQ(take_story(),
            (Story{"run", "run returns", "prepare", "flush 3", "stop", "XA_OK", "XA_OK", "XA_OK"}));
  engine_.post(start(4, "another"));
  run_ready();
  EXPECT_TRUE(take_story().empty());
}

}  // namespace
}  // namespace twofold::resource_manager
