// submit: a transaction a line.
#include <spdlog/fmt/fmt.h>

#include <map>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "lab/workflows/transaction_line.h"

namespace twofold::cli {
namespace {

struct Tally {
  std::map<std::string, std::uint64_t> outcomes{
      {"committed", 0}, {"aborted", 0}, {"invalid", 0}, {"unknown", 0}};
  std::map<std::string, std::uint64_t> classes;  // of all that did not commit
};

// Why not, in one word; empty for a commit.
std::string_view class_of(const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::committed: return {};
    case Verdict::aborted:
    case Verdict::rejected: return name(outcome.reason);
    default: return name(outcome.verdict);
  }
}

void print_summary(const Tally& tally, const lab::Run& run, const SessionResult& result,
                   bool as_json) {
  if (as_json) {
    json::object whole;
    for (const auto& [word, count] : tally.outcomes) whole[word] = count;
    json::object classes;
    for (const auto& [word, count] : tally.classes) classes[word] = count;
    whole["classes"] = std::move(classes);
    if (result.counts.heuristic > 0) whole["heuristic"] = result.counts.heuristic;
    whole["run"] = run.id;
    whole["seconds"] = result.seconds;
    return print_json(whole);
  }
  const auto total = result.counts.told;
  print_line(plural(total, "transaction") +
             fmt::format(" in {:.1f} s ({:.0f}/s)", result.seconds,
                         static_cast<double>(total) / result.seconds));
  Table table({"outcome", "count"}, {false, true});
  for (const char* word : {"committed", "aborted", "invalid", "unknown"}) {
    table.add({word, grouped(static_cast<std::int64_t>(tally.outcomes.at(word)))});
  }
  if (const auto heuristic = result.counts.heuristic; heuristic > 0) {
    table.add({"of these heuristic", grouped(static_cast<std::int64_t>(heuristic))});
  }
  table.print();
  for (const auto& [word, count] : tally.classes) {
    print_line("  " + word + ": " + grouped(static_cast<std::int64_t>(count)));
  }
}

int submit(const SessionOptions& options) {
  Session session(options);
  if (auto done = session.connect(); !done) return fail(done.error());
  note("run " + session.run().id);
  Tally tally;
  auto result = session.run_file(lab::parse_transaction_line, [&](const lab::LineResult& line) {
    const Told told{lab::outcome_word(line.outcome), class_of(line.outcome)};
    ++tally.outcomes[std::string(told.outcome)];
    if (!told.result_class.empty()) ++tally.classes[std::string(told.result_class)];
    return told;
  });
  if (!result) return fail(result.error());
  print_summary(tally, session.run(), *result, options.json);
  return finish(options, session.run(), *result, tally.outcomes["unknown"]);
}

}  // namespace

void add_submit(CLI::App& app, int& status) {
  const auto options = std::make_shared<SessionOptions>();
  auto* command = app.add_subcommand(
      "submit", "Run a file of transactions, one JSON object a line, many in flight at once");
  command->footer(
      R"(Example:
  twofold submit transactions.jsonl --data /var/tmp/shop --output results.jsonl
with lines like
  {"request_id": "pay-7", "timeout_ms": 5000, "branches": [
    {"rm": "payments", "work": [{"op": "add", "key": "customer/c-1", "by": -2350, "min": 0}]},
    {"rm": "orders", "work": [{"op": "insert", "key": "order/7", "value": "paid"}]}]}
(each on one line; request_id and timeout_ms may be left out). The store's operations:
  get key | put key value | insert key value | erase key | add key by [min] [max] | expect key value
A result line: {"line": 7, "request_id": "pay-7", "outcome": "committed|aborted|invalid|unknown",
  "class": "refused", "reason": "payments: …", "id": "1.303", "gtrid": "…"}
with "heuristic": true where a branch ended otherwise than its transaction; where that comes to light
only at the end, in a second line for the same transaction.
Bytes are written {"base64": "AP8="}, also where results are printed.
The exit status is 0 only if no outcome stays unknown and none is heuristic; 130 after Ctrl-C or SIGTERM, which takes no
further line and waits for decisions only.)");
  add_session_options(*command, *options);
  command->callback([options, &status] { status = submit(*options); });
}

}  // namespace twofold::cli
