#include "cli/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "cli/output.h"
#include "protocol/xid.h"

namespace twofold::cli {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::chrono::hours kKept{24};

std::string_view text_of(const json::object& line, std::string_view key) {
  const json::value* value = line.if_contains(key);
  return value && value->is_string() ? std::string_view(value->get_string()) : std::string_view{};
}

// What the lines say; `failed` for what cannot be read as well.
client::Works sum_of(std::istream& lines, const std::string& gtrid) {
  client::Works works;
  std::map<std::string, std::int64_t> open;
  const auto failed = [&](std::string what) {
    if (works.failed.empty()) works.failed = std::move(what);
  };
  std::string text;
  while (std::getline(lines, text)) {
    boost::system::error_code wrong;
    const json::value parsed = json::parse(text, wrong);
    const json::object* line = wrong ? nullptr : parsed.if_object();
    if (!line || lines.eof()) {  // a line without its end was not written whole
      failed("its record of what was asked for is damaged");
      continue;
    }
    const std::string rm(text_of(*line, "rm"));
    if (const auto begun = text_of(*line, "begun"); !begun.empty()) {
      if (begun != gtrid_text(gtrid)) failed("its record is another transaction's");
    } else if (line->contains("ask")) {
      ++open[rm];
    } else {
      --open[rm];
      const std::string code(text_of(*line, "code"));
      if (code == name(Xa::ok)) ++works.answered[rm];
      if (line->contains("failed"))
        failed(rm + ": " + code + " " + std::string(text_of(*line, "failed")));
    }
  }
  for (const auto& [rm, count] : open) {
    if (count != 0) failed(rm + ": a work there was interrupted before its answer");
  }
  return works;
}

void sweep(const fs::path& folder) {
  std::error_code ignored;  // what cannot be removed stays, and does no harm
  const auto now = fs::file_time_type::clock::now();
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto written = entry.last_write_time(ignored);
    if (!ignored && now - written > kKept) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

Ledger::Ledger(const std::string& data, std::string gtrid) : gtrid_(std::move(gtrid)) {
  if (data.empty()) return;
  path_ = fs::path(data) / "interactive" / (id_text(gtrid_) + ".jsonl");
}

Ledger::~Ledger() {
  if (file_ >= 0) ::close(file_);
}

Result<void> Ledger::begin() {
  if (!exists()) return {};
  std::error_code ignored;
  sweep(path_.parent_path());
  fs::remove(path_, ignored);  // an older log's, which had the same id
  return open(LOCK_SH);
}

Result<void> Ledger::open(int operation) {
  if (!exists() || file_ >= 0) return {};
  const auto failed = [&](const char* what) {
    return Error{Fault::io, std::string("cannot ") + what + " " + path_.string() + ": " +
                                std::strerror(errno)};
  };
  std::error_code ignored;  // told by open()
  fs::create_directories(path_.parent_path(), ignored);
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return failed("open");
  if (::flock(file_, operation | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed("lock");
    return Error{Fault::busy,
                 operation == LOCK_SH
                     ? "the transaction is being committed by another command"
                     : "a work of this transaction is under way in another command: wait for its "
                       "answer, or roll the transaction back"};
  }
  if (::lseek(file_, 0, SEEK_END) != 0) return {};
  if (!append(json::serialize(json::object{{"begun", gtrid_text(gtrid_)}}))) return failed("write");
  return {};
}

bool Ledger::append(const std::string& line) {
  const std::string whole = line + "\n";
  const auto size = static_cast<ssize_t>(whole.size());
  errno = ENOSPC;  // should it be written in part
  return ::write(file_, whole.data(), whole.size()) == size;
}

Result<void> Ledger::asks(const std::string& rm) {
  if (!exists()) return {};
  if (auto opened = open(LOCK_SH); !opened) return opened;
  if (append(json::serialize(json::object{{"ask", "work"}, {"rm", rm}}))) return {};
  return Error{Fault::io, "cannot write " + path_.string() + ": " + std::strerror(errno) +
                              "; the work was not sent"};
}

bool Ledger::answered(const std::string& rm, const client::Worked& worked) {
  if (!exists()) return true;
  json::object line{{"rm", rm}, {"code", std::string(name(worked.code))}};
  // What was rolled back is known to the resource manager, which says why when it is asked to
  // prepare.
  if (!worked.ok() && !is_rollback(worked.code)) line["failed"] = worked.text;
  return append(json::serialize(line));
}

Result<client::Works> Ledger::close() {
  if (!exists()) return client::Works{};
  if (auto opened = open(LOCK_EX); !opened) return opened.error();
  std::ifstream lines(path_);
  return sum_of(lines, gtrid_);
}

void Ledger::remove() {
  std::error_code ignored;  // there may be none
  if (exists()) fs::remove(path_, ignored);
}

}  // namespace twofold::cli
