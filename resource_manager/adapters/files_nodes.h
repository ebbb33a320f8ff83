// nodes/ of the files kind's data: what is known of each coordinator's node (rules 2 and 18). A
// coordinator that starts gets no session before that is durable, and without a session nothing can
// be removed: so a disk that others have filled must not keep it out.
//
// A file is written in place. It has two slots; a record goes, with the next serial and a checksum,
// to the one that does not hold the newest durable one, so that a write cut short leaves the other.
// The file of a node that was never here is `nodes/.spare`, made ahead, renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "resource_manager/core/events.h"

namespace twofold::resource_manager::files {

class Nodes {
 public:
  explicit Nodes(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Once, before anything else. Throws std::runtime_error for a file that it cannot read (starting
  // up).
  std::vector<NodeRecord> recover();
  // Durable when it returns. False: there was no room, which needs a file system that does not
  // write in place, or a node that was never here while there is no spare. The record before is
  // durable still, however often it is tried again.
  bool record(const NodeRecord& record);

 private:
  struct Durable {  // its newest record that is, and the file's form
    std::uint64_t serial = 0;
    std::size_t slot_bytes = 0;
  };

  bool name_new_file(const std::filesystem::path& file, const std::string& text,
                     std::uint64_t serial, Durable& node);
  bool sync_names();
  void make_spare();

  const std::filesystem::path folder_;
  std::map<std::string, Durable> durable_;  // by node
  bool names_unsynced_ = false;             // those in the folder
};

}  // namespace twofold::resource_manager::files
