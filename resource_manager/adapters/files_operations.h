// What the operations on files mean. Pure: what is published comes from a Tree, changes go into a
// set of changes.
//
//   publish{path, content, replace?} -> null   fails "present" unless replace is true, and "type"
//                                              where the path or a part of it is taken otherwise
//   remove{path} -> null                       fails "absent"
//   get{path} -> the content, or null          a text if it is UTF-8, otherwise bytes
//   list{prefix} -> the paths that begin so    sorted by their bytes
//
// Locks are paths, and "/" for all of them. The lock of a path covers whatever begins beneath it:
// publish and remove take their path exclusively and share each folder above it; get shares its
// path; list takes the folder of its prefix exclusively. So a list excludes whoever changes what it
// shows, a file and a folder of one name exclude each other, and two files of a folder do not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/operation.h"
#include "protocol/result.h"
#include "resource_manager/adapter.h"

namespace twofold::resource_manager::files {

inline constexpr std::size_t kPathBytesMax = 400;
inline constexpr std::size_t kPathPartBytesMax = 200;  // below what file systems allow a name
inline constexpr std::size_t kPathPartsMax = 16;

enum class Verb : std::uint8_t { publish, remove, get, list };

struct FileOperation {
  Verb verb = Verb::get;
  std::string path;  // of list: the prefix
  std::string content;
  bool replace = false;
};

struct Parsed {
  std::vector<FileOperation> operations;
  std::vector<Refusal> invalid;
};
Parsed parse(std::string_view work);
std::vector<LockRequest> locks_of(const std::vector<FileOperation>& operations);  // normalised

// What a branch has changed, by path: the new content, or none where it removed the file.
using Changes = std::map<std::string, std::optional<std::string>, std::less<>>;

// What is published. A fault is the operating system's.
class Tree {
 public:
  virtual ~Tree() = default;
  virtual Result<std::optional<std::uint64_t>> size_of(const std::string& path) = 0;  // of a file
  virtual Result<std::string> read(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(const std::string& prefix) = 0;  // files, sorted
};

struct Evaluated {
  Results results;                // one per operation; null where a check failed
  std::vector<Refusal> refusals;  // the first 1,000
};
// In order, each operation seeing what those before it did. One that fails changes nothing, and the
// rest is evaluated all the same. More than `results_bytes_max` of results, and more than
// `changes_bytes_max` of changes, is refused as "invalid".
struct Limits {
  std::uint64_t results_bytes_max = 8u << 20;
  std::uint64_t changes_bytes_max = 64u << 20;
};
Result<Evaluated> evaluate(const std::vector<FileOperation>& operations, const Limits& limits,
                           Tree& tree, Changes& changes);

}  // namespace twofold::resource_manager::files
