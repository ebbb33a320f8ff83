// The files kind's data on disk. Every function blocks, and what it promises is synced when it
// returns. A lack of room is told; any other fault of the file system ends the process (rule 23).
//
//   format             "twofold files 2", the store id; written last when the data is made
//   owner.lock         flock()ed by the process that has the data (rule 1)
//   files/             what is published
//   staging/XID/       a branch: its new contents as 0, 1, …; `outcome`, an empty file; `manifest`,
//                      which is there once all the rest is
//   outcomes/XID       this branch has committed (rule 16)
//   nodes/NODE         a coordinator's node (files_nodes.h)
//   reserve            blocks for when others have filled the disk: given up for a branch that only
//                      removes, or for a commit, and taken again when there is room
//
// A branch commits in one instant: when `outcome` is moved from its staging folder to outcomes/.
// What follows (moving files into place) is a function of the manifest, is repeated by open() after
// a crash, and ends with the staging folder's end, synced. So at most one branch is half done at
// any time, and a manifest without an outcome is a branch in doubt.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/result.h"
#include "protocol/wire.pb.h"
#include "resource_manager/adapters/blocking.h"
#include "resource_manager/adapters/files_nodes.h"
#include "resource_manager/adapters/files_operations.h"
#include "resource_manager/core/events.h"

namespace twofold::resource_manager::files {

// What a branch will do when it commits, and what it holds until then. Text, one line each.
struct Manifest {
  std::int64_t wall_us = 0;  // of the vote, microseconds since 1970
  bool one_phase = false;    // it never votes: without its outcome it never was
  std::vector<LockRequest> locks;
  std::vector<std::string> publish;  // paths; the n-th content is in the file n
  std::vector<std::string> remove;
};
std::string encode(const Manifest& manifest);
Result<Manifest> decode(std::string_view text);  // damaged, or of another version

class Disk final : public Tree {
 public:
  // Makes the data if the directory is missing or empty. exists: it holds something else; busy:
  // another process has it; unsupported: another version; damaged; full and io: it cannot be made.
  static Result<std::unique_ptr<Disk>> open(const std::filesystem::path& directory);
  ~Disk() override;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  std::uint64_t store_id() const { return store_id_; }
  std::uint64_t prepared() const { return prepared_; }  // branches in doubt; any thread
  // Once, before anything else: finishes what was half committed, removes what was half prepared.
  // Throws std::runtime_error for data that it cannot read (starting up).
  Recovered recover(Time now);

  // ---- one at a time ----
  // Everything that the commit needs is on disk; `reserve_bytes` stay free for commits. no_room:
  // nothing is left of it.
  Written stage(const Xid& xid, const Manifest& manifest, const Changes& changes,
                std::uint64_t reserve_bytes);
  bool staged(const Xid& xid) const;
  Written commit(const Xid& xid);  // no_room: to be called again
  void remove(const Xid& xid);     // of a staged branch
  Written record(const NodeRecord& record);
  void purge(const NodeRecord& record);  // outcomes of its log below its low-water mark
  wire::ScanAnswer scan(const std::string& prefix, std::uint64_t bytes_max);  // paths and sizes

  // ---- any time ----
  bool has_outcome(const Xid& xid) const;
  Result<std::optional<std::uint64_t>> size_of(const std::string& path) override;
  Result<std::string> read(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& prefix) override;

 private:
  Disk(std::filesystem::path directory, int lock, std::uint64_t store_id);
  std::filesystem::path folder_of(const Xid& xid) const;
  Manifest manifest_of(const Xid& xid) const;
  bool write_branch(const std::filesystem::path& folder, const Manifest& manifest,
                    const Changes& changes);
  bool write_folder(const std::filesystem::path& folder, const Manifest& manifest,
                    const Changes& changes);
  Written try_commit(const Xid& xid);
  void fill_reserve();
  bool give_reserve();
  bool apply(const std::filesystem::path& folder, const Manifest& manifest);
  void take_branch(const std::filesystem::path& folder, Time now, Recovered& recovered);

  const std::filesystem::path directory_, files_, staging_, outcomes_, reserve_;
  Nodes node_files_;
  const int lock_;
  const std::uint64_t store_id_;
  std::atomic<std::uint64_t> prepared_{0};
};

}  // namespace twofold::resource_manager::files
