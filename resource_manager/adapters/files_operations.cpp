#include "resource_manager/adapters/files_operations.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "protocol/check.h"
#include "protocol/text.h"
#include "protocol/utf8.h"
#include "resource_manager/adapters/arguments.h"

namespace twofold::resource_manager::files {
namespace {

constexpr std::array<std::string_view, 1> kPath{"path"};
constexpr std::array<std::string_view, 1> kPrefix{"prefix"};
constexpr std::array<std::string_view, 2> kPathContent{"path", "content"};
constexpr std::array<std::string_view, 1> kReplace{"replace"};
constexpr std::array<Signature, 4> kVerbs{{
    // In the order of Verb.
    {"publish", kPathContent, kReplace, "publish takes path and content, and if wanted replace"},
    {"remove", kPath, {}, "remove takes path"},
    {"get", kPath, {}, "get takes path"},
    {"list", kPrefix, {}, "list takes prefix"},
}};

constexpr std::string_view kAll = "/";  // the lock of the whole tree

std::string_view name(Verb verb) {
  return kVerbs[static_cast<std::size_t>(verb)].name;
}

// ---- parsing ------------------------------------------------------------------------------------

std::optional<std::string> wrong_part(std::string_view part) {
  if (part.empty()) return "a path has no empty part: it neither begins nor ends with /";
  if (part == "." || part == "..") return "a path has no part . or ..";
  if (part.size() > kPathPartBytesMax) {
    return "a part of a path has at most " + std::to_string(kPathPartBytesMax) + " bytes";
  }
  if (has_controls(part)) {
    return "a path has no control characters, nor any that reorder the text around them";
  }
  return std::nullopt;
}

// Of a prefix the last part may be empty: it need not be whole.
std::optional<std::string> wrong_path(std::string_view path, bool prefix) {
  if (path.size() > kPathBytesMax) {
    return "a path has at most " + std::to_string(kPathBytesMax) + " bytes";
  }
  if (!is_utf8(path)) return "a path is UTF-8";
  std::size_t parts = 0;
  for (std::size_t at = 0, end = 0; end != std::string_view::npos; at = end + 1) {
    end = path.find('/', at);
    const bool last = end == std::string_view::npos;
    const std::string_view part = path.substr(at, last ? end : end - at);
    if (prefix && last && part.empty()) break;
    if (auto wrong = wrong_part(part)) return wrong;
    ++parts;
  }
  if (parts <= kPathPartsMax) return std::nullopt;
  return "a path has at most " + std::to_string(kPathPartsMax) + " parts";
}

std::optional<Wrong> take_path(std::string_view argument, const Value& value, std::string& path) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr) return Wrong{std::string(argument) + " is a text", shown(value)};
  if (auto wrong = wrong_path(*text, argument == "prefix")) return Wrong{*wrong, shown(value)};
  path = *text;
  return std::nullopt;
}

std::optional<Wrong> take_argument(std::string_view argument, const Value& value,
                                   FileOperation& out) {
  if (argument == "content") {
    if (const auto* text = std::get_if<std::string>(&value.data)) {
      out.content = *text;
    } else if (const auto* bytes = std::get_if<Bytes>(&value.data)) {
      out.content = bytes->value;
    } else {
      return Wrong{"content is a text or bytes", shown(value)};
    }
    return std::nullopt;
  }
  if (argument == "replace") {
    const auto* replace = std::get_if<bool>(&value.data);
    if (replace == nullptr) return Wrong{"replace is true or false", shown(value)};
    out.replace = *replace;
    return std::nullopt;
  }
  return take_path(argument, value, out.path);
}

std::optional<Wrong> parse_one(const Operation& operation, FileOperation& out) {
  const auto signature = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Signature& each) {
    return each.name == operation.name;
  });
  if (signature == kVerbs.end()) {
    return Wrong{"files know publish, remove, get and list", clipped(operation.name)};
  }
  out.verb = static_cast<Verb>(signature - kVerbs.begin());
  if (auto wrong = wrong_names(*signature, operation)) return wrong;
  for (const auto& [argument, value] : operation.arguments) {
    if (auto wrong = take_argument(argument, value, out)) return wrong;
  }
  return std::nullopt;
}

// Calls visit for each folder above it: "a" and "a/b" for "a/b/c".
template <class Visit>
void for_each_folder(const std::string& path, Visit visit) {
  for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    visit(path.substr(0, at));
  }
}

// ---- evaluation ---------------------------------------------------------------------------------

class Evaluation {
 public:
  Evaluation(const Limits& limits, Tree& tree, Changes& changes)
      : limits_(limits), tree_(tree), changes_(changes) {
    for (const auto& [path, content] : changes_) changed_bytes_ += cost(path, content);
  }

  Value apply(const FileOperation& operation, std::uint32_t index) {
    operation_ = &operation;
    index_ = index;
    switch (operation.verb) {
      case Verb::publish: return publish();
      case Verb::remove: return remove();
      case Verb::get: return get();
      case Verb::list: return list();
    }
    TWOFOLD_CHECK(false);
  }
  std::vector<Refusal> take_refusals() { return std::move(refusals_); }
  const std::optional<Error>& fault() const { return fault_; }

 private:
  static std::uint64_t cost(const std::string& path, const std::optional<std::string>& content) {
    return path.size() + (content ? content->size() : 0);
  }
  // The value, or an empty one after a fault, which ends the evaluation.
  template <class T>
  T taken(Result<T> result) {
    if (result) return std::move(*result);
    if (!fault_) fault_ = result.error();
    return T{};
  }

  std::optional<std::uint64_t> size_of(const std::string& path) {
    const auto own = changes_.find(path);
    if (own == changes_.end()) return taken(tree_.size_of(path));
    if (!own->second) return std::nullopt;
    return own->second->size();
  }

  std::vector<std::string> paths(const std::string& prefix) {
    std::vector<std::string> published = taken(tree_.list(prefix));
    std::set<std::string> found(std::make_move_iterator(published.begin()),
                                std::make_move_iterator(published.end()));
    for (auto own = changes_.lower_bound(prefix);
         own != changes_.end() && own->first.starts_with(prefix); ++own) {
      if (own->second) {
        found.insert(own->first);
      } else {
        found.erase(own->first);
      }
    }
    return {found.begin(), found.end()};
  }

  Value publish() {
    const FileOperation& operation = *operation_;
    const std::optional<std::uint64_t> before = size_of(operation.path);
    if (before && !operation.replace) {
      return refuse("present", "a file of " + std::to_string(*before) + " bytes", "");
    }
    std::optional<std::string> file;
    for_each_folder(operation.path, [&](const std::string& folder) {
      if (!file && size_of(folder)) file = "a file: " + folder;
    });
    if (file) return refuse("type", *file, "a folder");
    if (!before && !paths(operation.path + "/").empty()) {
      return refuse("type", "a folder: " + operation.path, "a file");
    }
    return change(operation.content);
  }

  Value remove() {
    if (!size_of(operation_->path)) return refuse("absent", "", "");
    return change(std::nullopt);
  }

  Value change(std::optional<std::string> content) {
    std::optional<std::string>& place = changes_[operation_->path];
    changed_bytes_ -= place ? place->size() : 0;
    changed_bytes_ += cost(operation_->path, content);
    place = std::move(content);
    if (changed_bytes_ > limits_.changes_bytes_max) {
      return refuse("invalid", std::to_string(changed_bytes_),
                    "split the transaction: a branch publishes at most " +
                        std::to_string(limits_.changes_bytes_max) + " bytes");
    }
    return Value{};
  }

  Value get() {
    const std::optional<std::uint64_t> size = size_of(operation_->path);
    if (!size || !has_room(*size)) return Value{};
    const auto own = changes_.find(operation_->path);
    std::string content =
        own != changes_.end() ? own->second.value() : taken(tree_.read(operation_->path));
    if (is_utf8(content)) return Value{std::move(content)};
    return Value{Bytes{std::move(content)}};
  }

  Value list() {
    List found;
    std::uint64_t bytes = 0;
    for (std::string& path : paths(operation_->path)) {
      bytes += path.size() + 4;  // with what the encoding adds
      found.push_back(Value{std::move(path)});
    }
    if (!has_room(bytes)) return Value{};
    return Value{std::move(found)};
  }

  // Otherwise it has refused: no retry can do better.
  bool has_room(std::uint64_t bytes) {
    result_bytes_ += bytes;
    if (result_bytes_ <= limits_.results_bytes_max) return true;
    refuse("invalid", std::to_string(result_bytes_),
           "results of at most " + std::to_string(limits_.results_bytes_max) + " bytes a branch");
    return false;
  }

  Value refuse(std::string_view check, std::string value, std::string limit) {
    if (refusals_.size() == kRefusalsMax) return Value{};
    refusals_.push_back({.rm = {},
                         .operation = index_,
                         .op = std::string(name(operation_->verb)),
                         .check = std::string(check),
                         .key = operation_->path,
                         .value = std::move(value),
                         .limit = std::move(limit)});
    return Value{};
  }

  const Limits& limits_;
  Tree& tree_;
  Changes& changes_;
  const FileOperation* operation_ = nullptr;
  std::uint32_t index_ = 0;
  std::uint64_t changed_bytes_ = 0, result_bytes_ = 0;
  std::vector<Refusal> refusals_;
  std::optional<Error> fault_;
};

}  // namespace

Parsed parse(std::string_view work) {
  Parsed parsed;
  parsed.invalid = for_each_operation(work, "path", [&](const Operation& operation) {
    return parse_one(operation, parsed.operations.emplace_back());
  });
  return parsed;
}

std::vector<LockRequest> locks_of(const std::vector<FileOperation>& operations) {
  std::vector<LockRequest> locks;
  for (const FileOperation& operation : operations) {
    switch (operation.verb) {
      case Verb::publish:
      case Verb::remove:
        locks.push_back({operation.path, LockMode::exclusive});
        locks.push_back({std::string(kAll), LockMode::shared});
        for_each_folder(operation.path, [&](std::string folder) {
          locks.push_back({std::move(folder), LockMode::shared});
        });
        break;
      case Verb::get: locks.push_back({operation.path, LockMode::shared}); break;
      case Verb::list: {
        const std::size_t folder = operation.path.rfind('/');
        locks.push_back(
            {folder == std::string::npos ? std::string(kAll) : operation.path.substr(0, folder),
             LockMode::exclusive});
        break;
      }
    }
  }
  normalise(locks);
  return locks;
}

Result<Evaluated> evaluate(const std::vector<FileOperation>& operations, const Limits& limits,
                           Tree& tree, Changes& changes) {
  Evaluated evaluated;
  evaluated.results.reserve(operations.size());
  Evaluation evaluation(limits, tree, changes);
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    evaluated.results.push_back(evaluation.apply(operations[i], i));
    if (evaluation.fault()) return *evaluation.fault();
  }
  evaluated.refusals = evaluation.take_refusals();
  return evaluated;
}

}  // namespace twofold::resource_manager::files
