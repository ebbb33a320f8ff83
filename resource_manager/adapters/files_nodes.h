// nodes/ of the files kind's data: what is known of each coordinator's node (rules 2 and 18). A
// coordinator that starts gets no session before that is durable, and without a session nothing can
// be removed: so a disk that others have filled must not keep it out.
//
// A file is written in place. It has two slots; a record goes, with the next serial and a checksum,
// to the one that does not hold the newest, so that a write cut short leaves the other. The file of
// a node that was never here is `nodes/.spare`, made ahead, renamed.
#pragma once

#include <filesystem>
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
  // write in place, or a node that was never here while there is no spare.
  bool record(const NodeRecord& record);

 private:
  bool rename_spare(const std::filesystem::path& file, const NodeRecord& record);
  void make_spare();

  const std::filesystem::path folder_;
};

}  // namespace twofold::resource_manager::files
