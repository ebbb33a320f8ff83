// begin, enlist, work, commit, rollback: an interactive transaction by hand, a command each.
//
// Each command is a process of its own, and a commit has to say how many works were answered at
// each resource manager (rule 10). With --data a ledger knows (cli/ledger.h); without, the person
// counts (commit --works).
#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "cli/ledger.h"
#include "cli/output.h"
#include "cli/target.h"
#include "client/interactive.h"
#include "lab/workflows/runner.h"
#include "lab/workflows/transaction_line.h"
#include "protocol/convert.h"
#include "protocol/xid.h"

namespace twofold::cli {
namespace {

struct InteractiveOptions {
  Target target;
  std::string transaction;  // id or gtrid
  std::string rm;
  std::string work;
  std::vector<std::string> works;  // RM=N
  std::int64_t timeout_ms = 60'000;
  std::int64_t age_ms = 0;
  unsigned give_up_s = 15;
  bool wait = false;
  bool json = false;
};

Result<client::Works> given_counts(const std::vector<std::string>& given) {
  client::Works works;
  for (const std::string& text : given) {
    const auto equals = text.find('=');
    std::uint64_t count = 0;
    const char* const end = text.data() + text.size();
    if (equals == std::string::npos || equals == 0 ||
        std::from_chars(text.data() + equals + 1, end, count).ptr != end) {
      return Error{Fault::invalid, "--works " + text + ": give RM=N, for example payments=2"};
    }
    works.answered[text.substr(0, equals)] = count;
  }
  return works;
}

// ---- the coordinator ----------------------------------------------------------------------------

struct Session {
  std::unique_ptr<client::Client> client;
  std::string gtrid;
};

Result<std::unique_ptr<client::Client>> connect(const InteractiveOptions& options) {
  auto address = coordinator_address(options.target);
  if (!address) return address.error();
  client::Options client;
  client.coordinator = *address;
  client.name = "twofold";
  client.give_up = std::chrono::seconds{options.give_up_s};
  return std::make_unique<client::Client>(client);
}

// The client, and the gtrid of the transaction that was named.
Result<Session> open(const InteractiveOptions& options) {
  auto client = connect(options);
  if (!client) return client.error();
  if (auto gtrid = parse_gtrid_text(options.transaction)) {
    return Session{std::move(*client), std::move(*gtrid)};
  }
  const auto id = parse_txn_id(options.transaction);
  if (!id) {
    return Error{Fault::invalid, "which transaction is \"" + options.transaction +
                                     "\"? Give the id or the gtrid that twofold begin printed"};
  }
  wire::Frame request;
  to_wire(*id, *request.mutable_show()->mutable_id());
  auto shown = (*client)->call(std::move(request));
  if (!shown) return shown.error();
  if (!shown->has_show_answer() || !shown->show_answer().found()) {
    return Error{Fault::not_found, "the coordinator has no trace of " + options.transaction +
                                       ": it was never begun here, or it is too old"};
  }
  return Session{std::move(*client), shown->show_answer().transaction().gtrid()};
}

// ---- the commands -------------------------------------------------------------------------------

int begin(const InteractiveOptions& options) {
  auto client = connect(options);
  if (!client) return fail(client.error());
  auto begun = (*client)->begin(
      {std::chrono::milliseconds{options.timeout_ms}, std::chrono::milliseconds{options.age_ms}});
  if (!begun) return fail(begun.error());
  if (auto kept = Ledger(options.target.data, begun->gtrid()).begin(); !kept) {
    return fail(kept.error());  // it is rolled back
  }
  begun->leave();
  const std::string id = id_text(begun->gtrid());
  const auto timeout_ms = static_cast<std::uint64_t>(begun->timeout().count());
  if (options.json) {
    print_json(json::object{
        {"id", id}, {"gtrid", gtrid_text(begun->gtrid())}, {"timeout_ms", timeout_ms}});
    return 0;
  }
  print_line(id);
  const bool bounded = timeout_ms < static_cast<std::uint64_t>(options.timeout_ms);
  note(
      fmt::format("transaction {} has {} to commit{}: twofold work {} RM 'WORK', then "
                  "twofold commit {}",
                  id, age(timeout_ms),
                  bounded ? ", the most that the coordinator gives (timeout_max_ms)" : "", id, id));
  return 0;
}

// Nothing has happened, or the transaction has ended.
std::string why_not_enlisted(const InteractiveOptions& options, const Outcome& outcome) {
  const std::string reason = lab::reason_text(outcome);
  if (outcome.verdict == Verdict::rejected) {
    return reason + (retryable(outcome.reason) ? "; the transaction goes on: try again" : "");
  }
  return options.transaction + " takes no more work: " + std::string(name(outcome.verdict)) +
         (reason.empty() ? "" : ": " + reason);
}

int enlist(const InteractiveOptions& options) {
  auto session = open(options);
  if (!session) return fail(session.error());
  wire::Frame request;
  request.mutable_enlist()->set_gtrid(session->gtrid);
  request.mutable_enlist()->set_rm(options.rm);
  auto told = session->client->call(std::move(request));
  if (!told) return fail(told.error());
  if (!told->has_enlisted()) {
    return fail({Fault::invalid, why_not_enlisted(options, from_wire(told->outcome()))});
  }
  const auto xid = from_wire(told->enlisted().xid());
  if (!xid) return fail(xid.error());
  if (options.json) {
    print_json(json::object{{"xid", to_text(*xid)}, {"address", told->enlisted().address()}});
  } else {
    print_line(to_text(*xid) + " at " + told->enlisted().address());
  }
  return 0;
}

int tell_work(const InteractiveOptions& options, const client::Worked& worked) {
  if (options.json) {
    json::object whole{{"code", std::string(name(worked.code))}};
    json::array results;
    wire::Results wire;
    wire.ParseFromString(encode_results(worked.results));
    for (const wire::Value& value : wire.values()) results.push_back(to_json(value));
    whole["results"] = std::move(results);
    if (!worked.ok()) whole["reason"] = worked.text;
    print_json(whole);
    return worked.ok() ? 0 : 1;
  }
  for (const Value& value : worked.results) print_line(to_text(value));
  if (worked.ok()) return 0;
  std::string text = std::string(name(worked.code)) + ": " + worked.text;
  const bool ended = worked.code == Xa::er_proto || worked.code == Xa::er_nota;
  if (!ended) text += "\nthe transaction can only be rolled back now";
  return fail({Fault::invalid, text});
}

int work(const InteractiveOptions& options) {
  auto parsed = lab::parse_work_text(options.work);
  if (!parsed) return fail(parsed.error());
  auto session = open(options);
  if (!session) return fail(session.error());
  Ledger ledger(options.target.data, session->gtrid);
  if (auto asked = ledger.asks(options.rm); !asked) return fail(asked.error());
  auto transaction = session->client->resume(session->gtrid);
  const client::Worked worked = transaction.work(options.rm, std::move(*parsed));
  transaction.leave();
  if (!ledger.answered(options.rm, worked)) {
    note("the answer could not be recorded: the transaction can only be rolled back now");
  }
  return tell_work(options, worked);
}

Error to_go_on(Error error, const std::string& command) {
  const bool away = error.fault == Fault::closed || error.fault == Fault::timeout;
  if (away) error.message += " Start it (twofold start coordinator), then: " + command;
  return error;
}

// What is asked for is sent again when the coordinator is back, and waited for meanwhile.
void tell_waiting(client::Client& client, unsigned give_up_s) {
  client.on_connection([told = false, give_up_s](bool connected, const std::string& why) mutable {
    if (connected || std::exchange(told, true)) return;
    note("waiting up to " + std::to_string(give_up_s) + " s for the coordinator: " + why);
  });
}

int tell_end(const InteractiveOptions& options, const std::string& gtrid, const Outcome& outcome,
             bool commit) {
  const std::string id = id_text(gtrid), word(lab::outcome_word(outcome));
  const std::string reason = lab::reason_text(outcome);
  if (options.json) {
    print_json(json::object{{"id", id},
                            {"gtrid", gtrid_text(gtrid)},
                            {"outcome", word},
                            {"heuristic", outcome.heuristic},
                            {"reason", reason}});
  } else {
    print_line(id + " " + word + (reason.empty() ? "" : ": " + reason));
  }
  if (outcome.heuristic) note(id + " " + heuristic_text(outcome));
  const bool as_asked = outcome.verdict == (commit ? Verdict::committed : Verdict::aborted);
  return as_asked && !outcome.heuristic ? 0 : 1;
}

int finish(const InteractiveOptions& options, bool commit) {
  const std::string again =
      std::string("twofold ") + (commit ? "commit " : "rollback ") + options.transaction;
  auto session = open(options);
  if (!session) return fail(to_go_on(session.error(), again));
  Ledger ledger(options.target.data, session->gtrid);
  Result<client::Works> works = client::Works{};
  if (!options.works.empty()) {
    works = given_counts(options.works);
  } else if (commit) {
    works = ledger.close();
  }
  if (!works) return fail(works.error());
  tell_waiting(*session->client, options.give_up_s);
  auto transaction = session->client->resume(session->gtrid, std::move(*works));
  const Outcome outcome = commit ? transaction.commit(options.wait) : transaction.rollback();
  session->client->on_connection(nullptr);
  const bool known = outcome.verdict == Verdict::committed || outcome.verdict == Verdict::aborted;
  if (known) ledger.remove();
  const int status = tell_end(options, session->gtrid, outcome, commit);
  if (outcome.verdict == Verdict::unknown) {
    note("when the coordinator runs (twofold start coordinator), this tells the outcome: " + again);
  }
  return status;
}

}  // namespace

void add_interactive(CLI::App& app, int& status) {
  const auto options = std::make_shared<InteractiveOptions>();
  const auto add = [&](const char* name, const char* what, const char* example) {
    auto* command = app.add_subcommand(name, what);
    command->footer(std::string("Example:\n  ") + example);
    add_target(*command, options->target, Finds::coordinator);
    command->add_flag("--json", options->json, "Print JSON");
    return command;
  };
  const auto takes_transaction = [&](CLI::App* command) {
    command->add_option("ID|GTRID", options->transaction, "As twofold begin printed it")
        ->required();
  };

  auto* begins = add("begin", "Begin an interactive transaction; prints its id",
                     "ID=$(twofold begin --data /var/tmp/shop)");
  begins
      ->add_option("--timeout-ms", options->timeout_ms,
                   "It is rolled back if it has not been committed by then; at most the "
                   "coordinator's timeout_max_ms")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{UINT32_MAX}));
  begins
      ->add_option("--age-ms", options->age_ms,
                   "Since the first attempt at the same work: the older survives a deadlock")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{UINT32_MAX}));
  begins->callback([options, &status] { status = begin(*options); });

  auto* enlists = add("enlist", "Start the transaction's branch at a participant; prints its xid",
                      "twofold enlist 1.303 payments --data /var/tmp/shop");
  takes_transaction(enlists);
  enlists->add_option("RM", options->rm, "The participant")->required();
  enlists->callback([options, &status] { status = enlist(*options); });

  auto* works = add(
      "work", "Work at a participant within the transaction; prints the results",
      R"(twofold work 1.303 payments '{"op": "get", "key": "customer/c-1"}' --data /var/tmp/shop)");
  takes_transaction(works);
  works->add_option("RM", options->rm, "The participant")->required();
  works
      ->add_option("WORK", options->work,
                   "An operation as JSON, or an array of them, as in a submit line")
      ->required();
  works->callback([options, &status] { status = work(*options); });

  const auto waits = [&](CLI::App* command) {
    command
        ->add_option("--give-up", options->give_up_s,
                     "Seconds without an answer after which the outcome is told as unknown")
        ->capture_default_str()
        ->check(CLI::Range(1, 86'400));
  };

  auto* commits =
      add("commit", "Commit the transaction", "twofold commit 1.303 --data /var/tmp/shop");
  takes_transaction(commits);
  commits->add_option("--works", options->works,
                      "RM=N: how many works were answered there; with --data it is known");
  commits->add_flag("--wait", options->wait, "Answer when every branch has finished");
  waits(commits);
  commits->callback([options, &status] { status = finish(*options, true); });

  auto* rolls_back =
      add("rollback", "Roll the transaction back", "twofold rollback 1.303 --data /var/tmp/shop");
  takes_transaction(rolls_back);
  waits(rolls_back);
  rolls_back->callback([options, &status] { status = finish(*options, false); });
}

}  // namespace twofold::cli
