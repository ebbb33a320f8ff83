// The file system calls of the files kind. Functions that return bool: false is a lack of room
// (ENOSPC, EDQUOT, EFBIG), and nothing else; every other fault of a write ends the process (rule
// 23). Reading faults are told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/result.h"

namespace twofold::resource_manager::files {

// Says so on stderr and ends the process with status 74 (EX_IOERR).
[[noreturn]] void fatal(const char* doing, const std::filesystem::path& path, int code,
                        const std::string& detail = {});
// The result of a system call.
bool room(int result, const char* doing, const std::filesystem::path& path);

bool is_there(const std::filesystem::path& path);
bool has_room(const std::filesystem::path& on, std::uint64_t bytes);

bool make_folder(const std::filesystem::path& folder);  // that is there already is fine
bool sync_folder(const std::filesystem::path& folder);
void must_sync_folder(const std::filesystem::path& folder);
void must_sync_file(const std::filesystem::path& file);
bool write_file(const std::filesystem::path& file, std::string_view content);  // new, and synced
// Atomic: through FILE.new. Its folder is synced too.
bool replace_file(const std::filesystem::path& file, std::string_view content);
// In place, and synced: a file's own blocks, so that most file systems need no room for it.
bool overwrite_file(const std::filesystem::path& file, std::uint64_t offset,
                    std::string_view content);
void remove_file(const std::filesystem::path& file);  // that is not there is fine
// With what is in it (files only), `first` before all others. Not synced.
void remove_folder(const std::filesystem::path& folder, const char* first);
std::vector<std::filesystem::path> children(const std::filesystem::path& folder);  // sorted

// Moves `from` to `to` below `root` and makes the folders that are missing. If `from` has gone and
// `to` is there, it was done before. Adds to `changed` the folders to be synced.
bool publish(const std::filesystem::path& root, const std::filesystem::path& from,
             const std::filesystem::path& to, std::set<std::filesystem::path>& changed);
// With the folders that are empty then.
void remove_published(const std::filesystem::path& root, const std::filesystem::path& file,
                      std::set<std::filesystem::path>& changed);

Result<std::optional<std::uint64_t>> size_of_file(
    const std::filesystem::path& file);  // none: no regular file
Result<std::string> read_file(const std::filesystem::path& file);
// Appends the files below `folder`, named `name` + what follows, that begin with `prefix`. A folder
// that is not there has none.
std::optional<Error> walk(const std::filesystem::path& folder, const std::string& name,
                          const std::string& prefix, std::vector<std::string>& found);

std::vector<std::string> split_lines(std::string_view text);  // without the last, if it is empty
std::optional<std::uint64_t> parse_number(std::string_view text);
std::int64_t wall_us();  // microseconds since 1970

}  // namespace twofold::resource_manager::files
