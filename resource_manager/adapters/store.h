// The store: keys to int64 or text in LMDB, behind the branch core. docs/store.md describes its
// operations and its rows.
//
// A read sees, in this order: what its own branch wrote; the *overlay*, which is what commits have
// applied and not yet synced (rule 13); the newest durable snapshot. A prepared branch's write set
// is in neither.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "protocol/result.h"
#include "resource_manager/adapter.h"

namespace twofold::resource_manager {

struct StoreOptions {
  std::filesystem::path directory;
  std::uint64_t map_bytes = 256u << 20;        // used when the data is made
  std::uint64_t results_bytes_max = 8u << 20;  // of one branch: more is refused as "invalid"
  std::chrono::milliseconds lazy_flush{20};
};

// Opens the store, or makes it if the directory is missing or empty: a resource manager's data,
// unlike a decision log, may be made by whoever starts it. busy: another process has it;
// unsupported: a format version that this build does not know; damaged; exists: the directory holds
// something else.
Result<std::unique_ptr<Adapter>> open_store(const StoreOptions& options);

}  // namespace twofold::resource_manager
