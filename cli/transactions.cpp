// list, show: what the coordinator knows of its transactions.
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/target.h"
#include "client/client.h"
#include "lab/workflows/runner.h"
#include "protocol/convert.h"
#include "protocol/xa.h"

namespace twofold::cli {
namespace {

constexpr std::chrono::seconds kAnswerMax{10};

struct ListOptions {
  Target target;
  std::string which;
  std::uint32_t entries_max = 1'000;
  bool all = false;
  bool json = false;
};

Result<wire::Frame> ask(const ListOptions& options, wire::Frame request) {
  auto address = coordinator_address(options.target);
  if (!address) return address.error();
  return client::call_once(*address, std::move(request), kAnswerMax);
}

// "committed", "aborted: refused", or where it stands.
std::string outcome_text(const Outcome& outcome) {
  std::string text(name(outcome.verdict));
  if (outcome.reason != Reason::none) text += ": " + std::string(name(outcome.reason));
  if (outcome.heuristic) text += " (HEURISTIC)";
  return text;
}

std::string branches_text(const wire::TransactionView& view) {
  std::string text;
  for (const auto& branch : view.branches()) {
    text += (text.empty() ? "" : ", ") + branch.rm() + " " + branch.state();
  }
  return text;
}

// Empty: it has not voted.
std::string vote_text(const wire::BranchView& branch) {
  if (!branch.has_vote()) return {};
  return std::string(name(static_cast<Xa>(branch.vote())));
}

json::object view_json(const wire::TransactionView& view) {
  const auto outcome = from_wire(view.outcome());
  json::array branches, phases;
  for (const auto& branch : view.branches()) {
    json::object entry{{"rm", branch.rm()}, {"state", branch.state()}};
    if (const auto xid = from_wire(branch.xid())) entry["xid"] = to_text(*xid);
    entry["vote"] = branch.has_vote() ? json::value(vote_text(branch)) : json::value(nullptr);
    branches.push_back(std::move(entry));
  }
  for (const auto& phase : view.phases()) {
    phases.push_back(json::object{{"phase", phase.phase()}, {"wall_us", phase.wall_us()}});
  }
  return {{"id", id_text(view.gtrid())},
          {"gtrid", gtrid_text(view.gtrid())},
          {"request_id", view.request_id()},
          {"phase", view.phase()},
          {"outcome", std::string(name(outcome.verdict))},
          {"class", std::string(name(outcome.reason))},
          {"reason", lab::reason_text(outcome)},
          {"ended", outcome.ended},
          {"heuristic", outcome.heuristic},
          {"age_ms", view.age_ms()},
          {"branches", std::move(branches)},
          {"phases", std::move(phases)}};
}

int list(const ListOptions& options) {
  wire::Frame request;
  request.mutable_list()->set_all(options.all);
  request.mutable_list()->set_entries_max(options.entries_max);
  auto answer = ask(options, std::move(request));
  if (!answer) return fail(answer.error());
  json::array whole;
  Table table({"transaction", "request", "phase", "outcome", "age", "branches", "gtrid"},
              {false, false, false, false, true});
  for (const auto& view : answer->list_answer().transactions()) {
    if (options.json) {
      whole.push_back(view_json(view));
    } else {
      table.add({id_text(view.gtrid()), view.request_id(), view.phase(),
                 outcome_text(from_wire(view.outcome())), age(view.age_ms()), branches_text(view),
                 gtrid_text(view.gtrid())});
    }
  }
  if (options.json) {
    print_json(whole);
  } else if (table.rows() > 0) {
    table.print();
  } else {
    print_line(options.all ? "no transactions are known"
                           : "no transactions are under way (--all shows the recently ended ones)");
  }
  if (answer->list_answer().truncated()) note("there are more: see --max");
  return 0;
}

void print_phases(const wire::TransactionView& view) {
  Table table({"phase", "entered at", "after"}, {false, false, true});
  for (const auto& phase : view.phases()) {
    const auto since = phase.wall_us() - view.phases(0).wall_us();
    table.add({phase.phase(), wall_time(phase.wall_us()),
               grouped(static_cast<std::int64_t>(since)) + " us"});
  }
  if (table.rows() > 0) {
    print_line("");
    table.print();
  }
}

void print_view(const wire::TransactionView& view) {
  const auto outcome = from_wire(view.outcome());
  print_line("transaction  " + id_text(view.gtrid()));
  print_line("gtrid        " + gtrid_text(view.gtrid()));
  if (!view.request_id().empty()) print_line("request      " + view.request_id());
  print_line("phase        " + view.phase());
  print_line("outcome      " + outcome_text(outcome));
  const auto reason = lab::reason_text(outcome);
  if (!reason.empty()) print_line("because      " + reason);
  if (view.branches_size() > 0) {
    print_line("");
    Table table({"participant", "state", "vote", "xid"});
    for (const auto& branch : view.branches()) {
      const auto xid = from_wire(branch.xid());
      table.add({branch.rm(), branch.state(), vote_text(branch), xid ? to_text(*xid) : "?"});
    }
    table.print();
  }
  print_phases(view);
}

// A name that reads as a gtrid or as an id is asked for as one, and then as a request id.
Result<wire::Frame> find(const ListOptions& options) {
  if (const auto id = parse_txn_id(options.which)) {
    wire::Frame request;
    to_wire(*id, *request.mutable_show()->mutable_id());
    auto answer = ask(options, std::move(request));
    if (!answer || answer->show_answer().found()) return answer;
  }
  if (const auto gtrid = parse_gtrid_text(options.which)) {
    wire::Frame request;
    request.mutable_show()->set_gtrid(*gtrid);
    auto answer = ask(options, std::move(request));
    if (!answer || answer->show_answer().found()) return answer;
  }
  wire::Frame request;
  request.mutable_show()->set_request_id(options.which);
  return ask(options, std::move(request));
}

int show(const ListOptions& options) {
  if (options.which.empty()) {
    return fail({Fault::invalid,
                 "show which transaction? Give its id, gtrid or request id, as twofold list shows "
                 "them"});
  }
  auto answer = find(options);
  if (!answer) return fail(answer.error());
  if (!answer->show_answer().found()) {
    return fail(
        {Fault::not_found,
         "the coordinator has no trace of " + options.which +
             ": it was never begun here, it was rolled back, or it is too old. twofold list --all "
             "shows what there is, twofold in-doubt what the participants still hold"});
  }
  const auto& view = answer->show_answer().transaction();
  if (options.json) {
    print_json(view_json(view));
  } else {
    print_view(view);
  }
  return 0;
}

}  // namespace

void add_transactions(CLI::App& app, int& status) {
  const auto options = std::make_shared<ListOptions>();
  auto* list_command = app.add_subcommand("list", "List the transactions under way, oldest first");
  list_command->footer("Example:\n  twofold list --all --data /var/tmp/shop");
  add_target(*list_command, options->target, Finds::coordinator);
  list_command->add_flag("--all", options->all, "The recently ended ones as well");
  list_command->add_option("--max", options->entries_max, "At most so many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  list_command->add_flag("--json", options->json, "Print JSON");
  list_command->callback([options, &status] { status = list(*options); });

  auto* show_command = app.add_subcommand(
      "show", "Show one transaction: its phases with times, each branch's state");
  show_command->footer(
      "Example:\n  twofold show 1.303 --data /var/tmp/shop\n  twofold show pay-7 --data "
      "/var/tmp/shop");
  add_target(*show_command, options->target, Finds::coordinator);
  show_command
      ->add_option("ID|GTRID|REQUEST_ID", options->which,
                   "As list and in-doubt show them; an id is one of this coordinator's own")
      ->required();
  show_command->add_flag("--json", options->json, "Print JSON");
  show_command->callback([options, &status] { status = show(*options); });
}

}  // namespace twofold::cli
