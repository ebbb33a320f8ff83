// Files, published atomically with a transaction: a file appears if and only if the transaction
// commits. docs/files.md describes the operations and the data; docs/adding_a_resource_manager.md
// walks through this adapter as an example of writing one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "protocol/result.h"
#include "resource_manager/adapter.h"
#include "resource_manager/adapters/blocking.h"

namespace twofold::resource_manager {

struct FilesOptions {
  std::filesystem::path directory;
  std::uint64_t results_bytes_max = 8u << 20;   // of one branch: more is refused as "invalid"
  std::uint64_t changes_bytes_max = 64u << 20;  // likewise
  std::uint64_t reserve_bytes = 1u << 20;       // a prepare leaves so much free, for commits
  BlockingOptions pool;
};

// Opens the data, or makes it if the directory is missing or empty. busy: another process has it;
// unsupported: a format version that this build does not know; damaged; exists: the directory holds
// something else; full, io: it cannot be made.
Result<std::unique_ptr<Adapter>> open_files(const FilesOptions& options);

}  // namespace twofold::resource_manager
