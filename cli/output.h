// What commands print: aligned tables for people, JSON for programs, errors for both. Much of it
// was given by somebody else; whatever in it a terminal would obey is escaped here
// (protocol/text.h).
#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/outcome.h"
#include "protocol/result.h"
#include "protocol/wire.pb.h"

namespace twofold::cli {

namespace json = boost::json;

// "twofold: …" on standard error. Returns the exit status 1.
int fail(const Error& error);
// "twofold COMMAND: …", and where to read on. Returns the exit status 2.
int wrong_usage(const std::string& command, const std::string& text);
void note(const std::string& text);  // to standard error, for what is worth knowing but no result

// To standard output. A newline is one.
void print(std::string_view text);
void print_line(std::string_view text);
void print_json(const json::value& value);
std::string json_text(const json::value& value);  // one line, without its end

// Columns as wide as their widest cell; numbers (columns in `right`) to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<bool> right = {});
  void add(std::vector<std::string> row);
  std::size_t rows() const { return rows_.size(); }
  void print() const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string grouped(std::int64_t number);                         // 1,234,567
std::string plural(std::uint64_t count, std::string_view thing);  // "1 key", "1,234 keys"
std::string age(std::uint64_t milliseconds);                      // "12 ms", "3.4 s", "5 min"
std::string wall_time(std::int64_t microseconds);  // "2024-05-06 07:08:09.123456", local time
std::string id_text(std::string_view gtrid);       // "1.303", as `show` takes it; "?": not ours
// "committed, but a branch ended otherwise (heuristic): …", of one that is heuristic.
std::string heuristic_text(const Outcome& outcome);
std::size_t width(std::string_view utf8);  // in characters

json::value to_json(const wire::Value& value);
std::string to_text(const wire::Value& value);
bool is_terminal(int descriptor);

}  // namespace twofold::cli
