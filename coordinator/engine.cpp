#include "coordinator/engine.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/client_server.h"
#include "coordinator/driver.h"
#include "coordinator/link.h"
#include "coordinator/statistics.h"
#include "log/group_commit.h"
#include "protocol/check.h"
#include "runtime/logging.h"

namespace twofold::coordinator {
namespace {

// A log this full takes no new transactions (rule 23); they are taken again when it has emptied to
// the lower mark, so that the answer does not change with every purge.
constexpr double kUsedMax = 0.80;
constexpr double kUsedAgain = 0.75;

constexpr int kEarlierMax = static_cast<int>(kEarlierEpochsMax);

std::chrono::milliseconds ms(std::uint64_t value) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(value)};
}

std::vector<std::string> names_of(const Configuration& configuration) {
  std::vector<std::string> names;
  for (const auto& rm : configuration.resource_managers) names.push_back(rm.name);
  return names;
}

Options core_options(const EngineOptions& of) {
  const CoordinatorConfiguration& c = of.configuration.coordinator;
  Options options;
  options.resource_managers = names_of(of.configuration);
  options.accept_stores = of.accept_stores;
  options.transactions_max = c.transactions_max;
  options.branches_max = c.branches_max;
  options.outcomes_max = c.outcomes_max;
  options.timeout_default = ms(c.timeout_default_ms);
  options.timeout_max = ms(c.timeout_max_ms);
  options.scan_period = ms(c.scan_period_ms);
  options.mark_period = ms(c.mark_period_ms);
  options.mark_alarm = ms(c.mark_alarm_ms);
  options.read_only_votes = c.read_only_votes;
  options.one_phase = c.one_phase;
  options.early_prepare = c.early_prepare;
  return options;
}

ConnectionOptions connection_options(const CoordinatorConfiguration& c) {
  ConnectionOptions options;
  options.frame_bytes_max = c.frame_bytes_max;
  options.heartbeat = ms(c.heartbeat_ms);
  options.silence_max = ms(c.silence_max_ms);
  return options;
}

wire::Hello hello_of(const EngineOptions& options, const Epoch& epoch) {
  const CoordinatorConfiguration& c = options.configuration.coordinator;
  wire::Hello hello;
  hello.set_version(kProtocolVersion);
  hello.set_role(wire::ROLE_COORDINATOR);
  hello.set_name(epoch.node);
  hello.set_node(epoch.node);
  hello.set_log_id(epoch.log_id.value);
  hello.set_epoch(epoch.current.number);
  hello.set_nonce(epoch.current.nonce);
  hello.set_rebuild(options.rebuild);
  std::uint64_t before = epoch.current.number;
  for (auto known = epoch.earlier.rbegin(); known != epoch.earlier.rend(); ++known) {
    if (known->number != --before || hello.earlier_size() == kEarlierMax) break;
    hello.add_earlier(known->nonce);
  }
  for (const FormerLog& log : epoch.former) hello.add_former_logs(log.id.value);
  hello.set_heartbeat_ms(static_cast<std::uint32_t>(c.heartbeat_ms));
  hello.set_frame_bytes_max(static_cast<std::uint32_t>(c.frame_bytes_max));
  return hello;
}

wire::Welcome welcome_of(const CoordinatorConfiguration& c, const Epoch& epoch) {
  wire::Welcome welcome;
  welcome.set_version(kProtocolVersion);
  welcome.set_role(wire::ROLE_COORDINATOR);
  welcome.set_name(epoch.node);
  welcome.set_node(epoch.node);
  welcome.set_log_id(epoch.log_id.value);
  welcome.set_incarnation(epoch.current.nonce);
  welcome.set_heartbeat_ms(static_cast<std::uint32_t>(c.heartbeat_ms));
  welcome.set_frame_bytes_max(static_cast<std::uint32_t>(c.frame_bytes_max));
  return welcome;
}

Address address_of(const std::string& text, const std::string& whose) {
  Result<Address> address = parse_address(text);
  if (!address) throw std::runtime_error(whose + ": " + address.error().message);
  return *address;
}

void tell_restored(const FormerLog& before) {
  spdlog::warn(
      "restored: the log has a new id, its former one was {:016x}. Commits that it recorded are "
      "carried out; abort is presumed for epochs before {} only, later branches in doubt are "
      "reported and left alone. Do not give --restored at the next start",
      before.id.value, before.certain_below);
}

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Epoch open_epoch(const EngineOptions& options, DecisionStore& store) {
  if (options.restored) tell_restored(store.restore().value());
  return store.open_epoch().value();
}

// For the log, when the answer to "is there room" changes.
void tell_space(bool room, double used, bool full) {
  const int percent = static_cast<int>(used * 100);
  if (room) {
    spdlog::info("the log has room again ({} % used): new transactions are accepted", percent);
  } else if (full) {
    spdlog::error(
        "no room to write the log: new transactions are refused, those under way finish; free "
        "space on "
        "its disk");
  } else {
    spdlog::error(
        "the log is {} % full: new transactions are refused, those under way finish; what has "
        "ended is "
        "purged beyond outcomes_max once every resource manager has been scanned: connect them "
        "all, or "
        "lower outcomes_max",
        percent);
  }
}

}  // namespace

class Engine::Impl final : public Driver {
 public:
  Impl(EngineOptions options, std::unique_ptr<DecisionStore> store, Recovered recovered);

  boost::asio::io_context& io() override { return io_; }
  void post(Event event) override;
  const Coordinator& settled_core() override;
  TxnId newest() const override { return core_.newest(); }
  void add_stats(wire::StatsAnswer& stats) override;
  void outdated(const std::string& rm, const std::string& text) override;

  Address address() const { return clients_.address(); }
  Result<void> run();
  void shutdown();
  void stop() { io_.stop(); }

 private:
  ClientServerOptions client_options() const;
  GroupCommitOptions group_commit_options() const;

  // Stepping.
  void turn();
  void step_all();
  void step(Event event, Time now);
  void note_served();
  void carry_out(Effect& effect);
  void perform(Persist& effect);
  void perform(Reply& effect) { clients_.reply(effect); }
  void perform(Enlisted& effect) {
    clients_.reply(effect, options_.configuration.resource_managers[effect.rm].address);
  }
  void perform(DrainTold& effect) { clients_.reply(effect, core_.participant(effect.rm, true)); }
  void perform(Alarm& effect) { spdlog::critical("ALARM {}", effect.text); }
  template <class Send>
  void perform(Send& effect) {
    links_[effect.rm]->send(effect);
  }
  std::string_view rm_name(std::optional<RmId> rm) const {
    return rm ? std::string_view(links_[*rm]->name()) : std::string_view{};
  }
  std::function<void()> flush_of(const Effect& effect);
  void submit_writes();
  void arm_timer();

  // The log.
  void written(const GroupResult& result);
  void judge_space(double used, bool full);

  // Shutdown.
  bool drained() const;
  void tell_the_rest();
  void finish();

  EngineOptions options_;
  std::unique_ptr<DecisionStore> store_;
  std::uint64_t served_before_;  // the newest epoch before this one in which a session was accepted
  bool served_ = false;          // this one
  std::optional<Error> outdated_;
  boost::asio::io_context io_{1};
  Epoch epoch_;
  Coordinator core_;
  std::vector<Event> queue_;
  std::vector<Event> batch_;
  std::vector<Effect> effects_;
  std::vector<Write> writes_;
  bool woken_ = false;
  bool stepping_ = false;
  boost::asio::steady_timer timer_;
  std::optional<Time> timer_at_;

  std::uint64_t persists_open_ = 0;
  bool room_ = true;
  double used_ = 0;
  Histogram sync_us_;
  Histogram group_writes_;
  std::uint64_t writes_durable_ = 0;
  std::uint64_t writes_refused_ = 0;

  enum class Ending : std::uint8_t { no, draining, telling } ending_ = Ending::no;
  boost::asio::steady_timer grace_;

  std::vector<std::unique_ptr<Link>> links_;
  ClientServer clients_;
  GroupCommit group_commit_;  // last: its thread posts to io_
};

// ---- starting and ending
// ---------------------------------------------------------------------------

Engine::Impl::Impl(EngineOptions options, std::unique_ptr<DecisionStore> store, Recovered recovered)
    : options_(std::move(options)),
      store_(std::move(store)),
      served_before_(store_->info().served),
      epoch_(open_epoch(options_, *store_)),
      core_(core_options(options_), epoch_, std::move(recovered), monotonic_now()),
      timer_(io_),
      grace_(io_),
      clients_(*this, client_options()),
      group_commit_(store_->target(), group_commit_options(), [this](GroupResult result) {
        boost::asio::post(io_, [this, told = std::move(result)] { written(told); });
      }) {
  const wire::Hello hello = hello_of(options_, epoch_);
  const CoordinatorConfiguration& c = options_.configuration.coordinator;
  for (const auto& rm : options_.configuration.resource_managers) {
    LinkOptions link;
    link.id = static_cast<RmId>(links_.size());
    link.name = rm.name;
    link.address = address_of(rm.address, "the address of " + rm.name);
    link.hello = hello;
    link.hello.set_expects(rm.name);
    link.connection = connection_options(c);
    link.reconnect_first = ms(c.reconnect_first_ms);
    link.reconnect_max = ms(c.reconnect_max_ms);
    link.scan_time_max = ms(c.scan_time_max_ms);
    links_.push_back(std::make_unique<Link>(*this, std::move(link)));
  }
  spdlog::info("node {}, epoch {}, {} resource managers", epoch_.node, epoch_.current.number,
               links_.size());
}

ClientServerOptions Engine::Impl::client_options() const {
  const CoordinatorConfiguration& c = options_.configuration.coordinator;
  ClientServerOptions options;
  options.listen = address_of(c.listen, "listen");
  options.welcome = welcome_of(c, epoch_);
  options.connection = connection_options(c);
  options.connections_max = c.connections_max;
  options.requests_max = 2 * c.transactions_max + 1'000;
  return options;
}

GroupCommitOptions Engine::Impl::group_commit_options() const {
  GroupCommitOptions options;
  options.lazy_flush = ms(options_.configuration.coordinator.lazy_flush_ms);
  return options;
}

Result<void> Engine::Impl::run() {
  judge_space(store_->info().used_fraction, false);
  for (auto& link : links_) link->connect();
  arm_timer();
  try {
    io_.run();
  } catch (const std::exception& fault) {
    spdlog::critical("the engine failed: {}; this process ends, start it again", fault.what());
    spdlog::shutdown();
    std::_Exit(EXIT_FAILURE);
  }
  if (!outdated_) return {};
  group_commit_.drain();
  return *outdated_;
}

// As a crash for everybody else: whatever this log says is not the newest, so nothing that it lacks
// may be presumed. The mark keeps the next start from trying with yet another epoch.
void Engine::Impl::outdated(const std::string& rm, const std::string& text) {
  if (outdated_) return;
  const std::string log = options_.configuration.coordinator.log.string();
  outdated_ = Error{Fault::outdated,
                    "the log " + log + " is not the newest copy of itself: resource manager " + rm +
                        " says: " + text +
                        ". Start the coordinator on the newest copy. If this is "
                        "the newest that is left, start it once with --restored (docs/backup.md "
                        "says what that means)"};
  spdlog::critical("ALARM {}", outdated_->message);
  writes_.push_back({0, mutations(BackupMark{wall_us(), served_before_, rm}), Urgency::now, true});
  submit_writes();
  io_.stop();
}

void Engine::Impl::shutdown() {
  if (ending_ != Ending::no) return;
  ending_ = Ending::draining;
  spdlog::info("shutting down");
  post(Shutdown{false});
  grace_.expires_after(ms(options_.configuration.coordinator.shutdown_grace_ms));
  grace_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) tell_the_rest();
  });
}

// Nothing is under way, and everything the log was given has been told.
bool Engine::Impl::drained() const {
  return persists_open_ == 0 && core_.counts().live == 0;
}

void Engine::Impl::tell_the_rest() {
  if (ending_ != Ending::draining) return;
  ending_ = Ending::telling;
  grace_.cancel();
  if (const std::uint64_t live = core_.counts().live; live > 0) {
    spdlog::warn("{} transactions have not ended; the next start goes on with them", live);
  }
  post(Shutdown{true});
}

// ---- stepping
// --------------------------------------------------------------------------------------

void Engine::Impl::post(Event event) {
  queue_.push_back(std::move(event));
  if (std::exchange(woken_, true)) return;
  boost::asio::post(io_, [this] { turn(); });
}

const Coordinator& Engine::Impl::settled_core() {
  step_all();
  return core_;
}

void Engine::Impl::step_all() {
  TWOFOLD_CHECK(!stepping_);
  stepping_ = true;
  const Time now = monotonic_now();
  while (!queue_.empty()) {
    batch_.swap(queue_);
    for (Event& event : batch_) step(std::move(event), now);
    batch_.clear();
  }
  stepping_ = false;
  submit_writes();
}

void Engine::Impl::turn() {
  woken_ = false;
  step_all();
  if (ending_ == Ending::draining && drained()) tell_the_rest();
  if (ending_ == Ending::telling && queue_.empty()) return finish();
  arm_timer();
}

// Unforced: it is in the log before whatever this epoch decides, and that is all it must be.
void Engine::Impl::note_served() {
  if (std::exchange(served_, true)) return;
  writes_.push_back({0, mutations(ServedEpoch{epoch_.current.number}), Urgency::lazy, true});
}

void Engine::Impl::step(Event event, Time now) {
  if (std::holds_alternative<LinkUp>(event)) note_served();
  const auto* down = std::get_if<LinkDown>(&event);
  const std::optional<RmId> lost = down ? std::optional(down->rm) : std::nullopt;
  if (options_.crash_point.armed()) {
    const std::string_view what = name(event);
    const std::string_view rm = rm_name(resource_manager(event));
    options_.crash_point.before(what, rm);
    core_.step(std::move(event), now, effects_);
    options_.crash_point.after(what, rm, nullptr);
  } else {
    core_.step(std::move(event), now, effects_);
  }
  for (Effect& effect : effects_) carry_out(effect);
  effects_.clear();
  if (lost) links_[*lost]->resume();
}

void Engine::Impl::carry_out(Effect& effect) {
  const auto visit = [&] { std::visit([this](auto& asked) { perform(asked); }, effect); };
  if (!options_.crash_point.armed()) return visit();
  const std::string_view what = name(effect);
  const std::string_view rm = rm_name(resource_manager(effect));
  const std::function<void()> flush = flush_of(effect);
  options_.crash_point.before(what, rm);
  visit();
  options_.crash_point.after(what, rm, flush);
}

// What makes it true that an effect has left this process.
std::function<void()> Engine::Impl::flush_of(const Effect& effect) {
  if (std::holds_alternative<Persist>(effect)) return [this] { submit_writes(); };
  if (const auto* reply = std::get_if<Reply>(&effect)) {
    return
        [this, connection = reply->requester.connection] { clients_.flush_blocking(connection); };
  }
  if (const auto* enlisted = std::get_if<Enlisted>(&effect)) {
    return [this, connection = enlisted->requester.connection] {
      clients_.flush_blocking(connection);
    };
  }
  if (const auto* told = std::get_if<DrainTold>(&effect)) {
    return [this, connection = told->requester.connection] { clients_.flush_blocking(connection); };
  }
  if (const std::optional<RmId> rm = resource_manager(effect)) {
    return [this, rm = *rm] { links_[rm]->flush_blocking(); };
  }
  return nullptr;
}

void Engine::Impl::perform(Persist& effect) {
  ++persists_open_;
  writes_.push_back({effect.ticket, mutations(effect.record),
                     effect.forced ? Urgency::now : Urgency::lazy, effect.refusable});
}

void Engine::Impl::submit_writes() {
  if (writes_.empty()) return;
  group_commit_.submit(std::exchange(writes_, {}));
}

// Moved only to an earlier time: one that comes too early finds nothing due and is set again.
void Engine::Impl::arm_timer() {
  const std::optional<Time> due = core_.next_deadline();
  if (!due || (timer_at_ && *timer_at_ <= *due)) return;
  timer_at_ = due;
  timer_.expires_at(std::chrono::steady_clock::time_point(due->time_since_epoch()));
  timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    timer_at_.reset();
    const std::optional<Time> next = core_.next_deadline();
    if (next && *next <= monotonic_now()) return post(Tick{});
    arm_timer();
  });
}

// ---- the log
// ---------------------------------------------------------------------------------------

void Engine::Impl::written(const GroupResult& result) {
  const std::size_t told = result.durable.size() + result.refused.size();
  TWOFOLD_CHECK(told <= persists_open_);
  persists_open_ -= told;
  writes_durable_ += result.durable.size();
  writes_refused_ += result.refused.size();
  if (!result.durable.empty()) {
    group_writes_.record(result.durable.size());
    sync_us_.record(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(result.sync).count()));
  }
  judge_space(result.used_fraction, result.full);
  for (std::uint64_t ticket : result.durable) post(Durable{ticket});
  for (std::uint64_t ticket : result.refused) post(Refused{ticket});
}

void Engine::Impl::judge_space(double used, bool full) {
  used_ = used;
  const bool room = !full && used < (room_ ? kUsedMax : kUsedAgain);
  if (room == room_) return;
  room_ = room;
  tell_space(room, used, full);
  post(SpaceChanged{room});
}

// ---- the end
// ---------------------------------------------------------------------------------------

void Engine::Impl::finish() {
  clients_.close();
  for (auto& link : links_) link->close();
  io_.stop();
}

void Engine::Impl::add_stats(wire::StatsAnswer& stats) {
  add_text(stats, "node", epoch_.node);
  add_text(stats, "log_id", fmt::format("{:016x}", epoch_.log_id.value));
  add_number(stats, "epoch", epoch_.current.number);
  add_text(stats, "newest", to_text(core_.newest()));
  add_text(stats, "low_water", to_text(core_.low_water()));
  add_text(stats, "floor", to_text(core_.floor()));
  const Counts counts = core_.counts();
  add_counts(stats, counts);
  add_number(stats, "log_forced_writes", sync_us_.count());
  add_number(stats, "log_records", writes_durable_);
  add_number(stats, "log_records_refused", writes_refused_);
  add_number(stats, "log_used_percent", static_cast<std::uint64_t>(used_ * 100));
  add_text(stats, "log_room", room_ ? "yes" : "no: new transactions are refused");
  add_histogram(stats, "sync_us", sync_us_);
  add_histogram(stats, "group_records", group_writes_);
  clients_.add_stats(stats);
  std::uint64_t messages = 0;
  for (const auto& link : links_) {
    messages += link->branch_frames();
    link->add_stats(stats);
    const ParticipantView view = core_.participant(static_cast<RmId>(&link - links_.data()), false);
    add_text(stats, link->name() + ".participant",
             std::string(name(view.state)) + ", " + std::string(name(view.standing)));
  }
  const std::uint64_t ended = counts.committed + counts.aborted + counts.refused;
  add_number(stats, "branch_messages", messages);
  add_text(
      stats, "messages_per_transaction",
      fmt::format("{:.2f}",
                  ended == 0 ? 0.0 : static_cast<double>(messages) / static_cast<double>(ended)));
}

Result<Recovered> replay_for(const EngineOptions& options, DecisionStore& store) {
  const CoordinatorConfiguration& c = options.configuration.coordinator;
  if (const LogInfo info = store.info(); info.node != c.node) {
    return Error{Fault::invalid, "the log " + c.log.string() + " belongs to the node \"" +
                                     info.node + "\", and this coordinator is configured as \"" +
                                     c.node + "\": set node to \"" + info.node +
                                     "\", or name the log of \"" + c.node + "\""};
  }
  const std::vector<std::string> names = names_of(options.configuration);
  for (const std::string& name : options.accept_stores) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return Error{Fault::invalid,
                 "--accept-store " + name +
                     ": there is no resource manager of that name in the configuration"};
  }
  if (const LogInfo info = store.info(); info.backup && !options.restored) {
    return marked_as_backup(c.log, *info.backup);
  }
  Result<Recovered> recovered = store.replay();
  if (!recovered) return recovered;
  if (options.restored) {  // as restore() will record it
    for (Participant& one : recovered->participants) one.state = Participant::State::active;
  }
  if (auto text = left_out(*recovered, names)) return Error{Fault::invalid, std::move(*text)};
  return recovered;
}

// ---- the engine
// ------------------------------------------------------------------------------------

Engine::Engine(EngineOptions options, std::unique_ptr<DecisionStore> store) {
  Recovered recovered = replay_for(options, *store).value();
  impl_ = std::make_unique<Impl>(std::move(options), std::move(store), std::move(recovered));
}
Engine::~Engine() = default;
boost::asio::io_context& Engine::io() {
  return impl_->io();
}
Address Engine::address() const {
  return impl_->address();
}
Result<void> Engine::run() {
  return impl_->run();
}
void Engine::shutdown() {
  impl_->shutdown();
}
void Engine::stop() {
  impl_->stop();
}

}  // namespace twofold::coordinator
