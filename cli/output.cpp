#include "cli/output.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "protocol/text.h"
#include "protocol/xid.h"

namespace twofold::cli {

int fail(const Error& error) {
  note("twofold: " + error.message);
  return 1;
}

int wrong_usage(const std::string& command, const std::string& text) {
  const std::string name = command.empty() ? "twofold" : "twofold " + command;
  note(name + ": " + text + "\nSee: " + name + " --help");
  return 2;
}

void note(const std::string& text) {
  std::fprintf(stderr, "%s\n", printable(text, true).c_str());
}

void print(std::string_view text) {
  const std::string escaped = printable(text, true);
  std::fwrite(escaped.data(), 1, escaped.size(), stdout);
  std::fflush(stdout);
}

void print_line(std::string_view text) {
  print(std::string(text) + "\n");
}

// Such characters stand within texts, where JSON takes "\u202e" for the same; but not "\x7f".
std::string json_text(const json::value& value) {
  std::string text = json::serialize(value);
  for (std::size_t at = 0; (at = text.find('\x7f', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u007f");
  }
  return printable(text);
}

void print_json(const json::value& value) {
  print_line(json_text(value));
}

std::size_t width(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Table::Table(std::vector<std::string> header, std::vector<bool> right)
    : header_(std::move(header)), right_(std::move(right)) {
  right_.resize(header_.size(), false);
}

// A cell is one line.
void Table::add(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < header_.size(); ++i) {
    widths.push_back(width(header_[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  const auto put = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      if (i > 0) line += "  ";
      line += right_[i] ? space + row[i] : row[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  put(header_);
  std::vector<std::string> rule;
  for (const auto columns : widths) rule.emplace_back(columns, '-');
  put(rule);
  for (const auto& row : rows_) put(row);
  cli::print(text);
}

std::string grouped(std::int64_t number) {
  auto text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string plural(std::uint64_t count, std::string_view thing) {
  auto text = grouped(static_cast<std::int64_t>(count)) + " " + std::string(thing);
  if (count == 1) return text;
  const bool branch = thing.ends_with("ch");
  return text + (branch ? "es" : "s");
}

std::string age(std::uint64_t milliseconds) {
  if (milliseconds < 1'000) return fmt::format("{} ms", milliseconds);
  if (milliseconds < 120'000)
    return fmt::format("{:.1f} s", static_cast<double>(milliseconds) / 1e3);
  return fmt::format("{} min", milliseconds / 60'000);
}

std::string id_text(std::string_view gtrid) {
  const auto parsed = Gtrid::decode(gtrid);
  return parsed ? to_text(parsed->txn_id()) : "?";
}

std::string heuristic_text(const Outcome& outcome) {
  return std::string(name(outcome.verdict)) +
         ", but a branch ended otherwise (heuristic): see twofold show " + id_text(outcome.gtrid) +
         ", and compare the participants' data";
}

std::string wall_time(std::int64_t microseconds) {
  const std::time_t seconds = microseconds / 1'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:06}", text, microseconds % 1'000'000);
}

json::value to_json(const wire::Value& value) {
  switch (value.kind_case()) {
    case wire::Value::kBoolean: return value.boolean();
    case wire::Value::kInteger: return value.integer();
    case wire::Value::kReal: return value.real();
    case wire::Value::kText: return json::value(json::string(value.text()));
    case wire::Value::kRaw: return json::object{{"base64", base64_encode(value.raw())}};
    case wire::Value::kList: {
      json::array list;
      for (const auto& element : value.list().values()) list.push_back(to_json(element));
      return list;
    }
    case wire::Value::kNull:
    case wire::Value::KIND_NOT_SET: break;
  }
  return nullptr;
}

std::string to_text(const wire::Value& value) {
  return json::serialize(to_json(value));
}

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

}  // namespace twofold::cli
