#include "resource_manager/adapters/store.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "log/group_commit.h"
#include "log/lmdb.h"
#include "protocol/check.h"
#include "resource_manager/adapters/store_data.h"
#include "resource_manager/adapters/store_operations.h"
#include "resource_manager/adapters/store_rows.h"
#include "resource_manager/adapters/store_view.h"
#include "resource_manager/stats_view.h"
#include "runtime/histogram.h"

namespace twofold::resource_manager {
namespace store {
namespace {

// New transactions are refused from here on: a commit's copy-on-write needs pages too (rule 23).
constexpr double kRoomFraction = 0.8;
// A vote is a promise of room for the commit: what is used, and what prepared branches still have
// to write, together stay below this part of the map.
constexpr double kPromiseFraction = 0.9;
// So far go branches that only erase, or else nobody could make room. The rest is for finishing
// what is under way.
constexpr double kErasingFraction = 0.95;
constexpr std::uint64_t kPageBytes = 4096;

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Mutation put_row(Table table, std::string key, std::string value) {
  return {Mutation::Kind::put, table, std::move(key), std::move(value)};
}
Mutation erase_row(Table table, std::string key) {
  return {Mutation::Kind::erase, table, std::move(key), {}};
}

// About what the write set takes in the data table.
std::uint64_t bytes_of(const WriteSet& writes) {
  std::uint64_t bytes = 0;
  for (const auto& [key, value] : writes) bytes += key.size() + (value ? value->size() : 0) + 32;
  return bytes;
}

// Also of a branch that wrote nothing: it takes little, and gives it back at its end.
bool only_erases(const WriteSet& writes) {
  return std::all_of(writes.begin(), writes.end(), [](const auto& one) { return !one.second; });
}

std::runtime_error damaged(const lmdb::Environment& environment, std::string_view what) {
  return std::runtime_error("the store in " + environment.directory().string() + " has a damaged " +
                            std::string(what) +
                            ", or one of a newer version: start the version that wrote it, or put "
                            "a copy of the data back");
}

// ---- the adapter
// -----------------------------------------------------------------------------------

class Store final : public Adapter {
 public:
  Store(StoreOptions options, std::unique_ptr<lmdb::Environment> environment,
        std::uint64_t store_id)
      : options_(std::move(options)),
        environment_(std::move(environment)),
        target_(*environment_),
        reader_(*environment_),
        store_id_(store_id),
        used_fraction_(environment_->used_fraction()) {
    reader_.reset();
  }

  std::uint64_t store_id() const override { return store_id_; }
  Recovered recover(Time now) override;
  void attach(Host& host) override;
  bool stop() override;

  Plan plan(std::string_view work) const override;
  void run(const Run& effect) override;
  void discard(const Discard& effect) override { branches_.erase(effect.branch); }
  void persist(PersistPrepare effect) override;
  void persist(PersistCommit effect) override;
  void persist(PersistRollback effect) override;
  void persist(PersistNode effect) override;
  void flush() override;
  void evidence(const Xid& xid, std::function<void(Evidence)> done) override {
    done(evidence(xid));
  }
  void scan(const wire::Scan& scan, std::uint64_t bytes_max,
            std::function<void(Result<wire::ScanAnswer>)> done) override {
    done(this->scan(scan, bytes_max));
  }
  void add_stats(wire::StatsAnswer& stats) const override;

 private:
  // A write whose end is awaited.
  struct Pending {
    std::string prepare;            // of a prepare: the prepared row's key
    std::vector<std::string> keys;  // of a commit: its overlay entries,
    std::uint64_t sequence = 0;     // and under which number they are there
    std::uint64_t promised = 0;     // bytes of room that its end gives back
  };
  struct Prepared {
    WriteSet writes;
    std::uint64_t promised = 0;
  };

  Evidence evidence(const Xid& xid);
  wire::ScanAnswer scan(const wire::Scan& scan, std::uint64_t bytes_max);
  std::uint64_t promise_for(const WriteSet& writes) const;
  bool room_for(const WriteSet& writes, std::uint64_t bytes) const;
  std::optional<Refusal> too_large(const WriteSet& writes) const;
  WriteSet take_writes(BranchId branch);
  void submit(std::uint64_t ticket, Pending pending, Write write);
  void on_group(const GroupResult& result);
  void settle(std::uint64_t ticket, bool durable);

  const StoreOptions options_;
  std::unique_ptr<lmdb::Environment> environment_;
  LmdbTarget target_;
  mutable lmdb::Reader reader_;
  const std::uint64_t store_id_;
  Host* host_ = nullptr;

  std::unordered_map<BranchId, WriteSet> branches_;     // unprepared ones
  std::unordered_map<std::string, Prepared> prepared_;  // by prepared row's key
  std::unordered_map<std::uint64_t, Pending> pending_;  // by ticket
  Overlay overlay_;
  std::uint64_t sequence_ = 0;
  std::vector<Write> outbox_;  // since the last flush()

  double used_fraction_ = 0;
  std::uint64_t promised_ = 0;
  bool room_ = true;
  std::uint64_t groups_ = 0;
  Histogram sync_us_, group_writes_;
  std::unique_ptr<GroupCommit> group_commit_;  // last: its thread ends first
};

Recovered Store::recover(Time now) {
  Recovered recovered;
  const std::int64_t wall_now = wall_us();
  bool readable = true;
  Snapshot snapshot(reader_);
  auto take_prepared = [&](std::string_view key, std::string_view value) {
    std::optional<PreparedRow> row = decode_prepared(key, value);
    if (!(readable = row.has_value())) return false;
    const Duration age{std::max<std::int64_t>(0, wall_now - row->wall_us)};
    recovered.prepared.push_back({std::move(row->xid), std::move(row->locks), now - age});
    Prepared prepared{std::move(row->writes), 0};
    prepared.promised = promise_for(prepared.writes);
    promised_ += prepared.promised;
    prepared_.emplace(key, std::move(prepared));
    return true;
  };
  snapshot->scan(environment_->table(kPrepared), {}, take_prepared);
  if (!readable) throw damaged(*environment_, "prepared branch");
  auto take_node = [&](std::string_view key, std::string_view value) {
    std::optional<NodeRecord> record = decode_node(key, value);
    if (!(readable = record.has_value())) return false;
    recovered.nodes.push_back(std::move(*record));
    return true;
  };
  snapshot->scan(environment_->table(kNodes), {}, take_node);
  if (!readable) throw damaged(*environment_, "node record");
  return recovered;
}

void Store::attach(Host& host) {
  TWOFOLD_CHECK(host_ == nullptr);
  host_ = &host;
  // On the writer thread; one call on the engine's thread per group (rule 23).
  group_commit_ = std::make_unique<GroupCommit>(
      target_, GroupCommitOptions{.lazy_flush = options_.lazy_flush}, [this](GroupResult result) {
        host_->call([this, group = std::move(result)] { on_group(group); });
      });
  room_ = used_fraction_ < kRoomFraction;
  if (!room_) host_->post(SpaceChanged{false});
}

bool Store::stop() {
  if (!group_commit_) return true;
  flush();
  const bool written = group_commit_->drain();
  group_commit_.reset();  // its thread has ended: nothing is posted any more
  return written;
}

Plan Store::plan(std::string_view work) const {
  Parsed parsed = parse(work);
  Plan plan;
  plan.invalid = std::move(parsed.invalid);
  if (plan.invalid.empty()) plan.locks = locks_of(parsed.operations);
  return plan;
}

void Store::run(const Run& effect) {
  const Parsed parsed = parse(effect.work);
  TWOFOLD_CHECK(parsed.invalid.empty());  // plan() said so, and the branch is not run
  WriteSet& writes = branches_[effect.branch];
  AppliedView view(overlay_, *environment_, reader_);
  Evaluated evaluated = evaluate(parsed.operations, view, writes);

  Ran ran;
  ran.branch = effect.branch;
  ran.refusals = std::move(evaluated.refusals);
  if (auto refusal = too_large(writes)) ran.refusals.push_back(std::move(*refusal));
  if (ran.refusals.empty()) {
    ran.results = encode_results(evaluated.results);
    if (ran.results.size() > options_.results_bytes_max) {
      Refusal& refusal = ran.refusals.emplace_back();
      refusal.check = "invalid";
      refusal.value = std::to_string(ran.results.size());
      refusal.limit =
          "results of at most " + std::to_string(options_.results_bytes_max) + " bytes a branch";
      ran.results.clear();
    }
  }
  ran.code = ran.refusals.empty() ? Xa::ok : Xa::rbintegrity;
  ran.wrote = !writes.empty();
  ran.frees = ran.wrote && only_erases(writes);
  host_->post(std::move(ran));
}

// What the end of a branch may add to what is used. Erasing rewrites pages, one for each key in the
// worst case; only in the reserve is that more than what is spare.
std::uint64_t Store::promise_for(const WriteSet& writes) const {
  std::uint64_t bytes = bytes_of(writes);
  if (used_fraction_ < kRoomFraction) return bytes;
  for (const auto& [key, value] : writes) bytes += value ? 0 : kPageBytes;
  return bytes;
}

bool Store::room_for(const WriteSet& writes, std::uint64_t bytes) const {
  const double map = static_cast<double>(environment_->map_bytes());
  const double limit = only_erases(writes) ? kErasingFraction : kPromiseFraction;
  return used_fraction_ * map + static_cast<double>(promised_ + bytes) <= limit * map;
}

// Even an empty store would have no room for its prepared row and for the promise of its vote: no
// retry can do better.
std::optional<Refusal> Store::too_large(const WriteSet& writes) const {
  const double map = static_cast<double>(environment_->map_bytes());
  const auto limit = static_cast<std::uint64_t>(kPromiseFraction * map / 2);
  const std::uint64_t bytes = bytes_of(writes);
  if (bytes <= limit || only_erases(writes)) return std::nullopt;
  Refusal refusal;
  refusal.check = "invalid";
  refusal.value = std::to_string(bytes);
  refusal.limit =
      "split the transaction, or enlarge the map: with this one a branch writes at most " +
      std::to_string(limit) + " bytes";
  return refusal;
}

WriteSet Store::take_writes(BranchId branch) {
  auto node = branches_.extract(branch);
  return node.empty() ? WriteSet{} : std::move(node.mapped());
}

void Store::submit(std::uint64_t ticket, Pending pending, Write write) {
  write.ticket = ticket;
  if (ticket != 0) TWOFOLD_CHECK(pending_.emplace(ticket, std::move(pending)).second);
  outbox_.push_back(std::move(write));
}

void Store::persist(PersistPrepare effect) {
  Prepared prepared{take_writes(effect.branch), 0};
  prepared.promised = promise_for(prepared.writes);
  std::string row = encode_prepared(wall_us(), effect.locks, prepared.writes);
  if (!room_for(prepared.writes, row.size() + prepared.promised)) {
    host_->post(Refused{effect.ticket});
    return;
  }
  Pending pending;
  pending.promised = row.size();  // until it is part of what is used
  promised_ += prepared.promised + pending.promised;
  std::string key = prepared_key(effect.xid);
  Write write;
  write.mutations.push_back(put_row(kPrepared, key, std::move(row)));
  TWOFOLD_CHECK(prepared_.emplace(key, std::move(prepared)).second);
  pending.prepare = std::move(key);
  submit(effect.ticket, std::move(pending), std::move(write));
}

// A prepared branch's changes are visible from here on: the core may let go of its locks in this
// same step (rule 13). Those of a one-phase commit are not, since it may still be refused; its
// locks stay until it is durable, and then the next snapshot shows them.
void Store::persist(PersistCommit effect) {
  Write write;
  write.urgency = effect.may_wait ? Urgency::soon : Urgency::now;
  write.refusable = effect.one_phase;
  Pending pending;
  WriteSet writes;
  if (effect.one_phase) {
    writes = take_writes(effect.branch);
    pending.promised = promise_for(writes);
    if (!room_for(writes, pending.promised)) {
      host_->post(Refused{effect.ticket});
      return;
    }
    promised_ += pending.promised;
  } else {
    auto node = prepared_.extract(prepared_key(effect.xid));
    TWOFOLD_CHECK(!node.empty());
    writes = std::move(node.mapped().writes);
    pending.promised = node.mapped().promised;
    pending.sequence = ++sequence_;
    overlay_.apply(writes, pending.sequence);
    write.mutations.push_back(erase_row(kPrepared, std::move(node.key())));
  }
  write.mutations.push_back(put_row(kOutcomes, outcome_key(effect.xid), encode_outcome()));
  while (!writes.empty()) {
    auto change = writes.extract(writes.begin());
    if (!effect.one_phase) pending.keys.push_back(change.key());
    write.mutations.push_back(
        change.mapped() ? put_row(kData, std::move(change.key()), std::move(*change.mapped()))
                        : erase_row(kData, std::move(change.key())));
  }
  submit(effect.ticket, std::move(pending), std::move(write));
}

void Store::persist(PersistRollback effect) {
  auto node = prepared_.extract(prepared_key(effect.xid));
  TWOFOLD_CHECK(!node.empty());
  Write write;
  write.urgency = Urgency::lazy;
  write.refusable = false;
  write.mutations.push_back(erase_row(kPrepared, std::move(node.key())));
  Pending pending;
  pending.promised = node.mapped().promised;
  submit(effect.ticket, std::move(pending), std::move(write));
}

void Store::persist(PersistNode effect) {
  Write write;
  write.urgency = effect.forced ? Urgency::now : Urgency::lazy;
  write.refusable = false;
  write.mutations.push_back(put_row(kNodes, effect.record.node, encode_node(effect.record)));
  if (effect.purge) {
    auto [from, to] = outcomes_below(effect.record.log_id, effect.record.low_water);
    write.mutations.push_back(
        {Mutation::Kind::erase_range, kOutcomes, std::move(from), std::move(to)});
  }
  submit(effect.ticket, {}, std::move(write));
}

void Store::flush() {
  if (outbox_.empty()) return;
  group_commit_->submit(std::move(outbox_));
  outbox_ = {};
}

// The group is durable, so whatever snapshot is taken from here on has it: its overlay entries go
// before the core hears of it.
void Store::on_group(const GroupResult& result) {
  used_fraction_ = result.used_fraction;
  if (!result.full) {
    ++groups_;
    group_writes_.record(result.durable.size());
    sync_us_.record(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(result.sync).count()));
  }
  for (std::uint64_t ticket : result.durable) settle(ticket, true);
  for (std::uint64_t ticket : result.refused) settle(ticket, false);
  const bool room = !result.full && used_fraction_ < kRoomFraction;
  if (room != room_) {
    room_ = room;
    host_->post(SpaceChanged{room});
  }
}

void Store::settle(std::uint64_t ticket, bool durable) {
  auto node = pending_.extract(ticket);
  TWOFOLD_CHECK(!node.empty());
  Pending& pending = node.mapped();
  overlay_.settle(pending.keys, pending.sequence);
  promised_ -= pending.promised;
  if (durable) {
    host_->post(Persisted{ticket});
    return;
  }
  if (auto refused = prepared_.find(pending.prepare); refused != prepared_.end()) {
    promised_ -= refused->second.promised;
    prepared_.erase(refused);
  }
  host_->post(Refused{ticket});
}

Evidence Store::evidence(const Xid& xid) {
  Snapshot snapshot(reader_);
  return snapshot->get(environment_->table(kOutcomes), outcome_key(xid)) ? Evidence::committed
                                                                         : Evidence::none;
}

// From the durable snapshot alone: what the overlay has is still among the prepared branches there.
wire::ScanAnswer Store::scan(const wire::Scan& scan, std::uint64_t bytes_max) {
  const std::uint64_t limit =
      scan.bytes_max() == 0 ? bytes_max : std::min<std::uint64_t>(scan.bytes_max(), bytes_max);
  const std::string& prefix = scan.prefix();
  wire::ScanAnswer answer;
  std::uint64_t bytes = 0;
  Snapshot snapshot(reader_);
  answer.set_prepared(snapshot->count(environment_->table(kPrepared)));
  if (prefix.size() > kKeyBytesMax) return answer;  // no key is so long
  auto copy_out = [&](std::string_view key, std::string_view value) {
    if (!key.starts_with(prefix)) return false;
    bytes += key.size() + value.size() + 24;  // with what the encoding adds
    if (bytes > limit) {
      answer.set_truncated(true);
      return false;
    }
    wire::KeyValue& entry = *answer.add_entries();
    entry.set_key(std::string(key));
    Value decoded = decode_value(value);
    if (auto* text = std::get_if<std::string>(&decoded.data)) {
      entry.mutable_value()->set_text(std::move(*text));
    } else {
      entry.mutable_value()->set_integer(std::get<std::int64_t>(decoded.data));
    }
    return true;
  };
  snapshot->scan(environment_->table(kData), prefix, copy_out);
  return answer;
}

void Store::add_stats(wire::StatsAnswer& stats) const {
  Snapshot snapshot(reader_);
  add_number(stats, "keys", snapshot->count(environment_->table(kData)));
  add_number(stats, "outcomes", snapshot->count(environment_->table(kOutcomes)));
  add_number(stats, "forced_writes", groups_);
  add_number(stats, "map_bytes", environment_->map_bytes());
  add_number(stats, "map_used_percent", static_cast<std::uint64_t>(used_fraction_ * 100));
  add_room(stats, room_);
  add_histogram(stats, "sync_us", sync_us_);
  add_histogram(stats, "group_writes", group_writes_);
}

}  // namespace
}  // namespace store

Result<std::unique_ptr<Adapter>> open_store(const StoreOptions& options) {
  Result<store::Data> data = store::open_data(options);
  if (!data) return data.error();
  return std::unique_ptr<Adapter>(
      std::make_unique<store::Store>(options, std::move(data->environment), data->store_id));
}

}  // namespace twofold::resource_manager
