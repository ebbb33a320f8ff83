#include "tests/sim/application.h"

#include <algorithm>
#include <utility>

#include "tests/sim/trace.h"

namespace twofold::sim {

// ---- at a participant ---------------------------------------------------------------------------

// One branch's part of an interactive transaction: join, work, end, over a connection of its own.
class Application::Talk final : public ParticipantCaller {
 public:
  Talk(Application& owner, Participant& to, Xid xid, std::vector<std::string> works)
      : owner_(owner), to_(to), xid_(std::move(xid)), works_(std::move(works)) {}
  ~Talk() override {
    if (!connection_) return;
    connection_->on_closed(0, nullptr);
    connection_->close(0);
  }

  void begin() {
    owner_.world_.network.connect(
        owner_.host_, to_.host(),
        [alive = std::weak_ptr(alive_), this](std::shared_ptr<Connection> made) {
          if (alive.expired()) {
            if (made) made->close(0);
            return;
          }
          if (!made) return over(false);
          connection_ = std::move(made);
          connection_->on_closed(0, [this] {
            connection_.reset();
            over(owner_.world_.random.chance(30));  // careless: as if nothing more had been asked
          });
          connection_->send(0, [to = &to_, connection = connection_, this] {
            to->client_hello(connection, this);
          });
        });
  }

  void welcomed(std::uint64_t, std::uint64_t) override { send(rm::Join{{}, xid_, 1, false}); }
  void answered(std::uint64_t, const rm::Answer& answer) override {
    if (answer.code != Xa::ok) return over(false);
    if (ended_) return over(true);
    if (joined_) ++answered_;
    joined_ = true;
    if (done_ < works_.size()) {
      return send(rm::Execute{{}, xid_, 1, works_[done_++], {}, {}});
    }
    ended_ = true;
    send(rm::End{{}, xid_, 1, rm::End::Flag::success});
  }
  void refused(rm::RefuseSession::Why) override {}
  void listed(std::uint64_t, const rm::AnswerRecover&) override {}
  void evidence(std::uint64_t, co::OutcomeTold::Evidence) override {}
  void failed(std::uint64_t) override { over(false); }
  void waits(const std::vector<rm::WaitEdge>&) override {}

 private:
  void send(rm::Event event) {
    connection_->send(0, [to = &to_, connection = connection_, request = ++request_,
                          event = std::move(event)] { to->request(connection, request, event); });
  }
  void over(bool ok) {
    if (std::exchange(over_, true)) return;
    // Not from within its own callback.
    owner_.after(Duration{0}, [alive = std::weak_ptr(alive_), this, ok] {
      if (!alive.expired()) owner_.worked(ok, answered_);
    });
  }

  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  Application& owner_;
  Participant& to_;
  const Xid xid_;
  const std::vector<std::string> works_;
  std::shared_ptr<Connection> connection_;
  std::size_t done_ = 0, answered_ = 0;
  bool joined_ = false;
  std::uint64_t request_ = 0;
  bool ended_ = false, over_ = false;
};

// ---- life ---------------------------------------------------------------------------------------

Application::Application(Surroundings& world, Host host, std::string name,
                         CoordinatorProcess& coordinator, std::vector<Participant*> participants,
                         const Workload& workload)
    : world_(world),
      host_(host),
      name_(std::move(name)),
      coordinator_(coordinator),
      participants_(std::move(participants)),
      workload_(workload) {}

Application::~Application() = default;

void Application::after(Duration pause, std::function<void()> what) {
  world_.schedule.after(pause, [this, life = life_, what = std::move(what)] {
    if (life == life_) what();
  });
}

void Application::begin() {
  ++life_;
  client_ = 1 + world_.random.next() / 2;
  counter_ = 0;
  thinking_ = false;
  connect();
}

void Application::connect() {
  const std::uint64_t attempt = ++attempt_;
  world_.network.connect(
      host_, coordinator_.host(), [this, attempt](std::shared_ptr<Connection> made) {
        if (attempt != attempt_) {
          if (made) made->close(0);
          return;
        }
        if (!made) return again(world_.random.about(kReconnect));
        connection_ = std::move(made);
        connection_->on_closed(0, [this] { lost(); });
        connection_->send(0,
                          [this, connection = connection_, client = client_, counter = ++counter_] {
                            coordinator_.hello(connection, client, counter, this);
                          });
      });
}

void Application::again(Duration pause) {
  after(pause, [this] { connect(); });
}

void Application::lost() {
  connection_.reset();
  welcome_ = false;
  last_request_ = past_request_ = 0;
  if (current_ && current_->interactive && !current_->ending) {
    talk_.reset();
    current_.reset();  // its deadline ends it
  }
  again(world_.random.about(kReconnect));
}

void Application::vanish() {
  ++world_.tally.clients_lost;
  world_.note(name_, [] { return "! vanishes"; });
  ++life_;
  ++attempt_;
  talk_.reset();
  if (connection_) {
    connection_->on_closed(0, nullptr);
    world_.random.chance(50) ? connection_->close(0) : connection_->vanish(0);
    connection_.reset();
  }
  welcome_ = false;
  last_request_ = past_request_ = 0;
  if (current_ && current_->interactive) current_.reset();
  const std::uint64_t life = life_;
  world_.schedule.after(world_.random.about(std::chrono::milliseconds{30}), [this, life] {
    if (life == life_) begin();
  });
}

void Application::welcomed(TxnId newest) {
  newest_ = std::max(newest_, newest);
  welcome_ = true;
  proceed();
}

void Application::proceed() {
  if (!welcome_) return;
  if (!current_) return next();
  if (current_->interactive) {
    if (current_->ending) {  // it may have committed
      co::OutcomeAsked asked;
      asked.gtrid = current_->gtrid;
      asked.when = co::OutcomeAsked::When::at_decision;
      last_request_ = send(std::move(asked));
    }
    return;
  }
  current_->sent ? ask() : submit();
}

void Application::next() {
  if (stopped_ || std::exchange(thinking_, true)) return;
  after(world_.random.about(workload_.pause), [this] {
    thinking_ = false;
    if (stopped_ || current_) return;
    if (!world_.calm && world_.random.chance(workload_.client_loss)) return vanish();
    if (!welcome_) return;  // goes on when it is
    if (!settled_.empty() && world_.random.chance(15)) ask_of_the_past();
    make();
    proceed();
  });
}

// ---- transactions -------------------------------------------------------------------------------

std::string Application::some_work() {
  std::string work;
  const std::uint64_t count = 1 + world_.random.below(3);
  const bool only_reads = world_.random.chance(workload_.reads);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!work.empty()) work += " ";
    work += only_reads || world_.random.chance(30) ? "r" : "w";
    work += std::to_string(world_.random.below(workload_.keys));
  }
  if (world_.random.chance(workload_.checks)) work += " c";
  return work;
}

void Application::make() {
  Current made;
  made.interactive = world_.random.chance(workload_.interactive);
  made.request_id = name_ + "-" + std::to_string(++requests_);
  made.known = newest_;
  made.since = world_.schedule.now();
  std::vector<std::size_t> order(participants_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[world_.random.below(i)]);
  }
  const std::size_t most = std::min(workload_.branches_max, order.size());
  order.resize(world_.random.chance(15) ? 1
                                        : std::max<std::size_t>(1, 1 + world_.random.below(most)));
  if (!made.interactive) std::sort(order.begin(), order.end());
  for (const std::size_t rm : order)
    made.branches.push_back({participants_[rm]->name(), some_work()});
  ++world_.tally.transactions;
  world_.tally.interactive += made.interactive;
  current_ = std::move(made);
  if (!current_->interactive) return;
  co::Begin begin;
  begin.timeout = Duration{static_cast<std::int64_t>(
      world_.random.between(20'000, static_cast<std::uint64_t>(kTransactionTimeout.count())))};
  last_request_ = send(begin);
}

std::uint64_t Application::send(co::Event event) {
  const std::uint64_t request = ++request_number_;
  if (!connection_) return request;
  connection_->send(
      0, [coordinator = &coordinator_, connection = connection_, request,
          event = std::move(event)] { coordinator->request(connection, request, event); });
  return request;
}

void Application::submit() {
  co::Submit submit;
  submit.request_id = current_->request_id;
  submit.branches = current_->branches;
  submit.timeout = Duration{static_cast<std::int64_t>(
      world_.random.between(20'000, static_cast<std::uint64_t>(kTransactionTimeout.count())))};
  submit.reply_at_end = world_.random.chance(20);
  submit.known = current_->known;
  submit.age = world_.schedule.now() - current_->since;
  current_->sent = true;
  ++current_->attempts;
  last_request_ = send(std::move(submit));
}

void Application::ask() {
  ++world_.tally.asked_again;
  co::OutcomeAsked asked;
  asked.request_id = current_->request_id;
  asked.known = current_->known;
  asked.when = co::OutcomeAsked::When::at_decision;
  last_request_ = send(std::move(asked));
}

// What was told once must stay so (invariant 2), and the same request is not carried out again.
void Application::ask_of_the_past() {
  auto some = settled_.begin();
  std::advance(some, static_cast<std::ptrdiff_t>(world_.random.below(settled_.size())));
  past_id_ = some->first;
  ++world_.tally.asked_again;
  if (world_.random.chance(50)) {
    co::Submit submit;
    submit.request_id = past_id_;
    submit.branches = some->second.branches;
    submit.known = some->second.known;
    past_request_ = send(std::move(submit));
  } else {
    co::OutcomeAsked asked;
    asked.request_id = past_id_;
    asked.known = some->second.known;
    past_request_ = send(std::move(asked));
  }
}

void Application::done() {
  current_.reset();
  talk_.reset();
  last_request_ = 0;
  next();
}

void Application::told(std::uint64_t request, const Outcome& outcome) {
  if (request == past_request_ && past_request_ != 0) {
    const Settled& known = settled_.at(past_id_);
    const bool same = outcome.verdict == known.outcome.verdict &&
                      (outcome.gtrid == known.outcome.gtrid || outcome.gtrid.empty());
    const bool forgotten = outcome.verdict == Verdict::expired ||
                           outcome.verdict == Verdict::pending ||
                           outcome.verdict == Verdict::unknown;
    if (!same && !forgotten && !world_.has_gone_back && outcome.verdict != Verdict::rejected) {
      world_.history.fault("request " + past_id_ + " was told " + describe(known.outcome) +
                               ", then " + describe(outcome) + " (rules 7 and 8)",
                           known.outcome.gtrid);
    }
    past_request_ = 0;
    return;
  }
  if (!current_ || request != last_request_) return;
  if (current_->interactive) {
    if (outcome.verdict == Verdict::pending && current_->gtrid.empty()) {
      current_->gtrid = outcome.gtrid;
      return enlist_next();
    }
    if (!current_->ending && !current_->gtrid.empty()) return finish(false);  // not enlisted
    if (outcome.verdict == Verdict::committed) {
      for (const auto& count : current_->counts) {
        check_works(current_->gtrid, count.rm, count.items);
      }
    }
    return done();
  }
  switch (outcome.verdict) {
    case Verdict::committed: break;
    case Verdict::not_found:
      if (!world_.random.chance(30)) return submit();
      world_.history.gave_up(current_->request_id);  // as nothing has happened, nothing will
      return done();
    case Verdict::aborted:
    case Verdict::rejected:
      if (!retryable(outcome.reason)) break;
      if (current_->attempts > 5 || stopped_ || world_.random.chance(30)) {
        world_.history.gave_up(current_->request_id);
        return done();
      }
      return after(world_.random.about(std::chrono::milliseconds{5}), [this] {
        if (!current_ || current_->interactive) return;
        if (welcome_) submit();
      });
    case Verdict::pending:
    case Verdict::expired:
    case Verdict::unknown: return done();
  }
  const bool final = outcome.verdict == Verdict::committed || outcome.reason == Reason::refused;
  if (outcome.verdict == Verdict::committed) {
    for (const auto& branch : current_->branches) check_works(outcome.gtrid, branch.rm, 1);
  }
  if (outcome.reason == Reason::mismatch || outcome.reason == Reason::invalid) {
    world_.history.fault("a good submission was told " + describe(outcome), outcome.gtrid);
  }
  // Of what only read there is no record, and it may be done again.
  const bool wrote =
      std::any_of(current_->branches.begin(), current_->branches.end(),
                  [](const auto& branch) { return branch.work.find('w') != std::string::npos; });
  if (final && wrote)
    settled_[current_->request_id] = {current_->known, outcome, current_->branches};
  done();
}

// What is committed is what was asked for (rule 10).
void Application::check_works(const std::string& gtrid, const std::string& rm,
                              std::uint64_t asked) {
  const std::uint64_t done = world_.history.works(gtrid, rm);
  if (done == asked || world_.history.excused(gtrid)) return;
  world_.history.fault("is committed with " + std::to_string(done) + " works at " + rm +
                           " instead of " + std::to_string(asked) + " (rule 10)",
                       gtrid);
}

// ---- interactive --------------------------------------------------------------------------------

void Application::enlist_next() {
  if (current_->at == current_->branches.size()) {
    return finish(!world_.random.chance(10));
  }
  if (!world_.calm && world_.random.chance(workload_.client_loss)) return vanish();
  last_request_ = send(co::Enlist{{}, current_->gtrid, current_->branches[current_->at].rm});
}

void Application::enlisted(std::uint64_t request, co::RmId rm, const Xid& xid) {
  if (!current_ || request != last_request_) return;
  std::vector<std::string> works{current_->branches[current_->at].work};
  if (world_.random.chance(40)) works.push_back(some_work());
  talk_ = std::make_unique<Talk>(*this, *participants_[rm], xid, std::move(works));
  talk_->begin();
}

void Application::worked(bool ok, std::uint64_t items) {
  talk_.reset();
  if (!current_ || !current_->interactive || current_->ending) return;
  if (!ok) return finish(false);
  current_->counts.push_back({current_->branches[current_->at].rm, items});
  ++current_->at;
  enlist_next();
}

void Application::finish(bool commit) {
  current_->ending = true;
  if (commit) {
    co::CommitRequested end;
    end.gtrid = current_->gtrid;
    end.work = current_->counts;
    end.reply_at_end = world_.random.chance(20);
    last_request_ = send(std::move(end));
  } else {
    last_request_ = send(co::RollbackRequested{{}, current_->gtrid, false});
  }
}

std::string Application::waits_for() const {
  if (!current_) return {};
  return name_ + " waits for " +
         (current_->interactive ? id_of(current_->gtrid) : current_->request_id);
}

}  // namespace twofold::sim
