#include "tests/sim/participant.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "resource_manager/core/branch.h"
#include "tests/sim/trace.h"
#include "tests/sim/work.h"

namespace twofold::sim {

Participant::Participant(Surroundings& world, Host host, std::string name)
    : Process(world, host, std::move(name)),
      disk_(world.schedule, world.random, disk_trouble_,
            {[this](Change& change) { apply(change); },
             [this](std::uint64_t ticket, bool durable) {
               durable ? step(rm::Persisted{ticket}) : step(rm::Refused{ticket});
             },
             [this](bool room) { step(rm::SpaceChanged{room}); },
             [this] {
               ++world_.tally.failed_syncs;
               crash(false);
             }}) {
  image_.store_id = 1 + world_.random.next() / 2;
}

Participant::~Participant() = default;

// ---- life ---------------------------------------------------------------------------------------

void Participant::boot() {
  born();
  rm::Options options;
  options.name = name_;
  options.incarnation = incarnation_ = 1 + world_.random.next() / 2;
  options.lock_timeout = kLockTimeout;
  options.fence = kFence;
  options.early_release = world_.random.chance(80);
  rows_ = image_.rows;
  core_ = std::make_unique<rm::Branches>(options, recovered(), local_now());
  // Rule 11: all locks are back before it serves.
  for (const rm::BranchView& view : core_->in_doubt(local_now())) {
    std::vector<rm::LockRequest> back = view.locks;
    rm::normalise(back);
    if (back == image_.prepared.at(view.xid).locks) continue;
    world_.history.fault("has not its locks back after a restart (rule 11)", view.xid.gtrid);
  }
  world_.note(name_,
              [&] { return "! starts, " + std::to_string(image_.prepared.size()) + " in doubt"; });
  world_.network.listen(host_, [this](std::shared_ptr<Connection> connection) {
    const rm::ConnectionId id = ++last_connection_;
    connection->on_closed(1, [this, id] { closed(id); });
    peers_[id].connection = std::move(connection);
  });
}

// Wall clocks jump: a branch may seem to have been prepared long ago, or in the future.
rm::Recovered Participant::recovered() const {
  rm::Recovered found;
  for (const auto& [xid, prepared] : image_.prepared) {
    const auto jump = static_cast<std::int64_t>(world_.random.below(7'200'000'000)) - 3'600'000'000;
    found.prepared.push_back({xid, prepared.locks, local_now() - Duration{jump}});
  }
  for (const auto& [node, record] : image_.nodes) found.nodes.push_back(record);
  return found;
}

void Participant::died(bool power) {
  deadlocks_ += core_->counts().deadlocks;
  world_.network.listen(host_, nullptr);
  disk_.crash();
  for (auto& [id, peer] : peers_) drop(peer.connection, 1, power);
  peers_.clear();
  pending_.clear();
  asked_.clear();
  for (const auto& [key, writer] : rows_) {
    const auto durable = image_.rows.find(key);
    world_.history.cut(name_, key, durable == image_.rows.end() ? 0 : durable->second);
  }
}

void Participant::step(rm::Event event) {
  if (!alive() || !world_.history.faults().empty() || crosses()) return;
  ++world_.tally.steps;
  world_.digested(event.index() + 100 * host_ +
                  static_cast<std::uint64_t>(world_.schedule.now().time_since_epoch().count()) *
                      10'000);
  world_.note(name_, [&] { return "> " + describe(event); });
  std::vector<rm::Effect> effects;
  core_->step(std::move(event), local_now(), effects);
  for (rm::Effect& effect : effects) {
    if (crosses()) return;
    world_.note(name_, [&] { return "<   " + describe(effect); });
    std::visit([this](auto& one) { on(one); }, effect);
  }
  if (world_.first_come && world_.tally.steps % 8 == 0) check_queues();
  tick_at(core_->next_deadline(), [this] { step(rm::Tick{}); });
}

// Rule 12: where branches ask for their locks once, nobody holds one past an earlier writer.
void Participant::check_queues() {
  for (const auto& entry : core_->locks().entries(100)) {
    for (const auto& waiter : entry.waiters) {
      if (waiter.mode != rm::LockMode::exclusive) continue;
      for (const auto& holder : entry.holders) {
        if (holder.owner <= waiter.owner) continue;
        return world_.history.fault(name_ + ": a reader has passed a waiting writer (rule 12)");
      }
    }
  }
}

// ---- connections --------------------------------------------------------------------------------

Participant::Peer* Participant::peer(rm::ConnectionId id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

rm::ConnectionId Participant::id_of(const std::shared_ptr<Connection>& connection) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.connection == connection) return id;
  }
  return 0;
}

void Participant::closed(rm::ConnectionId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  const bool heard_of = found->second.caller != nullptr;
  peers_.erase(found);
  if (heard_of) step(rm::ConnectionClosed{id});
}

void Participant::hello(const std::shared_ptr<Connection>& connection, SessionHello hello) {
  const rm::ConnectionId id = id_of(connection);
  Peer& peer = peers_.at(id);
  peer.caller = hello.caller;
  peer.session = true;
  hello.request.connection = id;
  step(std::move(hello.request));
}

void Participant::client_hello(const std::shared_ptr<Connection>& connection,
                               ParticipantCaller* caller) {
  Peer& peer = peers_.at(id_of(connection));
  peer.caller = caller;
  peer.welcome = true;
  peer.connection->send(1, [caller, incarnation = incarnation_, store = image_.store_id] {
    caller->welcomed(incarnation, store);
  });
}

void Participant::request(const std::shared_ptr<Connection>& connection, std::uint64_t request,
                          rm::Event event) {
  const rm::Requester requester{id_of(connection), request};
  if (requester.connection == 0 || !peers_.at(requester.connection).welcome) return;
  std::visit(
      [&](auto& one) {
        using Kind = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Kind, rm::Mark>) {
          one.connection = requester.connection;
        } else if constexpr (requires { one.requester; }) {
          one.requester = requester;
        }
        if constexpr (std::is_same_v<Kind, rm::Start> || std::is_same_v<Kind, rm::Execute>) {
          one.locks = locks_of(one.work);
        }
        if constexpr (std::is_same_v<Kind, rm::Prepare>) {
          asked_[{requester.connection, request}] = {one.xid, true};
        } else if constexpr (std::is_same_v<Kind, rm::Start>) {
          asked_[{requester.connection, request}] = {one.xid, one.then == rm::Then::prepare};
        }
      },
      event);
  step(std::move(event));
}

void Participant::on(const rm::AcceptSession& effect) {
  Peer* to = peer(effect.connection);
  if (!to) return;
  to->welcome = true;
  to->connection->send(1, [caller = to->caller, incarnation = incarnation_,
                           store = image_.store_id] { caller->welcomed(incarnation, store); });
}

void Participant::on(const rm::RefuseSession& effect) {
  Peer* to = peer(effect.connection);
  if (!to) return;
  to->connection->send(1, [caller = to->caller, why = effect.why] { caller->refused(why); });
  on(rm::CloseConnection{effect.connection, {}});
}

void Participant::on(const rm::CloseConnection& effect) {
  Peer* to = peer(effect.connection);
  if (!to) return;
  to->welcome = false;
  to->connection->close(1);
  after(Duration{0}, [this, id = effect.connection] { closed(id); });
}

// ---- work ---------------------------------------------------------------------------------------

void Participant::on(rm::Run& effect) {
  Pending& pending = pending_[effect.branch];
  if (pending.xid == Xid{}) {
    pending.xid = effect.xid;
    world_.history.started(effect.xid);
  }
  after(world_.random.about(world_.work),
        [this, branch = effect.branch, work = std::move(effect.work)] { ran(branch, work); });
}

void Participant::ran(rm::BranchId branch, const std::string& work) {
  Pending& pending = pending_[branch];
  const Writer self = world_.history.writer(pending.xid.gtrid);
  rm::Ran told;
  told.branch = branch;
  for (const Operation& one : operations(work)) {
    if (one.kind == 'c') {
      if (world_.random.chance(30)) told.code = Xa::rbintegrity;
      continue;
    }
    if (!pending.writes.contains(one.key)) {
      const auto row = rows_.find(one.key);
      world_.history.read(pending.xid, name_ + "/" + one.key, row == rows_.end() ? 0 : row->second);
    }
    if (one.kind == 'w') pending.writes[one.key] = self;
  }
  told.wrote = !pending.writes.empty();
  if (told.code == Xa::ok) world_.history.ran(pending.xid);
  if (told.code == Xa::rbintegrity) told.refusals.push_back({name_, 0, "c", "min", "", "", ""});
  step(std::move(told));
}

void Participant::on(const rm::Discard& effect) {
  pending_.erase(effect.branch);
}

// ---- the store ----------------------------------------------------------------------------------

void Participant::submit(Change change, std::uint64_t ticket, bool forced, bool refusable) {
  disk_.submit({std::move(change), ticket, forced, refusable});
}

void Participant::on(rm::PersistPrepare& effect) {
  const std::uint64_t ticket = effect.ticket;
  auto writes = pending_[effect.branch].writes;
  submit({std::move(effect), std::move(writes)}, ticket, true, true);
}

void Participant::on(rm::PersistCommit& effect) {
  const std::uint64_t ticket = effect.ticket;
  const bool one_phase = effect.one_phase;
  world_.history.commits(effect.xid, one_phase);
  Change change;
  if (one_phase) {  // read by others when durable
    change.writes = pending_[effect.branch].writes;
  } else {
    const auto prepared = image_.prepared.find(effect.xid);
    if (prepared == image_.prepared.end()) {
      world_.history.fault("a commit of what is not durably prepared", effect.xid.gtrid);
    } else {
      change.writes = prepared->second.writes;
    }
    apply_to_rows(effect.xid, change.writes);
    pending_.erase(effect.branch);
  }
  const bool forced = !effect.may_wait;
  change.what = std::move(effect);
  submit(std::move(change), ticket, forced, one_phase);
}

void Participant::on(rm::PersistRollback& effect) {
  world_.history.rolls_back(effect.xid);
  pending_.erase(effect.branch);
  const std::uint64_t ticket = effect.ticket;
  submit({std::move(effect), {}}, ticket, false, false);
}

void Participant::on(rm::PersistNode& effect) {
  const std::uint64_t ticket = effect.ticket;
  const bool forced = effect.forced;
  submit({std::move(effect), {}}, ticket, forced, false);
}

void Participant::apply_to_rows(const Xid& xid, const std::map<std::string, Writer>& writes) {
  const Writer self = world_.history.writer(xid.gtrid);
  for (const auto& [key, writer] : writes) {
    rows_[key] = self;
    world_.history.applied(name_, key, self);
  }
}

// It is durable now.
void Participant::apply(Change& change) {
  if (auto* prepare = std::get_if<rm::PersistPrepare>(&change.what)) {
    image_.prepared[prepare->xid] = {prepare->locks, change.writes};
    world_.history.prepared(prepare->xid);
  } else if (auto* commit = std::get_if<rm::PersistCommit>(&change.what)) {
    if (commit->one_phase) {
      apply_to_rows(commit->xid, change.writes);
      ++world_.tally.one_phase;
    }
    for (const auto& [key, writer] : change.writes) image_.rows[key] = writer;
    image_.prepared.erase(commit->xid);
    image_.outcomes.insert(commit->xid);
    world_.history.committed(commit->xid);
  } else if (auto* rollback = std::get_if<rm::PersistRollback>(&change.what)) {
    image_.prepared.erase(rollback->xid);
  } else if (auto* node = std::get_if<rm::PersistNode>(&change.what)) {
    image_.nodes[node->record.node] = node->record;
    if (!node->purge) return;
    std::erase_if(image_.outcomes, [&](const Xid& xid) {
      const auto gtrid = Gtrid::decode(xid.gtrid);
      const TxnId* mark = rm::mark_of(node->record, *gtrid);
      return mark && gtrid->txn_id() < *mark;
    });
  }
}

bool Participant::end_by_hand() {
  if (alive() || image_.prepared.empty()) return false;
  auto at = image_.prepared.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(world_.random.below(image_.prepared.size())));
  const Xid xid = at->first;
  const bool commit = world_.random.chance(50);
  world_.note(name_, [&] {
    return std::string("! by hand: ") + (commit ? "commits " : "rolls back ") + describe(xid);
  });
  if (commit) {
    apply_to_rows(xid, at->second.writes);
    for (const auto& [key, writer] : at->second.writes) image_.rows[key] = writer;
    image_.outcomes.insert(xid);
  }
  image_.prepared.erase(at);
  world_.history.by_hand(xid, commit);
  world_.has_by_hand = true;
  ++world_.tally.by_hand;
  return true;
}

// ---- answers ------------------------------------------------------------------------------------

void Participant::on(rm::Answer& effect) {
  if (const auto found = asked_.find({effect.requester.connection, effect.requester.request});
      found != asked_.end()) {
    const Xid& xid = found->second.xid;
    if (effect.code == Xa::ok && found->second.votes) world_.history.voted(xid, true, false);
    if (is_rollback(effect.code)) world_.history.voted(xid, false, false);
    if (effect.code == Xa::rdonly) {
      world_.history.voted(xid, true, true);
      ++world_.tally.read_only;
    }
    asked_.erase(found);
  }
  Peer* to = peer(effect.requester.connection);
  if (!to) return;
  to->connection->send(1, [caller = to->caller, answer = std::move(effect)] {
    caller->answered(answer.requester.request, answer);
  });
}

void Participant::on(rm::AnswerRecover& effect) {
  Peer* to = peer(effect.requester.connection);
  if (!to) return;
  for (const rm::RecoveredBranch& branch : effect.branches) world_.tally.busy_listed += branch.busy;
  to->connection->send(1, [caller = to->caller, answer = std::move(effect)] {
    caller->listed(answer.requester.request, answer);
  });
}

void Participant::tell_evidence(const rm::Requester& requester,
                                co::OutcomeTold::Evidence evidence) {
  Peer* to = peer(requester.connection);
  if (!to) return;
  to->connection->send(1, [caller = to->caller, request = requester.request, evidence] {
    caller->evidence(request, evidence);
  });
}

void Participant::on(rm::AnswerFromEvidence& effect) {
  using Evidence = co::OutcomeTold::Evidence;
  const bool committed = image_.outcomes.contains(effect.xid);
  if (effect.rollback) {
    rm::Answer answer;
    answer.requester = effect.requester;
    answer.code = committed ? Xa::heurcom : Xa::er_nota;
    return on(answer);
  }
  if (effect.store_id != 0 && effect.store_id != image_.store_id) {
    return tell_evidence(effect.requester, Evidence::impossible);
  }
  tell_evidence(effect.requester, committed ? Evidence::committed : Evidence::none);
}

void Participant::on(rm::AnswerEvidence& effect) {
  using Evidence = co::OutcomeTold::Evidence;
  using Kind = rm::AnswerEvidence::Kind;
  switch (effect.kind) {
    case Kind::prepared: return tell_evidence(effect.requester, Evidence::prepared);
    case Kind::busy: return tell_evidence(effect.requester, Evidence::busy);
    case Kind::impossible: return tell_evidence(effect.requester, Evidence::impossible);
  }
}

void Participant::on(rm::AnswerFailure& effect) {
  Peer* to = peer(effect.requester.connection);
  if (!to) return;
  to->connection->send(
      1, [caller = to->caller, request = effect.requester.request] { caller->failed(request); });
}

void Participant::on(rm::ReportWaits& effect) {
  Peer* to = peer(effect.connection);
  if (!to) return;
  to->connection->send(
      1, [caller = to->caller, waits = std::move(effect.waits)] { caller->waits(waits); });
}

void Participant::on(rm::Alarm&) {}

std::uint64_t Participant::deadlocks() const {
  return deadlocks_ + (alive() ? core_->counts().deadlocks : 0);
}

std::vector<std::string> Participant::leftovers() const {
  std::vector<std::string> left;
  bool excused = false;
  for (const auto& [xid, prepared] : image_.prepared) {
    if (world_.history.excused(xid.gtrid)) {
      excused = true;
    } else {
      left.push_back(describe(xid) + " is in doubt at " + name_);
    }
  }
  if (!alive()) {
    left.push_back(name_ + " is down");
  } else if (!excused && core_->counts().branches > 0) {
    left.push_back(name_ + " has " + std::to_string(core_->counts().branches) + " branches");
  } else if (!excused && core_->locks().keys() > 0) {
    left.push_back(name_ + " holds locks on " + std::to_string(core_->locks().keys()) + " keys");
  }
  return left;
}

}  // namespace twofold::sim
