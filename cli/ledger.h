// What was done in an interactive transaction that is worked on by hand, a command each: the file
// DIR/interactive/ID.jsonl. Each command is a process of its own; what one asked for, another
// commits, and nothing may be left out (rule 10). So a work is in the file before it is sent, and
// its answer comes behind it; one without an answer can only be rolled back.
//
// Lines are appended whole, by as many processes at once as there are works. A process that works
// shares the file's lock; who commits has it alone: no work is under way then, and what has no
// answer never will have one.
#pragma once

#include <filesystem>
#include <string>

#include "client/interactive.h"
#include "protocol/result.h"

namespace twofold::cli {

class Ledger {
 public:
  // An empty `data`: there is no file, nothing is written and nothing is known.
  Ledger(const std::string& data, std::string gtrid);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  bool exists() const { return !path_.empty(); }
  Result<void> begin();  // a new file; those that nobody has touched for a day go

  // Error: it is being committed, or cannot be written; the work must not be sent then.
  Result<void> asks(const std::string& rm);
  // Should it not be written, commit rolls back: false.
  bool answered(const std::string& rm, const client::Worked& worked);

  // Error: a work is under way. The lock is kept until the end of this object.
  Result<client::Works> close();
  void remove();

 private:
  Result<void> open(int operation);
  bool append(const std::string& line);

  std::string gtrid_;
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace twofold::cli
