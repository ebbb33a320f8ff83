// The branch core in a small world that goes wrong: several coordinators send random verbs over
// sessions that come and go, clients join, work and vanish, work ends in any order, groups of
// writes are durable late or refused, and the process crashes, losing what is not durable. Promises
// are checked on the way; then the world heals, and nothing may be left behind.
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "tests/resource_manager/core_harness.h"

namespace twofold::resource_manager {
namespace {

using Locks = std::vector<LockRequest>;

bool conflict(const Locks& a, const Locks& b) {
  for (const LockRequest& x : a) {
    for (const LockRequest& y : b) {
      if (x.key != y.key) continue;
      if (x.mode == LockMode::exclusive || y.mode == LockMode::exclusive) return true;
    }
  }
  return false;
}

// What survives a crash.
struct Disk {
  std::map<Xid, Locks> prepared;
  std::set<Xid> committed;
  std::map<std::string, NodeRecord> nodes;
};

struct Coordinator {
  std::string node;
  std::uint64_t epoch = 1;
  std::uint64_t counter = 0;
  std::uint64_t sequence = 0;
  std::uint16_t index = 0;      // of the newest branch of that
  ConnectionId connection = 0;  // current or asked for; 0: none
  bool accepted = false;
  std::vector<Xid> xids;  // all it ever used
  std::vector<Xid> interactive;
};

// What happened, over all worlds: a test that saw none of it has tested nothing.
struct Tally {
  std::uint64_t crashes = 0, yes_votes = 0, commits = 0, busy_listed = 0, refused = 0;
  std::uint64_t deadlocks = 0, lock_timeouts = 0, worked = 0, reports = 0;
};

enum class Verb { start, start_prepare, start_one_phase, prepare, commit, join, execute, other };

class World {
 public:
  World(std::uint64_t seed, bool early_release, Tally& tally)
      : random_(seed), early_release_(early_release), tally_(tally) {
    for (const char* node : {"n1", "n2", "n3"}) {
      coordinators_.emplace_back();
      coordinators_.back().node = node;
    }
    for (ConnectionId& client : clients_) client = ++connection_;
    boot();
  }

  void act() {
    const std::uint64_t dice = random_() % 140;
    if (dice >= 138)
      client_leaves();
    else if (dice >= 100)
      client_verb();
    else if (dice < 28)
      start();
    else if (dice < 52)
      verb();
    else if (dice < 68)
      ran();
    else if (dice < 84)
      flush(chance(15));
    else if (dice < 90)
      open_session();
    else if (dice < 92)
      close_session();
    else if (dice < 97)
      advance(Duration{static_cast<std::int64_t>(random_() % 20'000)});
    else if (dice < 98)
      step(SpaceChanged{chance(90)});
    else if (dice < 99)
      mark();
    else if (chance(30))
      boot();
  }

  // Repairs everything and brings every branch to an end, as coordinators' recovery does.
  void heal() {
    step(SpaceChanged{true});
    for (std::size_t i = 0; i < clients_.size(); ++i) client_leaves();
    settle();
    for (Coordinator& one : coordinators_) {
      ++one.epoch;
      one.counter = 0;
      open(one);
      settle();
      ASSERT_TRUE(one.accepted);
      for (int scans = 0; !scan(one); ++scans) ASSERT_LT(scans, 3);
    }
    for (Coordinator& one : coordinators_) close(one);
    settle();
    advance(2 * kLongWait);
    count();
    for (const auto& [asked, what] : unanswered_) {
      ADD_FAILURE() << "request " << asked.second << " of connection " << asked.first
                    << " was not answered: verb " << static_cast<int>(what.verb) << " of "
                    << to_text(what.xid);
    }
    EXPECT_TRUE(handed_.empty());
    EXPECT_TRUE(disk_.prepared.empty());
    EXPECT_EQ(core_->counts().branches, 0u);
    EXPECT_EQ(core_->counts().prepared, 0u);
    EXPECT_EQ(core_->counts().waiting, 0u);
    EXPECT_EQ(core_->locks().keys(), 0u);
    EXPECT_FALSE(core_->next_deadline());
  }

 private:
  bool chance(std::uint64_t percent) { return random_() % 100 < percent; }

  // ---- the process ----------------------------------------------------------------------------

  void boot() {
    if (core_) {
      ++tally_.crashes;
      count();
    }
    Options options = Core::default_options();
    options.incarnation = ++incarnation_;
    options.lock_timeout = std::chrono::milliseconds{40};
    options.fence = std::chrono::milliseconds{3};
    options.early_release = early_release_;
    options.branches_max = 25;
    running_.clear();
    queue_.clear();
    handed_.clear();
    unanswered_.clear();
    Recovered recovered;
    for (const auto& [xid, locks] : disk_.prepared) {
      recovered.prepared.push_back({xid, locks, now_});
      handed_[recovered.prepared.size()] = locks;
    }
    for (const auto& [name, record] : disk_.nodes) recovered.nodes.push_back(record);
    core_ = std::make_unique<Branches>(options, recovered, now_);
    ASSERT_EQ(core_->counts().prepared, disk_.prepared.size());
    for (Coordinator& one : coordinators_) {
      one.connection = 0;
      one.accepted = false;
    }
  }

  void count() {
    tally_.deadlocks += core_->counts().deadlocks;
    tally_.lock_timeouts += core_->counts().lock_timeouts;
  }

  void step(Event event) {
    std::vector<Effect> effects;
    core_->step(std::move(event), now_, effects);
    for (Effect& effect : effects) std::visit([this](auto& known) { carry_out(known); }, effect);
    for (const LockTable::Entry& entry : core_->locks().entries(1000)) {
      for (const auto& held : entry.holders) ASSERT_TRUE(core_->view(held.owner, now_));
      for (const auto& held : entry.waiters) ASSERT_TRUE(core_->view(held.owner, now_));
      for (const auto& held : entry.waiters) expect_no_circle(held.owner);
    }
  }

  // Who waits here waits for nobody who waits for it (rule 12).
  void expect_no_circle(BranchId waiter) {
    std::set<BranchId> reached;
    std::vector<BranchId> to_visit{waiter};
    while (!to_visit.empty()) {
      const BranchId one = to_visit.back();
      to_visit.pop_back();
      for (const BranchId blocker : core_->locks().blockers(one)) {
        ASSERT_NE(blocker, waiter) << "a deadlock was left";
        if (reached.insert(blocker).second) to_visit.push_back(blocker);
      }
    }
  }

  void advance(Duration by) {
    now_ += by;
    if (core_->next_deadline() && *core_->next_deadline() <= now_) step(Tick{});
    ASSERT_FALSE(core_->next_deadline() && *core_->next_deadline() <= now_);  // it does not spin
  }

  // ---- effects --------------------------------------------------------------------------------

  Coordinator* at(ConnectionId connection) {
    for (Coordinator& one : coordinators_) {
      if (one.connection == connection) return &one;
    }
    return nullptr;
  }

  void carry_out(AcceptSession& effect) {
    Coordinator* one = at(effect.connection);
    if (!one) return;  // given up meanwhile, without a word
    ASSERT_FALSE(one->accepted);
    EXPECT_EQ(disk_.nodes[one->node].epoch, one->epoch);  // durable before it is accepted
    one->accepted = true;
  }
  void carry_out(RefuseSession& effect) { lost(effect.connection); }
  void carry_out(CloseConnection& effect) { lost(effect.connection); }
  void lost(ConnectionId connection) {
    std::erase_if(unanswered_, [&](auto& entry) { return entry.first.first == connection; });
    if (Coordinator* one = at(connection)) {
      one->connection = 0;
      one->accepted = false;
    }
  }

  void carry_out(Run& effect) {
    const Locks locks = core_->locks().locks_of(effect.branch);
    EXPECT_FALSE(core_->locks().waiting(effect.branch));
    for (const auto& [id, other] : handed_) {
      EXPECT_TRUE(id == effect.branch || !conflict(locks, other));
    }
    handed_[effect.branch] = locks;
    EXPECT_EQ(std::count(running_.begin(), running_.end(), effect.branch), 0);
    running_.push_back(effect.branch);
  }
  void carry_out(Discard& effect) { EXPECT_EQ(handed_.erase(effect.branch), 1u); }
  void carry_out(PersistPrepare& effect) {
    handed_.emplace(effect.branch, effect.locks);  // if it did nothing
    queue_.push_back(effect);
  }
  void carry_out(PersistCommit& effect) {
    if (!effect.one_phase && early_release_) handed_[effect.branch].clear();
    queue_.push_back(effect);
  }
  void carry_out(PersistRollback& effect) {
    EXPECT_EQ(handed_.erase(effect.branch), 1u);
    queue_.push_back(effect);
  }
  void carry_out(PersistNode& effect) { queue_.push_back(effect); }

  void carry_out(Answer& effect) {
    const std::optional<Asked> asked = answered(effect.requester);
    if (!asked) return;
    const bool ok = effect.code == Xa::ok;
    if (ok && (asked->verb == Verb::start_prepare || asked->verb == Verb::prepare)) {
      ++tally_.yes_votes;
      EXPECT_TRUE(disk_.prepared.contains(asked->xid)) << "voted before it was durable";
    }
    if (ok && asked->verb == Verb::join) joined_[effect.requester.connection] = asked->xid;
    if (ok && asked->verb == Verb::execute) ++tally_.worked;
    const bool commit = asked->verb == Verb::commit || asked->verb == Verb::start_one_phase;
    if (ok && commit && effect.text != "ended") {
      ++tally_.commits;
      EXPECT_TRUE(disk_.committed.contains(asked->xid) || !wrote_.contains(asked->xid))
          << "told committed before it was durable";
    }
  }
  void carry_out(AnswerRecover& effect) {
    answered(effect.requester);
    for (const RecoveredBranch& branch : effect.branches) tally_.busy_listed += branch.busy;
    listed_ = std::move(effect);
  }
  void carry_out(AnswerFromEvidence& effect) { answered(effect.requester); }
  void carry_out(AnswerFailure& effect) { answered(effect.requester); }
  void carry_out(AnswerEvidence& effect) { answered(effect.requester); }
  void carry_out(ReportWaits& effect) {
    ++tally_.reports;
    const Coordinator* one = at(effect.connection);
    if (!one) return;  // given up meanwhile, without a word
    for (const WaitEdge& edge : effect.waits) {
      EXPECT_NE(edge.waiter.gtrid, edge.holder.gtrid);
      EXPECT_EQ(Gtrid::decode(edge.waiter.gtrid)->node, one->node);
      EXPECT_EQ(Gtrid::decode(edge.holder.gtrid)->node, one->node);
    }
  }
  void carry_out(Alarm&) {}

  // ---- requests, each answered exactly once while its connection lives ------------------------

  struct Asked {
    Verb verb;
    Xid xid;
  };

  Requester ask(const Coordinator& one, Verb verb, const Xid& xid) {
    unanswered_[{one.connection, ++request_}] = {verb, xid};
    return {one.connection, request_};
  }
  std::optional<Asked> answered(const Requester& requester) {
    auto found = unanswered_.find({requester.connection, requester.request});
    const Coordinator* one = at(requester.connection);
    const bool client =
        std::find(clients_.begin(), clients_.end(), requester.connection) != clients_.end();
    EXPECT_TRUE(found != unanswered_.end() || (!client && (!one || !one->accepted)))
        << "answered twice";
    if (found == unanswered_.end()) return std::nullopt;
    const Asked asked = found->second;
    unanswered_.erase(found);
    return asked;
  }

  // ---- what coordinators do -------------------------------------------------------------------

  Coordinator& any() { return coordinators_[random_() % coordinators_.size()]; }

  void open(Coordinator& one) {
    if (one.connection != 0 && chance(50)) close(one);
    lost(one.connection);
    one.connection = ++connection_;
    step(SessionRequested{one.connection, one.node, kLog, one.epoch, kNonce, ++one.counter, false,
                          std::vector<std::uint64_t>(one.epoch - 1, kNonce)});
  }
  void open_session() {
    Coordinator& one = any();
    if (one.accepted && chance(85)) return;
    if (chance(20)) {
      ++one.epoch;
      one.counter = 0;
    } else if (chance(10) && one.counter > 0) {
      --one.counter;  // stale, unless the process has crashed in between
    }
    open(one);
  }
  void close(Coordinator& one) {
    const ConnectionId connection = one.connection;
    if (connection == 0) return;
    lost(connection);
    step(ConnectionClosed{connection});
  }
  void close_session() { close(any()); }

  void start() {
    Coordinator& one = any();
    if (!one.accepted) return;
    const bool sibling = chance(8) && !one.xids.empty();
    const std::uint64_t sequence = sibling ? one.sequence : ++one.sequence;
    one.index = static_cast<std::uint16_t>(sibling ? one.index + 1 : 0);  // no xid is used twice
    const Xid xid = make_xid(sequence, one.node, kLog, one.epoch, kNonce, one.index);
    one.xids.push_back(xid);
    Start event;
    event.then = static_cast<Then>(random_() % 3);
    const Verb verbs[] = {Verb::start, Verb::start_prepare, Verb::start_one_phase};
    event.requester = ask(one, verbs[static_cast<std::size_t>(event.then)], xid);
    event.xid = xid;
    event.remaining = Duration{static_cast<std::int64_t>(random_() % 100'000)};
    if (event.then == Then::nothing && chance(80)) {  // to be joined
      one.interactive.push_back(xid);
      event.interactive = true;
      return step(std::move(event));
    }
    event.work = "work";
    event.locks = some_locks();
    if (chance(5)) event.invalid.emplace_back();
    event.read_only_vote = chance(90);
    step(std::move(event));
  }

  Locks some_locks() {
    Locks locks;
    for (std::uint64_t i = random_() % 4; i > 0; --i) {
      locks.push_back({std::string(1, static_cast<char>('a' + random_() % 8)),
                       chance(40) ? LockMode::shared : LockMode::exclusive});
    }
    normalise(locks);
    return locks;
  }

  // ---- what clients do ------------------------------------------------------------------------

  void client_verb() {
    const Coordinator& one = any();
    if (one.interactive.empty()) return;
    const std::size_t recent = std::min<std::size_t>(one.interactive.size(), 3);
    Xid xid = one.interactive[one.interactive.size() - 1 - random_() % recent];
    const ConnectionId client = clients_[random_() % clients_.size()];
    const std::uint64_t thread = random_() % 10 / 9;
    const auto joined = joined_.find(client);
    const bool there = joined != joined_.end();
    if (there && chance(90)) xid = joined->second;
    const std::uint64_t dice = random_() % 100;
    const Verb verb = dice < (there ? 70u : 10u)   ? Verb::execute
                      : dice < (there ? 75u : 90u) ? Verb::join
                                                   : Verb::other;
    unanswered_[{client, ++request_}] = {verb, xid};
    const Requester requester{client, request_};
    if (verb == Verb::execute) {
      Execute execute{requester, xid, thread, "work", some_locks(), {}};
      if (chance(3)) execute.invalid.emplace_back();
      return step(std::move(execute));
    }
    if (verb == Verb::join) return step(Join{requester, xid, thread, chance(10)});
    const End::Flag flags[] = {End::Flag::success, End::Flag::success, End::Flag::suspend,
                               End::Flag::fail};
    step(End{requester, xid, thread, flags[random_() % 4]});
  }

  void client_leaves() {
    ConnectionId& client = clients_[random_() % clients_.size()];
    const ConnectionId gone = std::exchange(client, ++connection_);
    std::erase_if(unanswered_, [&](auto& entry) { return entry.first.first == gone; });
    step(ConnectionClosed{gone});
  }

  Xid recent_xid(const Coordinator& one) {
    const std::size_t recent = std::min<std::size_t>(one.xids.size(), 12);
    return one.xids[one.xids.size() - 1 - random_() % recent];
  }
  // Of a branch that holds or waits for a lock, so that the world does not silt up with them.
  Xid live_xid(const Coordinator& one) {
    std::set<Xid> live;
    for (const LockTable::Entry& entry : core_->locks().entries(1000)) {
      for (const auto& held : entry.holders) live.insert(core_->view(held.owner, now_)->xid);
    }
    std::erase_if(live, [&](const Xid& xid) { return Gtrid::decode(xid.gtrid)->node != one.node; });
    if (live.empty()) return recent_xid(one);
    return *std::next(live.begin(), static_cast<std::ptrdiff_t>(random_() % live.size()));
  }

  void verb() {
    Coordinator& one = any();
    const Coordinator& owner = chance(90) ? one : any();
    if (one.connection == 0 || owner.xids.empty()) return;
    const Xid xid = chance(60) ? live_xid(owner) : recent_xid(owner);
    switch (random_() % 8) {
      case 0:
        return step(Prepare{ask(one, Verb::prepare, xid), xid, chance(90) ? incarnation_ : 0,
                            random_() % 3, chance(90)});
      case 1:
      case 2:
        return step(Commit{ask(one, Verb::commit, xid), xid, chance(30), chance(50),
                           chance(90) ? incarnation_ : 0, random_() % 3});
      case 3: return step(Rollback{ask(one, Verb::other, xid), xid});
      case 4: return step(Release{ask(one, Verb::other, xid), xid});
      case 5: return step(Forget{ask(one, Verb::other, xid), xid});
      case 6: return step(AskOutcome{ask(one, Verb::other, xid), xid, random_() % 2});
      case 7:
        return step(Recover{ask(one, Verb::other, xid), chance(70),
                            static_cast<std::uint32_t>(random_() % 4), chance(10)});
    }
  }

  void mark() {
    const Coordinator& one = any();
    if (one.accepted && one.sequence > 20)
      step(Mark{one.connection, {one.epoch, one.sequence - 20}});
  }

  // One whole scan; decides about each branch found. True: nothing was found.
  bool scan(Coordinator& one) {
    std::vector<Xid> found;
    for (bool begin = true; begin || !listed_.end; begin = false) {
      step(Recover{ask(one, Verb::other, {}), begin, 2});
      settle();  // it may wait for rollbacks (rule 6)
      for (const RecoveredBranch& branch : listed_.branches) {
        EXPECT_FALSE(branch.busy);  // all verbs have ended
        found.push_back(branch.xid);
      }
    }
    for (const Xid& xid : found) {
      if (chance(50))
        step(Commit{ask(one, Verb::commit, xid), xid, false});
      else
        step(Rollback{ask(one, Verb::other, xid), xid});
    }
    settle();
    return found.empty();
  }

  // ---- the adapter ----------------------------------------------------------------------------

  void ran() {
    if (running_.empty()) return;
    const std::size_t place = random_() % running_.size();
    const BranchId branch = running_[place];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(place));
    const auto view = core_->view(branch, now_);
    ASSERT_TRUE(view);  // a branch whose work is under way is never forgotten
    Ran event;
    event.branch = branch;
    event.wrote = std::any_of(view->locks.begin(), view->locks.end(), [](const LockRequest& lock) {
      return lock.mode == LockMode::exclusive;
    });
    event.frees = event.wrote && chance(30);
    if (event.wrote) wrote_.insert(view->xid);
    if (chance(15)) event.code = Xa::rbintegrity;
    step(std::move(event));
  }

  using Persist = std::variant<PersistPrepare, PersistCommit, PersistRollback, PersistNode>;

  static bool refusable(const Persist& write) {
    const auto* commit = std::get_if<PersistCommit>(&write);
    return std::holds_alternative<PersistPrepare>(write) || (commit && commit->one_phase);
  }

  // One group: durable in order, or refused as rule 23 says.
  void flush(bool refuse) {
    if (queue_.empty()) return;
    const auto count = static_cast<std::ptrdiff_t>(1 + random_() % queue_.size());
    std::deque<Persist> group{queue_.begin(), queue_.begin() + count};
    queue_.erase(queue_.begin(), queue_.begin() + count);
    if (!refuse) {
      for (Persist& write : group) std::visit([this](auto& known) { apply(known); }, write);
      for (Persist& write : group) {
        step(Persisted{std::visit([](auto& known) { return known.ticket; }, write)});
      }
      return;
    }
    std::vector<std::uint64_t> tickets;
    for (std::size_t i = group.size(); i-- > 0;) {
      if (!refusable(group[i]))
        queue_.push_front(group[i]);
      else
        tickets.push_back(std::visit([](auto& known) { return known.ticket; }, group[i]));
    }
    tally_.refused += tickets.size();
    for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) step(Refused{*ticket});
  }

  void apply(PersistPrepare& write) {
    for (const auto& [xid, locks] : disk_.prepared) {
      EXPECT_FALSE(conflict(locks, write.locks)) << "a crash now would bring both back";
    }
    EXPECT_TRUE(disk_.prepared.emplace(write.xid, write.locks).second);
  }
  void apply(PersistCommit& write) {
    EXPECT_EQ(disk_.prepared.erase(write.xid), write.one_phase ? 0u : 1u);
    EXPECT_TRUE(disk_.committed.insert(write.xid).second);
    EXPECT_EQ(handed_.erase(write.branch), 1u);
  }
  void apply(PersistRollback& write) {
    EXPECT_EQ(disk_.prepared.erase(write.xid), 1u);
    EXPECT_FALSE(disk_.committed.contains(write.xid));
  }
  void apply(PersistNode& write) { disk_.nodes[write.record.node] = write.record; }

  // Until no work is under way, no write is queued and no session is pending.
  void settle() {
    while (!running_.empty() || !queue_.empty()) {
      ran();
      flush(false);
      if (testing::Test::HasFailure()) return;
    }
  }

  std::mt19937_64 random_;
  const bool early_release_;
  Tally& tally_;
  Time now_;
  Disk disk_;
  std::unique_ptr<Branches> core_;
  std::uint64_t incarnation_ = 0;
  std::vector<Coordinator> coordinators_;
  ConnectionId connection_ = 0;
  std::map<ConnectionId, Xid> joined_;  // by a client's latest Join
  std::vector<ConnectionId> clients_ = std::vector<ConnectionId>(4);
  std::uint64_t request_ = 0;
  std::map<std::pair<ConnectionId, std::uint64_t>, Asked> unanswered_;
  std::map<BranchId, Locks> handed_;  // branches that the adapter knows, with the locks they hold
  std::deque<BranchId> running_;
  std::deque<Persist> queue_;
  std::set<Xid> wrote_;
  AnswerRecover listed_;
};

TEST(BranchWorld, KeepsItsPromisesAndLeavesNothingBehind) {
  Tally tally;
  const char* more = std::getenv("TWOFOLD_SEEDS");
  const std::uint64_t seeds = more ? std::strtoull(more, nullptr, 10) : 100;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seed % 2 == 0, tally);
    for (int i = 0; i < 1400 && !HasFailure(); ++i) world.act();
    if (!HasFailure()) world.heal();
    if (HasFailure()) return;
  }
  EXPECT_GT(tally.crashes, seeds);
  EXPECT_GT(tally.yes_votes, 3 * seeds);
  EXPECT_GT(tally.commits, 3 * seeds);
  EXPECT_GT(tally.busy_listed, seeds / 50);
  EXPECT_GT(tally.refused, seeds);
  EXPECT_GT(tally.deadlocks, seeds);
  EXPECT_GT(tally.lock_timeouts, seeds);
  EXPECT_GT(tally.worked, 2 * seeds);
  EXPECT_GT(tally.reports, seeds);
}

}  // namespace
}  // namespace twofold::resource_manager
