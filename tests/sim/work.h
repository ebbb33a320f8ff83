// The simulated store's operations, as a branch carries them: "r3" reads key 3, "w3" writes it, "c"
// is a check that may fail.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "resource_manager/core/lock_table.h"

namespace twofold::sim {

struct Operation {
  char kind = 'r';
  std::string key;
};

inline std::vector<Operation> operations(std::string_view work) {
  std::vector<Operation> all;
  for (std::size_t at = 0; at < work.size();) {
    const std::size_t end = std::min(work.find(' ', at), work.size());
    all.push_back({work[at], std::string(work.substr(at + 1, end - at - 1))});
    at = end + 1;
  }
  return all;
}

inline std::vector<resource_manager::LockRequest> locks_of(std::string_view work) {
  using resource_manager::LockMode;
  std::vector<resource_manager::LockRequest> locks;
  for (Operation& one : operations(work)) {
    if (one.kind == 'c') continue;
    locks.push_back({std::move(one.key), one.kind == 'w' ? LockMode::exclusive : LockMode::shared});
  }
  resource_manager::normalise(locks);
  return locks;
}

}  // namespace twofold::sim
