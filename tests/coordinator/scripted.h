// What the tables of scripted answers share (tests/scripts/participant/*.txt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "protocol/xa.h"

namespace twofold::test {

// All that C193 knows, and a number that it does not; the words of the tables for them.
const std::vector<Xa>& all_codes();
std::string code_text(Xa code);

struct ScriptedRow {
  std::string text;
  std::string gtrid;
  std::int64_t alarms = 0;
};

// From `from` on, without scans and marks, which come when they come; repetitions as "commit x3".
std::string calls_text(const std::vector<std::string>& calls, std::size_t from);

// What the log of a coordinator that is gone keeps of each transaction, by gtrid: " end XA_HEURRB".
// Fails the test if the log is not in order.
std::map<std::string, std::string> kept_in(const std::filesystem::path& log);

// Compares with tests/scripts/participant/NAME.txt; with TWOFOLD_REWRITE=1 writes it first.
void expect_table(const std::string& name, const std::string& actual);

}  // namespace twofold::test
