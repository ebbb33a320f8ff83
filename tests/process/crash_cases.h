// The crash matrix of one transaction: which process is killed where, while which story is told.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "client/client.h"

namespace twofold::test {

// What one transaction does, and how its processes are started.
struct Story {
  std::string name;
  std::vector<client::Branch> branches;
  bool commits = true;  // else it is refused, or rolled back by its client
  std::vector<std::string> coordinator_arguments;
  bool interactive = false;  // its client begins it, works in each branch, and asks for its end
};
const std::vector<Story>& stories();
const Story& story(const std::string& name);

// What else happens, so that the point is reached. The other process is started again at once.
struct Provocation {
  enum class Kind { none, kill, terminate, crash } kind = Kind::none;
  std::string process;  // kill: SIGKILL; terminate: SIGTERM; crash: it dies first, at
  std::string point;
};

struct CrashCase {
  std::string process;  // who dies
  std::string point;    // --crash-at
  std::string story;
  bool at_start =
      false;  // the point is reached without any transaction, perhaps before it is ready
  Provocation provocation = {};
};
void PrintTo(const CrashCase& one, std::ostream* out);  // for GoogleTest's lists
const std::vector<CrashCase>& crash_cases();

// Event and effect types that no transaction of these stories can reach, and what drives them
// instead.
struct NotCrossed {
  std::string process, name, why;
};
const std::vector<NotCrossed>& not_crossed();

}  // namespace twofold::test
