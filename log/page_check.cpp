#include "log/page_check.h"

#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include "log/environment_files.h"
#include "log/lmdb_layout.h"

namespace twofold::lmdb {
namespace {

enum PageFlag : std::uint16_t { kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04 };
enum NodeFlag : std::uint16_t { kBigData = 0x01, kSubData = 0x02, kDupData = 0x04 };
constexpr std::size_t kNodeHeaderBytes = 8;
constexpr std::size_t kTreeBytes = 48;  // a table's descriptor in the main tree
constexpr std::size_t kRootInTree = 40;
constexpr int kDepthMax = 32;  // LMDB's cursors have as many levels

struct Page {
  std::vector<char> bytes;
  std::uint64_t number() const { return load<std::uint64_t>(bytes.data()); }
  std::uint16_t flags() const { return load<std::uint16_t>(bytes.data() + 10); }
  std::size_t lower() const { return load<std::uint16_t>(bytes.data() + 12); }
  std::size_t upper() const { return load<std::uint16_t>(bytes.data() + 14); }
  std::uint32_t overflow_pages() const { return load<std::uint32_t>(bytes.data() + 12); }
  std::size_t keys() const { return (lower() - kPageHeaderBytes) / 2; }
  std::size_t offset(std::size_t index) const {
    return load<std::uint16_t>(bytes.data() + kPageHeaderBytes + 2 * index);
  }
};

struct Node {
  const char* at = nullptr;
  std::uint16_t flags() const { return load<std::uint16_t>(at + 4); }
  std::size_t key_bytes() const { return load<std::uint16_t>(at + 6); }
  std::size_t data_bytes() const {
    return load<std::uint16_t>(at) | std::size_t{load<std::uint16_t>(at + 2)} << 16;
  }
  std::uint64_t child() const { return data_bytes() | std::uint64_t{flags()} << 32; }
  const char* data() const { return at + kNodeHeaderBytes + key_bytes(); }
};

enum class Tree { free_list, main, table };

class Walk {
 public:
  Walk(int descriptor, const std::string& file, const MetaPage& meta)
      : descriptor_(descriptor), file_(file), meta_(meta), seen_(meta.last_page + 1) {}

  Result<void> all() {
    if (auto done = tree(meta_.main_root, Tree::main); !done) return done;
    if (auto done = tree(meta_.free_root, Tree::free_list); !done) return done;
    for (std::uint64_t page : free_) {
      if (page < 2 || page > meta_.last_page || seen_[page]) {
        return damaged(page, "it is free and in use at once");
      }
    }
    return {};
  }

 private:
  Error damaged(std::uint64_t page, const std::string& why) const {
    return {Fault::damaged, file_ + " is damaged: page " + std::to_string(page) + ": " + why +
                                "; restore the directory from a copy, do not delete it: it may be "
                                "the only record of transactions that are not finished"};
  }

  Result<void> read(std::uint64_t number, std::size_t bytes, std::vector<char>& into) const {
    into.resize(bytes);
    std::size_t done = 0;
    while (done < bytes) {
      const auto at = static_cast<off_t>(number * meta_.page_bytes + done);
      const auto got = ::pread(descriptor_, into.data() + done, bytes - done, at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return damaged(number, "it cannot be read: " + words(errno));
      if (got == 0) return damaged(number, "it lies behind the end of the file, which was cut off");
      done += static_cast<std::size_t>(got);
    }
    return {};
  }

  // Marks `count` pages as reached.
  Result<void> reach(std::uint64_t number, std::uint64_t count) {
    if (number < 2 || count == 0 || number > meta_.last_page ||
        count > meta_.last_page - number + 1) {
      return damaged(number, "it is referred to, but the file has pages 2 to " +
                                 std::to_string(meta_.last_page) + " only");
    }
    for (std::uint64_t page = number; page < number + count; ++page) {
      if (seen_[page]) return damaged(page, "it is referred to twice");
      seen_[page] = true;
    }
    return {};
  }

  Result<void> tree(std::uint64_t root, Tree kind) {
    int leaves_at = -1;
    return root == kNoPage ? Result<void>() : page(root, kind, 0, leaves_at);
  }

  // `leaves_at`: the depth of this tree's first leaf, which all others must share; -1: not known
  // yet.
  Result<void> page(std::uint64_t number, Tree kind, int depth, int& leaves_at) {
    if (auto reached = reach(number, 1); !reached) return reached;
    if (depth >= kDepthMax) return damaged(number, "the tree is too deep");
    Page page;
    if (auto got = read(number, meta_.page_bytes, page.bytes); !got) return got;
    if (page.number() != number) {
      return damaged(number, "it says that it is page " + std::to_string(page.number()));
    }
    const auto flags = page.flags();
    if (flags != kBranch && flags != kLeaf) return damaged(number, "it is no tree page");
    if (page.lower() < kPageHeaderBytes || page.lower() > page.upper() ||
        page.upper() > meta_.page_bytes || page.keys() == 0) {
      return damaged(number, "its bounds are wrong");
    }
    if (flags == kLeaf) {
      if (leaves_at >= 0 && leaves_at != depth) return damaged(number, "the tree is lopsided");
      leaves_at = depth;
    }
    for (std::size_t index = 0; index < page.keys(); ++index) {
      auto node = this->node(page, index);
      if (!node) return node.error();
      auto done = flags == kBranch ? this->page(node->child(), kind, depth + 1, leaves_at)
                                   : leaf_node(number, *node, kind);
      if (!done) return done;
    }
    return {};
  }

  Result<Node> node(const Page& page, std::size_t index) const {
    const auto offset = page.offset(index);
    const bool inside =
        offset >= page.upper() && offset % 2 == 0 && offset + kNodeHeaderBytes <= meta_.page_bytes;
    if (!inside) return damaged(page.number(), "a node lies outside of it");
    Node node{page.bytes.data() + offset};
    auto end = offset + kNodeHeaderBytes + node.key_bytes();
    if (page.flags() == kLeaf) {
      end += node.flags() & kBigData ? sizeof(std::uint64_t) : node.data_bytes();
    }
    if (end > meta_.page_bytes) return damaged(page.number(), "a node reaches out of it");
    return node;
  }

  Result<void> leaf_node(std::uint64_t number, Node node, Tree kind) {
    if (node.flags() & ~(kBigData | kSubData)) {
      return damaged(number, "it has a kind of node that Twofold does not use");
    }
    if (node.flags() & kSubData) {
      if (kind != Tree::main || node.flags() != kSubData || node.data_bytes() != kTreeBytes) {
        return damaged(number, "it names a table where there is none");
      }
      return tree(load<std::uint64_t>(node.data() + kRootInTree), Tree::table);
    }
    if (node.flags() & kBigData) return overflow(load<std::uint64_t>(node.data()), node, kind);
    if (kind == Tree::free_list) return free_pages(number, {node.data(), node.data_bytes()});
    return {};
  }

  // A value that shrank may keep more pages than it needs.
  Result<void> overflow(std::uint64_t number, Node node, Tree kind) {
    if (auto reached = reach(number, 1); !reached) return reached;
    const auto bytes = kPageHeaderBytes + node.data_bytes();
    Page page;
    if (auto got = read(number, bytes, page.bytes); !got) return got;
    const auto needed = (bytes + meta_.page_bytes - 1) / meta_.page_bytes;
    const auto count = page.overflow_pages();
    if (page.number() != number || page.flags() != kOverflow || count < needed) {
      return damaged(number, "it is not the overflow page that it should be");
    }
    if (count > 1) {
      if (auto reached = reach(number + 1, count - 1); !reached) return reached;
    }
    if (kind != Tree::free_list) return {};
    return free_pages(number, std::string_view(page.bytes.data(), bytes).substr(kPageHeaderBytes));
  }

  // A count, then as many page numbers, descending.
  Result<void> free_pages(std::uint64_t number, std::string_view list) {
    const auto count = list.size() < 8 ? 0 : load<std::uint64_t>(list.data());
    if (list.size() < 8 || count > (list.size() - 8) / 8) {
      return damaged(number, "its list of free pages is cut off");
    }
    for (std::uint64_t index = 1; index <= count; ++index) {
      free_.push_back(load<std::uint64_t>(list.data() + 8 * index));
    }
    return {};
  }

  int descriptor_;
  const std::string& file_;
  const MetaPage& meta_;
  std::vector<bool> seen_;
  std::vector<std::uint64_t> free_;
};

}  // namespace

Result<void> check_pages(MDB_txn* reader, const std::string& file) {
  int descriptor = -1;
  mdb_env_get_fd(mdb_txn_env(reader), &descriptor);
  // A writer may have replaced the snapshot's meta page since: take a newer snapshot then.
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto pages = read_meta_pages(descriptor, file);
    if (!pages) return pages.error();
    for (const auto& meta : *pages) {
      if (meta.transaction == mdb_txn_id(reader)) return Walk(descriptor, file, meta).all();
    }
    mdb_txn_reset(reader);
    if (int code = mdb_txn_renew(reader)) {
      return Error{Fault::io, "cannot read " + file + ": " + words(code)};
    }
  }
  return Error{Fault::busy, file + " changes too fast to be checked: try again"};
}

}  // namespace twofold::lmdb
