#include "resource_manager/adapters/files.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "protocol/check.h"
#include "resource_manager/adapters/files_disk.h"
#include "resource_manager/adapters/files_io.h"
#include "resource_manager/adapters/files_operations.h"
#include "resource_manager/stats_view.h"

namespace twofold::resource_manager {
namespace files {
namespace {

class Files final : public BlockingDriver {
 public:
  Files(const FilesOptions& options, std::unique_ptr<Disk> disk)
      : limits_{options.results_bytes_max, options.changes_bytes_max},
        reserve_bytes_(options.reserve_bytes),
        disk_(std::move(disk)) {}

  std::uint64_t store_id() const override { return disk_->store_id(); }
  Recovered recover(Time now) override { return disk_->recover(now); }
  Plan plan(std::string_view work) const override;

  Ran run(const Run& effect) override;
  void discard(const Discard& effect) override { take_changes(effect.branch); }
  Written prepare(const PersistPrepare& effect) override;
  Written commit(const PersistCommit& effect) override;
  Written roll_back(const PersistRollback& effect) override;
  Written record(const PersistNode& effect) override;

  Evidence evidence(const Xid& xid) override {
    return disk_->has_outcome(xid) ? Evidence::committed : Evidence::none;
  }
  Result<wire::ScanAnswer> scan(const wire::Scan& scan, std::uint64_t bytes_max) override;
  void add_stats(wire::StatsAnswer& stats) const override;

 private:
  Changes take_changes(BranchId branch);
  void keep_changes(BranchId branch, Changes changes);
  bool stage(BranchId branch, const Xid& xid, Manifest manifest);

  const Limits limits_;
  const std::uint64_t reserve_bytes_;
  const std::unique_ptr<Disk> disk_;
  std::atomic<std::uint64_t> refused_{0};

  std::mutex mutex_;
  std::unordered_map<BranchId, Changes> changes_;  // of unprepared branches; guarded by mutex_
};

Plan Files::plan(std::string_view work) const {
  Parsed parsed = parse(work);
  Plan plan;
  plan.invalid = std::move(parsed.invalid);
  if (plan.invalid.empty()) plan.locks = locks_of(parsed.operations);
  return plan;
}

Changes Files::take_changes(BranchId branch) {
  std::lock_guard lock(mutex_);
  auto node = changes_.extract(branch);
  return node.empty() ? Changes{} : std::move(node.mapped());
}

void Files::keep_changes(BranchId branch, Changes changes) {
  std::lock_guard lock(mutex_);
  changes_[branch] = std::move(changes);
}

// Its locks are held and every write before it is on disk, so nobody changes what it reads.
Ran Files::run(const Run& effect) {
  const Parsed parsed = parse(effect.work);
  TWOFOLD_CHECK(parsed.invalid.empty());  // plan() said so, and the branch is not run
  Changes changes = take_changes(effect.branch);
  Result<Evaluated> evaluated = evaluate(parsed.operations, limits_, *disk_, changes);
  Ran ran;
  ran.branch = effect.branch;
  if (!evaluated) {
    ran.code = Xa::rbother;
    ran.text = evaluated.error().message;
  } else {
    ran.refusals = std::move(evaluated->refusals);
    ran.code = ran.refusals.empty() ? Xa::ok : Xa::rbintegrity;
    if (ran.refusals.empty()) ran.results = encode_results(evaluated->results);
  }
  ran.wrote = !changes.empty();
  ran.frees = ran.wrote;
  for (const auto& [path, content] : changes) ran.frees = ran.frees && !content;
  keep_changes(effect.branch, std::move(changes));
  return ran;
}

// The manifest lists the locks too: they are back before anybody is served (rule 11).
bool Files::stage(BranchId branch, const Xid& xid, Manifest manifest) {
  const Changes changes = take_changes(branch);
  for (const auto& [path, content] : changes) {
    (content ? manifest.publish : manifest.remove).push_back(path);
  }
  manifest.wall_us = wall_us();
  if (disk_->stage(xid, manifest, changes, reserve_bytes_) == Written::durable) return true;
  ++refused_;
  return false;
}

Written Files::prepare(const PersistPrepare& effect) {
  Manifest manifest;
  manifest.locks = effect.locks;
  return stage(effect.branch, effect.xid, std::move(manifest)) ? Written::durable
                                                               : Written::refused;
}

// In one phase it may be refused until its outcome is there; called again for want of room, it goes
// on where it was.
Written Files::commit(const PersistCommit& effect) {
  if (effect.one_phase && !disk_->staged(effect.xid)) {
    Manifest manifest;
    manifest.one_phase = true;
    if (!stage(effect.branch, effect.xid, std::move(manifest))) return Written::refused;
  }
  const Written written = disk_->commit(effect.xid);
  if (written == Written::durable || !effect.one_phase || disk_->has_outcome(effect.xid)) {
    return written;
  }
  disk_->remove(effect.xid);
  ++refused_;
  return Written::refused;
}

Written Files::roll_back(const PersistRollback& effect) {
  disk_->remove(effect.xid);
  return Written::durable;
}

// The mark is on disk before the outcomes that it permits to purge go (rule 18).
Written Files::record(const PersistNode& effect) {
  const Written written = disk_->record(effect.record);
  if (written == Written::durable && effect.purge) disk_->purge(effect.record);
  return written;
}

Result<wire::ScanAnswer> Files::scan(const wire::Scan& scan, std::uint64_t bytes_max) {
  const std::uint64_t asked = scan.bytes_max();
  return disk_->scan(scan.prefix(), asked == 0 ? bytes_max : std::min(asked, bytes_max));
}

void Files::add_stats(wire::StatsAnswer& stats) const {
  add_number(stats, "refused_for_room", refused_);
}

}  // namespace
}  // namespace files

Result<std::unique_ptr<Adapter>> open_files(const FilesOptions& options) {
  Result<std::unique_ptr<files::Disk>> disk = files::Disk::open(options.directory);
  if (!disk) return disk.error();
  return run_on_pool(std::make_unique<files::Files>(options, std::move(*disk)), options.pool);
}

}  // namespace twofold::resource_manager
