#include "tests/sim/coordinator_process.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "tests/sim/trace.h"

namespace twofold::sim {

// ---- links --------------------------------------------------------------------------------------

// One session after another with one resource manager, as coordinator/link.h owes it to the core.
class CoordinatorProcess::Link final : public ParticipantCaller {
 public:
  Link(CoordinatorProcess& owner, co::RmId id, Participant& to) : owner_(owner), id_(id), to_(to) {}

  void connect() {
    owner_.world_.network.connect(
        owner_.host_, to_.host(),
        [this, alive = std::weak_ptr(alive_)](std::shared_ptr<Connection> made) {
          if (alive.expired() || !owner_.alive()) {
            if (made) made->close(0);
            return;
          }
          if (!made) return again();
          greet(std::move(made));
        });
  }

  void end(bool power) {
    owner_.drop(connection_, 0, power);
    connection_.reset();
  }

  void ask(std::uint64_t request, rm::Event event) {
    connection_->send(0, [to = &to_, connection = connection_, request, event = std::move(event)] {
      to->request(connection, request, event);
    });
  }
  enum class Verb : std::uint8_t {
    work,
    vote,
    one_phase,
    commit,
    rollback,
    release,
    forget,
    list,
    evidence
  };
  void ask(Verb verb, co::BranchKey branch, const Xid& xid, rm::Event event) {
    if (!up_) return;
    asked_[++last_request_] = {verb, branch, xid};
    ask(last_request_, std::move(event));
  }

  void send(co::Start& start) {
    static constexpr Verb verbs[] = {Verb::work, Verb::vote, Verb::one_phase};
    rm::Start event;
    event.xid = start.xid;
    event.work = std::move(start.work);
    event.then = static_cast<rm::Then>(start.then);
    event.read_only_vote = start.read_only_vote;
    event.remaining = std::max(start.remaining, Duration{1000});
    event.age = start.age;
    event.interactive = start.interactive;
    ask(verbs[static_cast<int>(start.then)], start.branch, start.xid, std::move(event));
  }
  void send(co::Prepare& effect) {
    ask(Verb::vote, effect.branch, effect.xid,
        rm::Prepare{{}, effect.xid, effect.incarnation, effect.work_items, effect.read_only_vote});
  }
  void send(co::Commit& effect) {
    ask(effect.one_phase ? Verb::one_phase : Verb::commit, effect.branch, effect.xid,
        rm::Commit{{},
                   effect.xid,
                   effect.one_phase,
                   effect.awaited,
                   effect.incarnation,
                   effect.work_items});
  }
  void send(co::Rollback& effect) {
    ask(Verb::rollback, effect.branch, effect.xid, rm::Rollback{{}, effect.xid});
  }
  void send(co::Release& effect) {
    ask(Verb::release, effect.branch, effect.xid, rm::Release{{}, effect.xid});
  }
  void send(co::Forget& effect) {
    ask(Verb::forget, effect.branch, effect.xid, rm::Forget{{}, effect.xid});
  }
  void send(co::AskOutcome& effect) {
    ask(Verb::evidence, effect.branch, effect.xid, rm::AskOutcome{{}, effect.xid, effect.store_id});
  }
  void send(co::SendMark& effect) {
    if (up_) ask(0, rm::Mark{0, effect.low_water});
  }
  void send(co::ListInDoubt&) {
    scan_ = {id_, true, {}};
    ask_batch(true);
  }

  // ---- ParticipantCaller

  void welcomed(std::uint64_t incarnation, std::uint64_t store_id) override {
    up_ = true;
    owner_.step(co::LinkUp{id_, incarnation, store_id});
  }
  void refused(rm::RefuseSession::Why why) override {
    if (why != rm::RefuseSession::Why::outdated) return;
    owner_.outdated_ = true;
    owner_.disk_.submit({BackupMark{0, owner_.log_.served, to_.name()}, 0, true, false});
    owner_.after(std::chrono::milliseconds{20}, [this] { owner_.crash(false); });
  }
  void answered(std::uint64_t request, const rm::Answer& answer) override {
    using Ack = co::Acknowledged::Verb;
    const auto found = asked_.extract(request);
    if (!found) return;
    const Asked& asked = found.mapped();
    Ack verb = Ack::commit;
    switch (asked.verb) {
      case Verb::work: return owner_.step(told<co::WorkDone>(asked, answer));
      case Verb::vote: return owner_.step(told<co::Voted>(asked, answer));
      case Verb::one_phase: verb = Ack::commit_one_phase; break;
      case Verb::commit: verb = Ack::commit; break;
      case Verb::rollback: verb = Ack::rollback; break;
      case Verb::release: verb = Ack::release; break;
      case Verb::forget: verb = Ack::forget; break;
      case Verb::list:
      case Verb::evidence: return;
    }
    auto event = told<co::Acknowledged>(asked, answer);
    event.xid = asked.xid;
    event.verb = verb;
    owner_.step(std::move(event));
  }
  void listed(std::uint64_t request, const rm::AnswerRecover& answer) override {
    if (!asked_.extract(request)) return;
    for (const auto& branch : answer.branches) scan_.branches.push_back({branch.xid, branch.busy});
    if (owner_.fail_scans && !owner_.world_.calm && owner_.world_.random.chance(40)) {
      scan_.complete = false;
      if (!scan_.branches.empty()) scan_.branches.pop_back();
      return owner_.step(std::exchange(scan_, {}));
    }
    if (!answer.end) return ask_batch(false);
    owner_.step(std::exchange(scan_, {}));
  }
  void evidence(std::uint64_t request, co::OutcomeTold::Evidence evidence) override {
    const auto found = asked_.extract(request);
    if (found) owner_.step(co::OutcomeTold{id_, found.mapped().branch, evidence});
  }
  void failed(std::uint64_t request) override {
    const auto found = asked_.extract(request);
    if (!found) return;
    const Asked& asked = found.mapped();
    if (asked.verb == Verb::list) {
      scan_.complete = false;
      return owner_.step(std::exchange(scan_, {}));
    }
    owner_.step(co::OutcomeTold{id_, asked.branch, co::OutcomeTold::Evidence::busy});
  }
  void waits(const std::vector<rm::WaitEdge>& waits) override {
    co::WaitsReported event{id_, {}};
    for (const rm::WaitEdge& edge : waits) {
      const auto waiter = Gtrid::decode(edge.waiter.gtrid),
                 holder = Gtrid::decode(edge.holder.gtrid);
      if (waiter->log_id != owner_.log_.id || holder->log_id != owner_.log_.id) continue;
      event.waits.push_back({waiter->txn_id(), holder->txn_id()});
    }
    owner_.step(std::move(event));
  }

 private:
  struct Asked {
    Verb verb;
    co::BranchKey branch;
    Xid xid;
  };

  template <class Event>
  Event told(const Asked& asked, const rm::Answer& answer) const {
    Event event;
    event.branch = asked.branch;
    event.code = answer.code;
    event.results = answer.results;
    event.refusals = answer.refusals;
    event.text = answer.text;
    event.no_room = answer.no_room;
    event.rm = id_;
    return event;
  }

  void ask_batch(bool start) { ask(Verb::list, {}, {}, rm::Recover{{}, start, 2, false}); }

  void greet(std::shared_ptr<Connection> made) {
    connection_ = std::move(made);
    up_ = false;
    connection_->on_closed(0, [this] { lost(); });
    Participant::SessionHello hello{owner_.session(), this};
    hello.request.counter = ++session_;
    connection_->send(
        0, [to = &to_, connection = connection_, hello] { to->hello(connection, hello); });
  }

  void lost() {
    connection_.reset();
    asked_.clear();
    scan_ = {};
    if (std::exchange(up_, false)) {
      owner_.step(co::LinkDown{id_});
      if (!owner_.alive()) return;
    }
    again();
  }

  void again() {
    owner_.after(owner_.world_.random.about(kReconnect), [this] { connect(); });
  }

  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  CoordinatorProcess& owner_;
  const co::RmId id_;
  Participant& to_;
  std::shared_ptr<Connection> connection_;
  bool up_ = false;
  std::uint64_t session_ = 0, last_request_ = 0;
  std::map<std::uint64_t, Asked> asked_;
  co::InDoubtListed scan_;
};

// ---- life ---------------------------------------------------------------------------------------

CoordinatorProcess::CoordinatorProcess(Surroundings& world, Host host, std::string node,
                                       co::Options options, std::vector<Participant*> participants)
    : Process(world, host, std::move(node)),
      participants_(std::move(participants)),
      options_(std::move(options)),
      log_{{1 + world.random.next() / 2}, {}, 0, {}, {}, co::test::FakeLog(options_, false)},
      disk_(world.schedule, world.random, disk_trouble_,
            {[this](Change& change) { apply(change); },
             [this](std::uint64_t ticket, bool durable) {
               durable ? step(co::Durable{ticket}) : step(co::Refused{ticket});
             },
             [this](bool room) { step(co::SpaceChanged{room}); },
             [this] {
               ++world_.tally.failed_syncs;
               crash(false);
             }}) {}

CoordinatorProcess::~CoordinatorProcess() = default;

void CoordinatorProcess::boot() {
  if (std::exchange(outdated_, false) || log_.backup) restored_ = true;  // the operator has read it
  if (std::exchange(restored_, false)) restore();
  born();
  const std::uint64_t number = log_.epochs.empty() ? 1 : log_.epochs.back().number + 1;
  epoch_ = {name_, log_.id, {number, 1 + world_.random.next() / 2}, log_.epochs, log_.former};
  log_.epochs.push_back(epoch_.current);
  served_ = false;
  clients_.clear();
  links_.clear();
  core_ = std::make_unique<co::Coordinator>(options_, epoch_, log_.table.replay(), local_now());
  fence_ = std::make_unique<co::ClientFence>(100);
  world_.tally.recovered += core_->counts().live;
  world_.note(name_, [&] {
    return "! starts, epoch " + std::to_string(number) + ", " +
           std::to_string(core_->counts().live) + " to finish";
  });
  for (Participant* to : participants_) {
    links_.push_back(std::make_unique<Link>(*this, static_cast<co::RmId>(links_.size()), *to));
    links_.back()->connect();
  }
  world_.network.listen(host_, [this](std::shared_ptr<Connection> connection) {
    const std::uint64_t id = ++last_client_;
    connection->on_closed(1, [this, id] { closed(id); });
    clients_[id].connection = std::move(connection);
  });
  tick_at(core_->next_deadline(), [this] { step(co::Tick{}); });
}

void CoordinatorProcess::died(bool power) {
  world_.network.listen(host_, nullptr);
  disk_.crash();
  for (auto& link : links_) link->end(power);
  for (auto& [id, client] : clients_) drop(client.connection, 1, power);
  clients_.clear();
}

void CoordinatorProcess::step(co::Event event) {
  if (!alive() || !world_.history.faults().empty() || crosses()) return;
  ++world_.tally.steps;
  world_.digested(event.index() + 100 * host_ +
                  static_cast<std::uint64_t>(world_.schedule.now().time_since_epoch().count()) *
                      10'000);
  world_.note(name_, [&] { return "> " + describe(options_, event); });
  if (std::holds_alternative<co::LinkUp>(event) && !std::exchange(served_, true)) {
    disk_.submit({ServedEpoch{epoch_.current.number}, 0, false, true});
  }
  std::vector<co::Effect> effects;
  core_->step(std::move(event), local_now(), effects);
  for (co::Effect& effect : effects) {
    if (crosses()) return;
    world_.note(name_, [&] { return "<   " + describe(options_, effect); });
    std::visit([this](auto& one) { on(one); }, effect);
  }
  tick_at(core_->next_deadline(), [this] { step(co::Tick{}); });
}

rm::SessionRequested CoordinatorProcess::session() const {
  rm::SessionRequested request;
  request.node = epoch_.node;
  request.log_id = epoch_.log_id;
  request.epoch = epoch_.current.number;
  request.nonce = epoch_.current.nonce;
  request.rebuild = rebuild_;
  for (auto known = epoch_.earlier.rbegin(); known != epoch_.earlier.rend(); ++known) {
    request.earlier.push_back(known->nonce);
  }
  for (const FormerLog& log : epoch_.former) request.former.push_back(log.id);
  return request;
}

// Rule 25.
void CoordinatorProcess::shut_down() {
  if (!alive()) return;
  step(co::Shutdown{false});
  after(std::chrono::milliseconds{20}, [this] {
    step(co::Shutdown{true});
    crash(false);
  });
}

void CoordinatorProcess::drain() {
  if (!alive()) return;
  const auto rm = static_cast<co::RmId>(world_.random.below(participants_.size()));
  step(co::Drain{rm, co::Drain::What::begin, {}});
  after(world_.random.about(std::chrono::milliseconds{40}), [this, rm] {
    step(co::Drain{rm, co::Drain::What::ask, {}});
  });
  after(world_.random.about(std::chrono::milliseconds{120}), [this, rm] {
    step(co::Drain{rm, co::Drain::What::cancel, {}});
  });
}

// ---- the log ------------------------------------------------------------------------------------

void CoordinatorProcess::apply(Change& change) {
  if (const auto* record = std::get_if<LogRecord>(&change)) {
    log_.table.apply(*record);
    world_.history.logged(*record);
    world_.tally.heuristics += std::holds_alternative<HeuristicRecord>(*record);
  } else if (const auto* served = std::get_if<ServedEpoch>(&change)) {
    log_.served = served->number;
  } else {
    log_.backup = std::get<BackupMark>(change);
  }
}

bool CoordinatorProcess::put_backup_back(bool says_so) {
  if (!backup_) return false;
  log_ = *std::exchange(backup_, std::nullopt);  // older ones would lack its new id
  if (says_so) {
    log_.backup = BackupMark{0, log_.served, ""};
  }
  world_.note(name_, [&] { return "! its log is replaced by an older copy"; });
  world_.history.log_went_back(name_, says_so);
  world_.has_gone_back = true;
  ++world_.tally.restores;
  return true;
}

// As log/decision_store.cpp does it.
void CoordinatorProcess::restore() {
  log_.former.push_back({log_.id, log_.backup ? log_.backup->certain_below : log_.served});
  log_.id.value = 1 + world_.random.next() / 2;
  log_.backup.reset();
  ParticipantsRecord known{log_.table.replay().participants};
  for (auto& one : known.all) one.state = twofold::Participant::State::active;
  log_.table.apply(known);
}

void CoordinatorProcess::lose_log() {
  log_ = {{1 + world_.random.next() / 2}, {}, 0, {}, {}, co::test::FakeLog(options_, false)};
  rebuild_ = true;
  world_.note(name_, [&] { return "! its log is lost"; });
  world_.history.log_went_back(name_, true);
  world_.has_gone_back = true;
  ++world_.tally.lost_logs;
}

void CoordinatorProcess::on(co::Persist& effect) {
  disk_.submit({std::move(effect.record), effect.ticket, effect.forced, effect.refusable});
}

// ---- clients ------------------------------------------------------------------------------------

void CoordinatorProcess::hello(const std::shared_ptr<Connection>& connection, std::uint64_t client,
                               std::uint64_t counter, CoordinatorCaller* caller) {
  for (auto& [id, one] : clients_) {
    if (one.connection != connection) continue;
    const auto admission = fence_->admit(client, counter, id);
    if (!admission.admitted) {
      connection->close(1);
      return closed(id);
    }
    one.caller = caller;
    one.client = client;
    connection->send(1, [caller, newest = core_->newest()] { caller->welcomed(newest); });
    if (const auto old = clients_.find(admission.fenced); old != clients_.end()) {
      old->second.connection->close(1);
      closed(admission.fenced);
    }
    return;
  }
}

void CoordinatorProcess::closed(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  if (found->second.client != 0) fence_->closed(found->second.client, id);
  clients_.erase(found);
}

void CoordinatorProcess::request(const std::shared_ptr<Connection>& connection,
                                 std::uint64_t request, co::Event event) {
  for (const auto& [id, client] : clients_) {
    if (client.connection != connection) continue;
    std::visit(
        [&, from = id](auto& one) {
          if constexpr (requires { one.requester; }) one.requester = {from, request};
        },
        event);
    return step(std::move(event));
  }
}

void CoordinatorProcess::on(co::Reply& effect) {
  world_.history.told(effect.outcome);
  if (effect.outcome.reason == Reason::deadlock) ++world_.tally.deadlocks;
  const auto client = clients_.find(effect.requester.connection);
  if (client == clients_.end()) return;
  client->second.connection->send(
      1, [caller = client->second.caller, request = effect.requester.request,
          outcome = std::move(effect.outcome)] { caller->told(request, outcome); });
}

void CoordinatorProcess::on(co::Enlisted& effect) {
  const auto client = clients_.find(effect.requester.connection);
  if (client == clients_.end()) return;
  client->second.connection->send(1, [caller = client->second.caller, effect = std::move(effect)] {
    caller->enlisted(effect.requester.request, effect.rm, effect.xid);
  });
}

void CoordinatorProcess::on(co::Alarm& effect) {
  if (world_.has_by_hand || world_.has_gone_back) return;  // there is something to look at
  world_.history.fault(name_ + ": an alarm without a cause: " + effect.text);
}

template <class Send>
void CoordinatorProcess::on(Send& effect) {
  links_[effect.rm]->send(effect);
}

std::vector<std::string> CoordinatorProcess::leftovers() const {
  if (!alive()) return {name_ + " is down"};
  std::vector<std::string> left;
  for (const auto& view : core_->list(false, 100)) {
    if (world_.history.excused(view.gtrid)) continue;
    left.push_back(name_ + ":" + to_text(view.id) +
                   " has not ended: " + std::string(co::name(view.phase)));
  }
  return left;
}

}  // namespace twofold::sim
