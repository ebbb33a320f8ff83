// The files of an environment's directory, apart from what LMDB does with them:
//
//   data.mdb    LMDB's data; its blocks are allocated up to the map's size
//   lock.mdb    LMDB's table of readers
//   map_bytes   the map's size, a decimal number and a newline; written last by creation
//   owner.lock  flock()ed by the process that writes; holds its pid for people (rule 1)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "protocol/result.h"

namespace twofold::lmdb {

enum class Presence : std::uint8_t {
  absent,
  unfinished,  // creation was interrupted before anything could be stored: as good as absent
  complete,
};
Presence presence(const std::filesystem::path& directory);

// Takes the flock and writes this process's pid; the lock lives as long as the descriptor
// (close-on-exec). busy: the message names the process that has it.
Result<int> take_owner_lock(const std::filesystem::path& directory);

// What both meta pages say, read without LMDB, which would trust them. damaged or unsupported
// otherwise.
struct MetaPage {
  std::uint64_t page_bytes = 0;
  std::uint64_t map_bytes = 0;
  std::uint64_t last_page = 0;
  std::uint64_t transaction = 0;
  std::uint64_t free_root = 0;  // kNoPage: an empty tree
  std::uint64_t main_root = 0;
};
inline constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
Result<std::vector<MetaPage>> read_meta_pages(int descriptor, const std::string& file);
// The newest of them, of directory/data.mdb; refuses one whose pages lie outside any map.
Result<MetaPage> check_meta_pages(const std::filesystem::path& directory);

// From map_bytes, or where that is missing (a copy of data.mdb alone) from the meta page.
Result<std::uint64_t> read_map_bytes(const std::filesystem::path& directory, const MetaPage& meta);
Result<void> write_map_bytes(const std::filesystem::path& directory, std::uint64_t map_bytes);

// LMDB writes its reader table through a mapping: without blocks a full disk would be a SIGBUS.
Result<void> allocate_reader_table(const std::filesystem::path& directory);

// Blocks for `bytes` of the file, its size kept (rule 23). full: there is no room for them.
Result<void> allocate(int descriptor, const std::string& file, std::uint64_t bytes);

Result<void> sync_directory(const std::filesystem::path& directory);

// Removes, unless kept, what creation has made: files, and the directories that were not there
// before.
class CreationGuard {
 public:
  explicit CreationGuard(std::filesystem::path directory) : directory_(std::move(directory)) {}
  ~CreationGuard();
  CreationGuard(const CreationGuard&) = delete;
  CreationGuard& operator=(const CreationGuard&) = delete;

  Result<void> make_directories();
  void owns_files() { owns_files_ = true; }  // from here on the files in there are ours to remove
  void keep() { kept_ = true; }
  // The directories whose entries are new, for syncing: the deepest first.
  std::vector<std::filesystem::path> changed_directories() const;

 private:
  std::filesystem::path directory_;
  std::vector<std::filesystem::path> made_;  // outermost first
  bool owns_files_ = false;
  bool kept_ = false;
};

void remove_files(const std::filesystem::path& directory);
std::string words(int code);  // of errno or LMDB

}  // namespace twofold::lmdb
