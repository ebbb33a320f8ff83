// order: the order workflow, each order one transaction over four stores.
#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "lab/workflows/order.h"

namespace twofold::cli {
namespace {

using lab::OrderClass;

struct OrderOptions : SessionOptions {
  std::string world;
  bool load = false;
  bool force = false;
};

class OrderTally {
 public:
  void count(OrderClass order_class) { ++counts_[static_cast<std::size_t>(order_class)]; }
  std::uint64_t of(OrderClass order_class) const {
    return counts_[static_cast<std::size_t>(order_class)];
  }

 private:
  std::array<std::uint64_t, lab::kOrderClasses> counts_{};
};

struct Row {
  OrderClass order_class;
  const char* key;    // in JSON
  const char* words;  // in the table
};
constexpr Row kRows[] = {{OrderClass::committed, "committed", "committed"},
                         {OrderClass::funds, "refused_funds", "refused: funds"},
                         {OrderClass::courier, "refused_courier", "refused: courier"},
                         {OrderClass::kitchen, "refused_kitchen", "refused: kitchen"},
                         {OrderClass::unknown, "refused_unknown", "refused: unknown"},
                         {OrderClass::duplicate, "refused_duplicate", "refused: duplicate"},
                         {OrderClass::invalid, "invalid", "invalid"}};

Result<lab::World> read_world(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    return Error{Fault::not_found,
                 "cannot read the world in " + path + ": " + std::strerror(errno)};
  }
  auto world = lab::parse_world(text.str());
  if (!world) return Error{world.error().fault, path + ": " + world.error().message};
  return world;
}

// Empty: none of the four stores has any key.
Result<std::string> store_with_data(const Target& target) {
  for (const char* name : {"orders", "payments", "dispatch", "kitchen"}) {
    auto address = rm_address(target, name);
    if (!address) return address.error();
    wire::Frame request;
    request.mutable_scan()->set_bytes_max(4096);  // one key is enough to know
    auto answer = client::call_once(*address, std::move(request), std::chrono::seconds{10}, name);
    if (!answer) return answer.error();
    const auto& scan = answer->scan_answer();
    if (scan.entries_size() > 0 || scan.truncated() || scan.prepared() > 0)
      return std::string(name);
  }
  return std::string();
}

std::string load_request(const Session& session, std::size_t index) {
  return session.run().request_id("load-" + std::to_string(index + 1));
}

// A resumed run may find what it has loaded itself.
bool loaded_by_this_run(const OrderOptions& options, Session& session, std::size_t transactions) {
  if (options.run.empty()) return false;
  for (std::size_t i = 0; i < transactions; ++i) {
    if (session.ask(load_request(session, i)).verdict == Verdict::committed) return true;
  }
  return false;
}

// The load's request ids belong to the run, so that a resumed load repeats nothing (rule 7).
Result<void> load(const OrderOptions& options, Session& session, const lab::World& world) {
  auto transactions = lab::load_transactions(world);
  if (!options.force) {
    auto taken = store_with_data(options.target);
    if (!taken) return taken.error();
    if (!taken->empty() && !loaded_by_this_run(options, session, transactions.size())) {
      return Error{Fault::exists, *taken +
                                      " has data already, and --load would write over it: leave "
                                      "--load out, use a new data directory, or insist with "
                                      "--force"};
    }
  }
  for (std::size_t i = 0; i < transactions.size(); ++i) {
    transactions[i].request_id = load_request(session, i);
    transactions[i].known = session.run().known;
    transactions[i].wait_for_end = true;
  }
  for (const auto& answered : session.submit_all(std::move(transactions))) {
    if (answered.outcome.verdict == Verdict::committed) continue;
    return Error{Fault::io, "the world could not be loaded: " + lab::reason_text(answered.outcome) +
                                ". Go on with the same command and --run " + session.run().id};
  }
  return {};
}

void print_summary(const OrderTally& tally, const SessionResult& result, bool as_json) {
  if (as_json) {
    json::object whole;
    for (const auto& row : kRows) whole[row.key] = tally.of(row.order_class);
    if (result.counts.heuristic > 0) whole["heuristic"] = result.counts.heuristic;
    return print_json(whole);
  }
  const auto total = result.counts.told;
  print_line(plural(total, "order") + fmt::format(" in {:.1f} s ({:.0f}/s)", result.seconds,
                                                  static_cast<double>(total) / result.seconds));
  Table table({"outcome", "orders"}, {false, true});
  for (const auto& row : kRows) {
    table.add({row.words, grouped(static_cast<std::int64_t>(tally.of(row.order_class)))});
  }
  if (const auto heuristic = result.counts.heuristic; heuristic > 0) {
    table.add({"of these heuristic", grouped(static_cast<std::int64_t>(heuristic))});
  }
  table.print();
}

Told told(const lab::LineResult& line, OrderClass order_class) {
  if (order_class == OrderClass::committed) return {"committed", ""};
  return {lab::outcome_word(line.outcome), lab::name(order_class)};
}

// What the summary has no row for.
int tell_others(const OrderTally& tally) {
  const auto refused = tally.of(OrderClass::other);
  const auto aborted = tally.of(OrderClass::aborted);
  if (refused > 0) {
    note(plural(refused, "order") + (refused == 1 ? " was" : " were") +
         " refused for a reason that is none of the workflow's (an overflow, or a store with "
         "other "
         "data): see --output");
  }
  if (aborted > 0) {
    note(plural(aborted, "order") +
         " aborted after all retries: see --output for the reasons, and twofold stats for who is "
         "away");
  }
  return refused + aborted > 0 ? 1 : 0;
}

int order(const OrderOptions& options) {
  if (options.load && options.world.empty()) {
    return fail({Fault::invalid, "--load needs the world to load: --world WORLD.json"});
  }
  std::optional<lab::World> world;
  if (!options.world.empty()) {
    auto read = read_world(options.world);
    if (!read) return fail(read.error());
    world = std::move(*read);
  }
  Session session(options);
  if (auto done = session.connect(); !done) return fail(done.error());
  note("run " + session.run().id + " (if this command is cut short, repeat it with --run " +
       session.run().id + ")");
  if (options.load) {
    if (auto done = load(options, session, *world); !done) return fail(done.error());
  }
  OrderTally tally;
  auto result = session.run_file(
      [](std::string_view line) -> Result<client::Transaction> {
        auto parsed = lab::parse_order(line);
        if (!parsed) return parsed.error();
        return lab::to_transaction(*parsed);
      },
      [&](const lab::LineResult& line) {
        const auto order_class = lab::classify(line.outcome);
        tally.count(order_class);
        return told(line, order_class);
      });
  if (!result) return fail(result.error());
  print_summary(tally, *result, options.json);
  const int others = tell_others(tally);
  const int finished = finish(options, session.run(), *result, tally.of(OrderClass::undecided));
  return finished != 0 ? finished : others;
}

}  // namespace

void add_order(CLI::App& app, int& status) {
  const auto options = std::make_shared<OrderOptions>();
  auto* command = app.add_subcommand(
      "order",
      "Run a file of orders: each is one transaction over orders, payments, dispatch, kitchen");
  command->footer(R"(Example:
  twofold order orders.jsonl --world world.json --load --data /var/tmp/shop
with lines like
  {"order_id": "o-1", "customer": "c-1", "restaurant": "r-1", "zone": "north", "total_pence": 2749}
An order commits in all four stores or in none:
  orders    order/<id>
  payments  customer/<customer> less the total, not below 0; restaurant/<restaurant> plus the total
  dispatch  zone/<zone> less one courier, not below 0; assignment/<id>
  kitchen   slots/<restaurant> less one, not below 0; ticket/<id>
The exit status is 0 only if no outcome stays unknown, none is heuristic (a branch that ended
otherwise than its transaction) and no order was left out; 130 after Ctrl-C or
SIGTERM, which takes no further order and waits for decisions only.)");
  add_session_options(*command, *options);
  command
      ->add_option("--world", options->world,
                   "Customers' balances, kitchen slots and couriers to begin with")
      ->type_name("FILE");
  command->add_flag("--load", options->load, "Put the world in first; refused if a store has data");
  command->add_flag("--force", options->force, "Let --load write over data");
  command->callback([options, &status] { status = order(*options); });
}

}  // namespace twofold::cli
