// cluster.json and the lock beside it. See cluster.h.
#pragma once

#include <filesystem>

#include "lab/cluster/cluster.h"

namespace twofold::lab {

// Replaces DIR/cluster.json atomically. Only under a ClusterLock.
Result<void> write_cluster_state(const std::filesystem::path& directory, const ClusterState& state);

// Exclusive among processes; waits for its turn. Released when destroyed or when the process ends.
class ClusterLock {
 public:
  static Result<ClusterLock> take(const std::filesystem::path& directory);
  ClusterLock(ClusterLock&& other) noexcept;
  ClusterLock& operator=(ClusterLock&&) = delete;
  ~ClusterLock();

 private:
  explicit ClusterLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace twofold::lab
