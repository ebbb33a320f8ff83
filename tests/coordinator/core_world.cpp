#include "tests/coordinator/core_world.h"

#include <algorithm>

namespace twofold::coordinator::test {

namespace {
constexpr std::size_t kClients = 8;

Acknowledged acknowledged(RmId rm, BranchKey branch, const Xid& xid, Acknowledged::Verb verb,
                          Xa code) {
  return {rm, branch, xid, verb, code, {}, {}, {}, false};
}
}  // namespace

World::World(std::uint64_t seed, Options options)
    : random_(seed), options_(std::move(options)), log_(options_, chance(50)) {
  epoch_ = {"node", LogId{77}, {1, 1001}, {}};
  for (RmId id = 0; id < options_.resource_managers.size(); ++id) {
    rms_.emplace_back().id = id;
  }
  core_.emplace(options_, epoch_, log_.replay(), now_);
  for (std::size_t i = 0; i < kClients; ++i) {
    Client& client = clients_.emplace_back();
    for (const std::string& name : options_.resource_managers) {
      if (chance(60)) client.branches.push_back({name, "r" + std::to_string(i)});
    }
    if (client.branches.empty()) {
      client.branches.push_back({options_.resource_managers.front(), "r" + std::to_string(i)});
    }
  }
}

void World::run(int turns) {
  for (Rm& rm : rms_) link_up(rm);
  for (int i = 0; i < turns && faults_.empty(); ++i) turn();
}

void World::turn() {
  Rm& rm = rms_[random_() % rms_.size()];
  const bool active = core_->participant(rm.id).state == Participant::State::active;
  if (random_() % 1000 < (active ? 2 : 60)) return drain(rm);
  const int dice = static_cast<int>(random_() % 1000);
  if (dice < 100) return submit(random_() % clients_.size());
  if (dice < 130) return ask(random_() % clients_.size());
  if (dice < 380) return deliver(rm);
  if (dice < 600) return answer(rm);
  if (dice < 760) return progress(rm, false);
  if (dice < 880) return flush(true);
  if (dice < 940) return pass(std::chrono::milliseconds(random_() % 60));
  if (dice < 955) return pass(options_.scan_period);
  if (dice < 962) return hang_up(rm);
  if (dice < 970) return rm.linked ? end_session(rm) : link_up(rm);
  if (dice < 992) return link_up(rm);
  if (dice < 997) return crash(rm);
  crash();
}

void World::event(Event event) {
  std::vector<Effect> effects;
  note("> " + std::string(name(event)));
  core_->step(std::move(event), now_, effects);
  for (Effect& effect : effects) carry_out(effect);
}

void World::carry_out(Effect& effect) {
  note("<   " + text(options_, effect));
  if (auto* persist = std::get_if<Persist>(&effect)) {
    if (const auto* commit = std::get_if<CommitRecord>(&persist->record)) {
      check_readers(commit->gtrid);
    }
    writing_.push_back(std::move(*persist));
  } else if (const auto* told = std::get_if<Reply>(&effect)) {
    reply(*told);
  } else if (const auto* alarm = std::get_if<Alarm>(&effect)) {
    fault("alarm: " + alarm->text);
  } else if (const auto* answered = std::get_if<DrainTold>(&effect)) {
    check_drain_told(*answered);
  } else {
    if (const auto* commit = std::get_if<Commit>(&effect)) check_commit(*commit);
    rms_[*resource_manager(effect)].inbox.push_back(std::move(effect));
  }
}

void World::check_drain_told(const DrainTold& told) {
  const auto state = core_->participant(told.rm).state;
  for (const Participant& one : log_.replay().participants) {
    if (one.name == options_.resource_managers[told.rm] && one.state != state) {
      fault("told how far a drain is before that is on record");
    }
  }
}

// ---- clients ------------------------------------------------------------------------------------

void World::submit(std::size_t index) {
  Client& client = clients_[index];
  if (client.settled && !chance(20)) return;
  if (!client.known) client.known = core_->newest();
  Submit submit;
  submit.requester = {index, ++asked_};
  submit.request_id = "r" + std::to_string(index);
  submit.branches = client.branches;
  submit.timeout = std::chrono::milliseconds(50 + random_() % 300);
  submit.reply_at_end = chance(30);
  submit.known = *client.known;
  event(std::move(submit));
}

void World::ask(std::size_t index) {
  const Client& client = clients_[index];
  if (!client.known) return;
  OutcomeAsked asked;
  asked.requester = {index, ++asked_};
  asked.when = static_cast<OutcomeAsked::When>(random_() % 3);
  if (!told_.empty() && chance(50)) {
    auto some = told_.begin();
    std::advance(some, static_cast<std::ptrdiff_t>(random_() % told_.size()));
    asked.gtrid = some->first;
  } else {
    asked.request_id = "r" + std::to_string(index);
    asked.known = *client.known;
  }
  event(std::move(asked));
}

void World::reply(const Reply& reply) {
  const Outcome& outcome = reply.outcome;
  Client& client = clients_[reply.requester.connection];
  if (!outcome.gtrid.empty()) check_told(outcome.gtrid, outcome);
  const bool final = outcome.verdict == Verdict::committed || outcome.reason == Reason::refused;
  if (final) client.settled = true;
  if (outcome.heuristic) fault("told of a heuristic");
  if (outcome.reason == Reason::invalid || outcome.reason == Reason::mismatch) {
    fault("a good submission was rejected: " + outcome.detail);
  }
}

// ---- the log ------------------------------------------------------------------------------------

void World::flush(bool may_refuse) {
  if (!written_.empty() && chance(60)) {  // told what was written before
    Event told = written_.front();
    written_.pop_front();
    return event(std::move(told));
  }
  if (writing_.empty()) return;
  const std::size_t count = 1 + random_() % writing_.size();
  const bool refuse = may_refuse && chance(8);
  std::deque<Persist> kept;
  for (std::size_t i = 0; i < count; ++i) {
    Persist record = std::move(writing_.front());
    writing_.pop_front();
    if (!refuse) {
      write(record.record);
      written_.push_back(Durable{record.ticket});
    } else if (record.refusable) {
      written_.push_back(Refused{record.ticket});
    } else {
      kept.push_back(std::move(record));
    }
  }
  while (!kept.empty()) {  // back to the head of the queue (rule 23)
    writing_.push_front(std::move(kept.back()));
    kept.pop_back();
  }
}

void World::write(const LogRecord& record) {
  log_.apply(record);
  if (const auto* participants = std::get_if<ParticipantsRecord>(&record)) {
    for (const Participant& one : participants->all) {
      if (one.state == Participant::State::drained) check_drained(one.name);
    }
  }
}

// What was not written is gone; what was written and not told is there.
void World::crash() {
  note("! the coordinator crashes");
  ++crashes_;
  if (chance(50)) {
    for (const Persist& record : writing_) {
      if (chance(40)) break;
      write(record.record);
    }
  }
  writing_.clear();
  written_.clear();
  for (Rm& rm : rms_) {
    if (rm.linked) end_session(rm);
  }
  writing_.clear();  // what the dying one still asked for
  written_.clear();
  epoch_.earlier.push_back(epoch_.current);
  ++epoch_.current.number;
  ++epoch_.current.nonce;
  core_.emplace(options_, epoch_, log_.replay(), now_);
}

void World::pass(Duration duration) {
  const Time until = now_ + duration;
  while (const auto due = core_->next_deadline()) {
    if (*due > until) break;
    now_ = std::max(now_, *due);
    event(Tick{});
  }
  now_ = until;
}

// ---- resource managers --------------------------------------------------------------------------

void World::drain(Rm& rm) {
  const bool drained = core_->participant(rm.id).state == Participant::State::drained;
  const auto what = drained || chance(10) ? Drain::What::cancel
                    : chance(30)          ? Drain::What::ask
                                          : Drain::What::begin;
  event(Drain{rm.id, what, {}});
}

void World::link_up(Rm& rm) {
  if (rm.linked) return;
  rm.linked = true;
  note("! link up " + std::to_string(rm.id));
  event(LinkUp{rm.id, random_(), 500 + rm.id});
}

// The resource manager's end of the session is over, the coordinator's is not yet: what was sent
// before may still arrive. Running verbs go on (rule 15).
void World::hang_up(Rm& rm) {
  if (!rm.linked || rm.hung_up) return;
  note("! session over at " + std::to_string(rm.id));
  rm.hung_up = true;
  for (auto at = rm.branches.begin(); at != rm.branches.end();) {
    RmBranch& branch = at->second;
    const bool waits = branch.state == State::worked || branch.state == State::read_only ||
                       branch.state == State::refused;
    branch.old_session = branch.state != State::prepared;
    if (branch.state == State::read_only && at_work(at->first.gtrid)) {
      lost_readers_.insert(at->first.gtrid);
    }
    at = waits ? rm.branches.erase(at) : std::next(at);
  }
}

// The coordinator notices as well; what was on its way is lost.
void World::end_session(Rm& rm) {
  hang_up(rm);
  note("! link down " + std::to_string(rm.id));
  rm.linked = rm.hung_up = false;
  rm.inbox.clear();
  rm.outbox.clear();
  event(LinkDown{rm.id});
}

// Does a branch of this transaction still have work to do?
bool World::at_work(const std::string& gtrid) const {
  return std::any_of(rms_.begin(), rms_.end(), [&](const Rm& rm) {
    const bool sent = std::any_of(rm.inbox.begin(), rm.inbox.end(), [&](const Effect& effect) {
      const auto* start = std::get_if<Start>(&effect);
      return start && start->xid.gtrid == gtrid;
    });
    return sent || std::any_of(rm.branches.begin(), rm.branches.end(), [&](const auto& one) {
             return one.first.gtrid == gtrid && one.second.state == State::running;
           });
  });
}

void World::crash(Rm& rm) {
  note("! resource manager crashes " + std::to_string(rm.id));
  hang_up(rm);
  for (auto& [xid, branch] : rm.branches) {  // what is being written may be there or not
    if (branch.state == State::preparing && chance(50)) branch.state = State::prepared;
    if (branch.state == State::committing && chance(50)) commit(rm, xid, branch);
  }
  std::erase_if(rm.branches, [](const auto& one) { return one.second.state != State::prepared; });
  for (auto& [xid, branch] : rm.branches) branch.old_session = false;  // no verb runs any more
  for (auto& [xid, branch] : rm.rolled_back) {
    if (chance(50)) rm.branches.emplace(xid, branch);
  }
  rm.rolled_back.clear();
  if (!rm.linked) return;
  if (chance(50)) end_session(rm);
}

void World::deliver(Rm& rm) {
  if (rm.inbox.empty() || rm.hung_up) return;
  const Effect effect = std::move(rm.inbox.front());
  rm.inbox.pop_front();
  using Verb = Acknowledged::Verb;
  if (const auto* start = std::get_if<Start>(&effect)) {
    if (id_of(start->xid) < rm.mark) fault("Start below the mark");
    if (rm.branches.contains(start->xid)) fault("an xid was used twice");
    rm.branches[start->xid].start = *start;
  } else if (const auto* prepare = std::get_if<Prepare>(&effect)) {
    const auto found = rm.branches.find(prepare->xid);
    if (found == rm.branches.end() || found->second.state != State::worked) {
      fault("Prepare of a branch that has not worked");
    } else {
      found->second.state = State::preparing;
    }
  } else if (const auto* commit = std::get_if<Commit>(&effect)) {
    rm.outbox.push_back(acknowledged(rm.id, commit->branch, commit->xid, Verb::commit,
                                     commit_verb(rm, commit->xid)));
  } else if (const auto* rollback = std::get_if<Rollback>(&effect)) {
    rm.outbox.push_back(acknowledged(rm.id, rollback->branch, rollback->xid, Verb::rollback,
                                     rollback_verb(rm, rollback->xid)));
  } else if (const auto* release = std::get_if<Release>(&effect)) {
    const bool known = rm.branches.erase(release->xid) > 0;
    rm.outbox.push_back(acknowledged(rm.id, release->branch, release->xid, Verb::release,
                                     known ? Xa::ok : Xa::er_nota));
  } else if (std::holds_alternative<ListInDoubt>(effect)) {
    rm.outbox.push_back(scan(rm));
  } else if (const auto* asked = std::get_if<AskOutcome>(&effect)) {
    rm.outbox.push_back(evidence(rm, *asked));
  } else if (const auto* mark = std::get_if<SendMark>(&effect)) {
    if (mark->low_water < rm.mark) fault("the mark goes back");
    rm.mark = mark->low_water;
    std::erase_if(rm.committed, [&](const Xid& xid) { return id_of(xid) < rm.mark; });
  } else {
    fault("unexpected: " + std::string(name(effect)));
  }
}

void World::answer(Rm& rm) {
  if (rm.outbox.empty()) return;
  Event told = std::move(rm.outbox.front());
  rm.outbox.pop_front();
  event(std::move(told));
}

void World::progress(Rm& rm, bool sure) {
  std::vector<Xid> running;
  for (const auto& [xid, branch] : rm.branches) {
    if (branch.state == State::running || branch.state == State::preparing ||
        branch.state == State::committing) {
      running.push_back(xid);
    }
  }
  if (running.empty()) return;
  const Xid& xid = running[random_() % running.size()];
  progress(rm, xid, rm.branches.at(xid), sure);
}

void World::progress(Rm& rm, const Xid& xid, RmBranch& branch, bool sure) {
  if (branch.state == State::committing) {
    if (!branch.old_session) vote(rm, xid, branch, Xa::ok);
    const RmBranch ended = branch;
    rm.branches.erase(xid);
    return commit(rm, xid, ended);
  }
  if (branch.state == State::preparing) {
    branch.state = State::prepared;
    yes_[xid.gtrid].insert(xid.bqual);
    if (!std::exchange(branch.old_session, false)) vote(rm, xid, branch, Xa::ok);
    return;
  }
  if (branch.old_session) {  // abandoned: discarded as soon as the verb returns
    rm.branches.erase(xid);
    return;
  }
  const int dice = sure ? 0 : static_cast<int>(random_() % 100);
  const bool one_phase = branch.start.then == Then::commit_one_phase;
  if (dice >= 88) {
    branch.state = State::refused;
    no_.insert(xid.gtrid);
    vote(rm, xid, branch, dice >= 94 ? Xa::rbintegrity : Xa::rbdeadlock);
    if (one_phase) rm.branches.erase(xid);
  } else if (one_phase) {
    branch.state = State::committing;
  } else if (branch.start.then == Then::nothing) {
    branch.state = State::worked;
    vote(rm, xid, branch, Xa::ok);
  } else if (dice >= 65) {
    branch.state = State::read_only;
    vote(rm, xid, branch, Xa::rdonly);
  } else {
    branch.state = State::preparing;
  }
}

// The answer to what is under way on this branch: work, vote or one-phase commit.
void World::vote(Rm& rm, const Xid& xid, RmBranch& branch, Xa code) {
  std::vector<Refusal> refusals;
  if (code == Xa::rbintegrity) refusals.push_back(refusal("key"));
  const BranchKey key = branch.start.branch;
  if (branch.start.then == Then::commit_one_phase) {
    rm.outbox.push_back(Acknowledged{
        rm.id, key, xid, Acknowledged::Verb::commit_one_phase, code, {}, refusals, {}, false});
  } else if (branch.start.then == Then::nothing && !branch.wrote) {
    rm.outbox.push_back(Voted{key, code, {}, refusals, {}, false, rm.id});
  } else if (branch.start.then == Then::nothing) {
    branch.wrote = false;  // the next answer is the vote
    rm.outbox.push_back(WorkDone{key, code, {}, refusals, {}, false, rm.id});
  } else {
    rm.outbox.push_back(Voted{key, code, {}, refusals, {}, false, rm.id});
  }
}

void World::commit(Rm& rm, const Xid& xid, const RmBranch& branch) {
  if (id_of(xid) >= rm.mark) rm.committed.insert(xid);
  done_[xid.gtrid].insert(xid.bqual);
  const auto told = told_.find(xid.gtrid);
  if (told != told_.end() && told->second != Verdict::committed) {
    fault("a branch committed after its transaction was told aborted");
  }
  if (no_.contains(xid.gtrid)) fault("committed against a no vote (invariant 3)");
  const auto [first, fresh] = committed_requests_.emplace(branch.start.work, xid.gtrid);
  if (!fresh && first->second != xid.gtrid) {
    fault("request " + branch.start.work + " was carried out twice (rule 7)");
  }
}

Xa World::commit_verb(Rm& rm, const Xid& xid) {
  const auto found = rm.branches.find(xid);
  if (found == rm.branches.end()) return id_of(xid) < rm.mark ? Xa::ok : Xa::er_nota;
  if (found->second.old_session) return Xa::retry;
  if (!calm_ && chance(5)) return chance(50) ? Xa::retry : Xa::er_rmfail;
  if (found->second.state != State::prepared) {
    fault("Commit of a branch that is not prepared");
    return Xa::er_proto;
  }
  const RmBranch branch = found->second;
  rm.branches.erase(found);
  commit(rm, xid, branch);
  return Xa::ok;
}

Xa World::rollback_verb(Rm& rm, const Xid& xid) {
  const auto found = rm.branches.find(xid);
  if (found == rm.branches.end()) return rm.committed.contains(xid) ? Xa::heurcom : Xa::er_nota;
  if (found->second.old_session) return Xa::retry;
  if (!calm_ && chance(5)) return Xa::retry;
  if (found->second.state == State::prepared) rm.rolled_back.emplace(*found);
  if (found->second.state == State::committing) fault("Rollback of a one-phase commit");
  if (done_.contains(xid.gtrid)) fault("rolled back although another branch has committed");
  rm.branches.erase(found);
  return Xa::ok;
}

// What it lacks is durably gone: a rollback need not be forced, but it is written before a later
// scan is answered.
InDoubtListed World::scan(Rm& rm) {
  rm.rolled_back.clear();
  InDoubtListed listed{rm.id, calm_ || !chance(15), {}};
  for (const auto& [xid, branch] : rm.branches) {
    if (!listed.complete && chance(50)) break;
    if (branch.state == State::prepared || branch.old_session) {
      listed.branches.push_back({xid, branch.old_session});
    }
  }
  return listed;
}

OutcomeTold World::evidence(Rm& rm, const AskOutcome& asked) {
  using Evidence = OutcomeTold::Evidence;
  const auto found = rm.branches.find(asked.xid);
  Evidence evidence = Evidence::none;
  if (found != rm.branches.end()) {
    evidence = found->second.old_session ? Evidence::busy : Evidence::prepared;
  } else if (id_of(asked.xid) < rm.mark || asked.store_id != 500 + rm.id) {
    evidence = Evidence::impossible;
  } else if (rm.committed.contains(asked.xid)) {
    evidence = Evidence::committed;
  }
  return {rm.id, asked.branch, evidence};
}

// ---- checks -------------------------------------------------------------------------------------

// Rule 5: only what the log holds is committed.
void World::check_commit(const Commit& effect) {
  const Recovered durable = log_.replay();
  for (const CommitRecord& record : durable.commits) {
    for (const BranchRecord& branch : record.branches) {
      if (branch.xid == effect.xid) return;
    }
  }
  for (const EndRecord& record : durable.ends) {
    if (record.gtrid == effect.xid.gtrid) return;
  }
  fault("Commit of a branch that no durable record names");
}

// It might be taken out of the configuration now.
void World::check_drained(const std::string& name) {
  ++drained_;
  const Rm& rm = rms_[*core_->find_participant(name)];
  if (!rm.branches.empty() || !rm.rolled_back.empty()) fault(name + " is drained, with branches");
  for (const Effect& effect : rm.inbox) {
    if (std::holds_alternative<Start>(effect)) fault(name + " is drained, with a Start to come");
  }
}

// Rule 11: what a read-only voter read is locked until all have finished.
void World::check_readers(const std::string& gtrid) {
  if (lost_readers_.contains(gtrid)) fault("a reader's locks were lost, and it committed");
}

// Invariant 2: what a transaction was once told it is told for ever, or that it is forgotten.
void World::check_told(const std::string& gtrid, const Outcome& outcome) {
  if (outcome.verdict != Verdict::committed && outcome.verdict != Verdict::aborted) return;
  const auto [first, fresh] = told_.emplace(gtrid, outcome.verdict);
  // What only read is told without a record (rule 5): after a crash it is presumed aborted, and as
  // it has changed nothing, that is no lie.
  const bool wrote = yes_.contains(gtrid) || done_.contains(gtrid);
  if (!fresh && first->second != outcome.verdict && wrote) {
    fault(std::string("told ") + std::string(name(first->second)) + ", then " +
          std::string(name(outcome.verdict)));
  }
  if (outcome.verdict == Verdict::committed) check_readers(gtrid);
  const bool committed_somewhere = done_.contains(gtrid);
  if (outcome.verdict == Verdict::aborted && committed_somewhere) {
    fault("told aborted although a branch has committed");
  }
  if (outcome.verdict != Verdict::committed || committed_somewhere) return;
  if (no_.contains(gtrid)) fault("told committed against a no vote (invariant 3)");
  if (!yes_.contains(gtrid)) return;  // only readers
  const Recovered durable = log_.replay();
  const auto same = [&](const auto& record) { return record.gtrid == gtrid; };
  if (std::none_of(durable.commits.begin(), durable.commits.end(), same) &&
      std::none_of(durable.ends.begin(), durable.ends.end(), same)) {
    fault("told committed before the decision is durable (rule 5)");
  }
}

void World::heal() {
  calm_ = true;
  note("! healed");
  for (Rm& rm : rms_) {
    if (rm.hung_up) end_session(rm);
    link_up(rm);
  }
  for (int period = 0; period < 3 && faults_.empty(); ++period) {
    for (int i = 0; i < 400 && faults_.empty(); ++i) {
      for (Rm& rm : rms_) {
        deliver(rm);
        progress(rm, true);
        answer(rm);
      }
      flush(false);
      if (i % 40 == 0) pass(std::chrono::milliseconds(50));
    }
    pass(options_.scan_period);
  }
  check_healed();
}

// Invariants 1 and 5.
void World::check_healed() {
  if (!faults_.empty()) return;
  if (core_->counts().live != 0) {
    for (const TransactionView& view : core_->list(false, 3)) {
      fault("has not ended: " + to_text(view.id) + " " + std::string(name(view.phase)));
    }
  }
  for (const Rm& rm : rms_) {
    for (const auto& [xid, branch] : rm.branches) {
      fault("left over at " + std::to_string(rm.id) + ": " + to_text(id_of(xid)) + " in state " +
            std::to_string(static_cast<int>(branch.state)) +
            (branch.old_session ? ", abandoned" : ""));
    }
  }
  for (const auto& [gtrid, bquals] : done_) {
    const auto voted = yes_.find(gtrid);  // none: a one-phase commit
    if (voted != yes_.end() && voted->second != bquals)
      fault("committed only in part (invariant 1)");
  }
  for (const auto& [gtrid, verdict] : told_) {
    if (verdict == Verdict::committed && yes_.contains(gtrid) && !done_.contains(gtrid)) {
      fault("told committed, and is not");
    }
  }
}

}  // namespace twofold::coordinator::test
