#include "cli/demo_story.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "cli/demo_orders.h"
#include "cli/output.h"
#include "client/client.h"
#include "lab/cluster/cluster.h"
#include "lab/workflows/books.h"
#include "lab/workflows/generate.h"

namespace twofold::cli {
namespace {

using lab::Cluster;
using lab::OrderClass;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30};  // for what takes milliseconds
constexpr milliseconds kLookAgain{10};
constexpr std::size_t kRowsShown = 6;

struct Branch {
  std::string rm;
  wire::InDoubtBranch found;
};

std::uint64_t since(Clock::time_point begin) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count());
}

class Demo {
 public:
  Demo(DemoOptions options, std::filesystem::path directory)
      : options_(options), directory_(std::move(directory)) {}

  int run();

 private:
  using Done = Result<void>;

  Done start_all();
  Done load();
  Done crash_between_decision_and_commit();
  Done let_the_audit_wait();
  Done start_again();
  Done kill_a_participant();
  Done settle();

  void say(const std::string& text) const {
    if (!options_.json) print_line(text);
  }
  void heading(const std::string& text) {
    if (options_.json) return;
    const bool bold = is_terminal(STDOUT_FILENO);
    print_line("\n" + std::string(bold ? "\033[1m" : "") + std::to_string(++act_) + ". " + text +
               (bold ? "\033[0m" : "") + "\n");
  }
  void show(const Table& table) const {
    if (!options_.json) table.print();
  }
  Result<std::vector<Branch>> look_for_doubt() const;
  Result<wire::LocksAnswer> look_at_locks(const std::string& rm) const;
  Done show_doubt();
  Result<Cluster> make_audit_coordinator();
  Done wait_until_seen_waiting(const std::string& key);
  Done wait_until_resolved();
  Done tell_resolution();
  void tell_outcomes();
  bool tell_checks(const std::vector<lab::Check>& checks);

  DemoOptions options_;
  std::filesystem::path directory_;
  int act_ = 0;
  Clock::time_point begin_ = Clock::now();
  lab::GeneratedOrders shop_;
  std::optional<Cluster> cluster_;
  std::optional<Cluster> audit_;
  std::optional<RunningOrders> orders_;
  std::vector<Branch> doubt_;              // as found while the coordinator was dead
  std::future<client::Answered> balance_;  // what the audit asks for
  Clock::time_point asked_;
  std::string balance_key_;
  bool adds_up_ = false;
};

// ---- acts
// ------------------------------------------------------------------------------------------

Demo::Done Demo::start_all() {
  heading("Five processes");
  say("An order touches four separate stores: it must happen in all of them or in none. A\n"
      "coordinator sees to that. Each is a process of its own, with its own files:\n");
  lab::ClusterOptions layout;
  layout.directory = directory_;
  layout.kill_at_end = true;
  auto made = Cluster::create(layout);
  if (!made) return made.error();
  cluster_.emplace(std::move(*made));
  if (auto done = cluster_->claim(); !done) return done.error();
  // It will die when it has decided on its n-th order and is about to tell the first participant.
  lab::StartOptions crash;
  crash.arguments = {"--crash-at", "before:Commit@orders#" + std::to_string(options_.orders / 4)};
  for (const auto& name : cluster_->names()) {
    const bool coordinator = name == lab::kCoordinator;
    if (auto done = cluster_->start(name, coordinator ? crash : lab::StartOptions{}); !done) {
      return done.error();
    }
  }
  auto state = cluster_->state();
  if (!state) return state.error();
  Table table({"process", "address", "pid"}, {false, false, true});
  for (const auto& member : state->members) {
    table.add({member.name, member.address, std::to_string(member.process.pid)});
  }
  show(table);
  return {};
}

Demo::Done Demo::load() {
  heading("A small shop");
  lab::GenerateOptions generate;
  generate.seed = 20;
  generate.orders = options_.orders;
  generate.plenty = static_cast<std::int64_t>(options_.orders) * 5'500;
  shop_ = lab::generate_orders(generate);
  std::ofstream(directory_ / "world.json") << lab::to_json_text(shop_.world) << '\n';
  std::ofstream lines(directory_ / "orders.jsonl");
  for (const auto& line : shop_.lines) lines << line << '\n';
  lines.close();
  auto address = cluster_->address(lab::kCoordinator);
  if (!address) return address.error();
  client::Options options;
  options.coordinator = *address;
  options.retries = 20;
  client::Client client(options);
  for (auto& transaction : lab::load_transactions(shop_.world)) {
    transaction.wait_for_end = true;
    const auto answered = client.submit(std::move(transaction));
    if (answered.outcome.verdict == Verdict::committed) continue;
    return Error{Fault::io, "the shop could not be loaded: " + answered.outcome.detail};
  }
  say(plural(shop_.world.customers.size(), "customer") + ", " +
      plural(shop_.world.kitchen_slots.size(), "restaurant") + ", " +
      plural(shop_.world.couriers.size(), "delivery zone") + "; now " +
      plural(shop_.lines.size(), "order") +
      " run, 16 at a time.\nSome cannot be met, and some are "
      "malformed, as in life.");
  orders_.emplace(*address, directory_ / "orders.jsonl");
  return {};
}

Demo::Done Demo::crash_between_decision_and_commit() {
  heading("The coordinator dies, between a decision and its commit");
  if (!cluster_->wait_for_end(lab::kCoordinator, kPatience)) {
    return Error{Fault::timeout, "the coordinator did not reach its crash point"};
  }
  say("After " + plural(orders_->told(), "order") +
      " it was killed (SIGKILL): \"commit\" was on its disk, and nobody had been told.\n"
      "What the participants say, asked directly:\n");
  return show_doubt();
}

Demo::Done Demo::show_doubt() {
  auto found = look_for_doubt();
  if (!found) return found.error();
  doubt_ = std::move(*found);
  if (doubt_.empty()) return Error{Fault::not_found, "no branch was left in doubt by the crash"};
  std::map<std::string, std::pair<std::string, std::string>> by_transaction;  // participants, keys
  for (const auto& branch : doubt_) {
    auto& [participants, keys] = by_transaction[branch.found.xid().gtrid()];
    participants += (participants.empty() ? "" : ", ") + branch.rm;
    if (branch.rm == "payments") {
      for (const auto& key : branch.found.keys()) keys += (keys.empty() ? "" : ", ") + key;
    }
  }
  Table table({"transaction", "in doubt at", "locked at payments"});
  for (const auto& [gtrid, row] : by_transaction) {
    if (table.rows() == kRowsShown) break;
    table.add({id_text(gtrid), row.first, row.second});
  }
  show(table);
  if (by_transaction.size() > kRowsShown) {
    say("and " + plural(by_transaction.size() - kRowsShown, "other transaction"));
  }
  say("\n" + plural(doubt_.size(), "branch") +
      " voted yes and may not decide alone: their locks stay, whoever waits.");
  return {};
}

Result<Cluster> Demo::make_audit_coordinator() {
  auto configuration = cluster_->configuration();
  configuration.coordinator = {};
  configuration.coordinator.node = "audit";
  configuration.coordinator.listen = "127.0.0.1:0";
  for (auto& rm : configuration.resource_managers) rm.data.clear();
  const auto file = directory_ / "audit.toml";
  std::ofstream(file) << to_toml(configuration);
  lab::ClusterOptions layout;
  layout.directory = directory_ / "audit";
  layout.configuration = file;
  layout.kill_at_end = true;
  auto made = Cluster::create(layout);
  if (!made) return made.error();
  if (auto done = made->start(lab::kCoordinator); !done) return done.error();
  return made;
}

// A second coordinator over the same participants: it is alive, and yet it has to wait.
Demo::Done Demo::let_the_audit_wait() {
  for (const auto& branch : doubt_) {
    for (const auto& key : branch.found.keys()) {
      if (balance_key_.empty() && key.starts_with("customer/")) balance_key_ = key;
    }
  }
  if (balance_key_.empty()) return Error{Fault::not_found, "no customer is locked by the crash"};
  auto made = make_audit_coordinator();
  if (!made) return made.error();
  audit_.emplace(std::move(*made));
  auto address = audit_->address(lab::kCoordinator);
  if (!address) return address.error();
  say("\nA second coordinator, \"audit\", works with the same participants. It asks for the "
      "balance of\n" +
      balance_key_ + ", which one of them holds:\n");
  asked_ = Clock::now();
  balance_ = std::async(std::launch::async, [address = *address, key = balance_key_] {
    client::Options options;
    options.coordinator = address;
    options.retries = 50;
    client::Client client(options);
    client::Transaction transaction;
    transaction.branches = {{"payments", {{"get", {{"key", Value{key}}}}}}};
    return client.submit(std::move(transaction));
  });
  return wait_until_seen_waiting(balance_key_);
}

Demo::Done Demo::wait_until_seen_waiting(const std::string& key) {
  for (const auto begin = Clock::now(); Clock::now() - begin < kPatience;) {
    auto locks = look_at_locks("payments");
    if (!locks) return locks.error();
    for (const auto& entry : locks->entries()) {
      if (entry.key() != key || entry.waiters_size() == 0) continue;
      Table table({"key", "", "transaction", "of", "mode", "age"},
                  {false, false, false, false, false, true});
      const auto add = [&](const char* role, const wire::LockHolder& holder) {
        const auto gtrid = Gtrid::decode(holder.xid().gtrid());
        table.add({key, role, id_text(holder.xid().gtrid()), gtrid ? gtrid->node : "?",
                   holder.exclusive() ? "exclusive" : "shared", age(holder.age_ms())});
      };
      for (const auto& holder : entry.holders()) add("held", holder);
      for (const auto& waiter : entry.waiters()) add("waits", waiter);
      show(table);
      return {};
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return Error{Fault::timeout, "the audit was not seen waiting for " + key};
}

Demo::Done Demo::start_again() {
  heading("The coordinator starts again");
  const auto begin = Clock::now();
  if (auto done = cluster_->start(lab::kCoordinator); !done) return done.error();
  if (auto done = wait_until_resolved(); !done) return done.error();
  say("It read its log, asked each participant what it still held, and finished: " +
      std::to_string(since(begin)) +
      " ms after the\nstart nothing of the crash was left in doubt.\n");
  if (auto done = tell_resolution(); !done) return done.error();
  const auto answered = balance_.get();
  if (answered.outcome.verdict != Verdict::committed || answered.outcome.results.empty()) {
    return Error{Fault::io, "the audit got no answer: " + answered.outcome.detail};
  }
  const auto results = decode_results(answered.outcome.results.front().results);
  if (!results || results->empty()) return Error{Fault::damaged, "the audit's answer is empty"};
  const auto* pence = std::get_if<std::int64_t>(&results->front().data);
  if (!pence) return Error{Fault::damaged, "the audit's answer is not a number"};
  say("\nThe audit waited " + std::to_string(since(asked_)) +
      " ms for its answer: " + balance_key_ + " has " + grouped(*pence) +
      " pence.\nThat wait is the price of atomicity; half an order was "
      "never to be seen. The orders went on by\nthemselves.");
  audit_.reset();
  return {};
}

Demo::Done Demo::wait_until_resolved() {
  std::set<std::pair<std::string, std::string>> open;  // participant, gtrid
  for (const auto& branch : doubt_) open.emplace(branch.rm, branch.found.xid().gtrid());
  for (const auto begin = Clock::now(); Clock::now() - begin < kPatience;) {
    auto found = look_for_doubt();
    if (!found) return found.error();
    bool any = false;
    for (const auto& branch : *found) any |= open.contains({branch.rm, branch.found.xid().gtrid()});
    if (!any) return {};
    std::this_thread::sleep_for(kLookAgain);
  }
  return Error{Fault::timeout,
               "branches are still in doubt: see twofold in-doubt --data " + directory_.string()};
}

Demo::Done Demo::tell_resolution() {
  auto address = cluster_->address(lab::kCoordinator);
  if (!address) return address.error();
  client::Options options;
  options.coordinator = *address;
  client::Client client(options);
  std::map<std::string, std::string> asked;
  for (const auto& branch : doubt_) asked.emplace(branch.found.xid().gtrid(), "");
  std::map<std::string, std::uint64_t> sums;
  Table table({"transaction", "outcome", "why"});
  for (const auto& [gtrid, ignored] : asked) {
    const auto outcome = client.ask_gtrid(gtrid, wire::REPLY_AT_END);
    const bool committed = outcome.verdict == Verdict::committed;
    ++sums[std::string(name(outcome.verdict))];
    if (table.rows() == kRowsShown) continue;
    table.add({id_text(gtrid), std::string(name(outcome.verdict)),
               committed ? "its commit record was in the log"
                         : "there is no record of a decision: presumed abort"});
  }
  show(table);
  if (asked.size() > kRowsShown) {
    std::string text;
    for (const auto& [word, count] : sums) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + word;
    }
    say("in all: " + text);
  }
  return {};
}

Demo::Done Demo::kill_a_participant() {
  heading("A participant dies");
  orders_->wait_for(options_.orders * 2 / 3);
  const auto pid = cluster_->kill("payments");
  if (!pid) return pid.error();
  say("After " + plural(orders_->told(), "order") + " payments (pid " + std::to_string(pid->pid) +
      ") was killed. What it had not voted on is rolled back\neverywhere and tried again; what it "
      "has "
      "promised is on its disk.");
  const auto begin = Clock::now();
  if (auto done = cluster_->start("payments"); !done) return done.error();
  say("It was back after " + std::to_string(since(begin)) +
      " ms, with its prepared branches and their locks, before it served anybody.");
  orders_->wait_for_end();
  say("All orders have ended; " + plural(orders_->retried(), "order") +
      " needed more than one attempt in all this.");
  return {};
}

Demo::Done Demo::settle() {
  heading("Does it add up?");
  tell_outcomes();
  auto books = lab::read_books([&](const std::string& rm) { return cluster_->address(rm); });
  if (!books) return books.error();
  adds_up_ = tell_checks(lab::check_books(shop_.world, *books, orders_->of(OrderClass::committed)));
  cluster_->stop_all();
  return {};
}

void Demo::tell_outcomes() {
  Table table({"orders", "count"}, {false, true});
  for (std::size_t i = 0; i < lab::kOrderClasses; ++i) {
    const auto order_class = static_cast<OrderClass>(i);
    const auto count = orders_->of(order_class);
    if (count == 0 && order_class != OrderClass::committed) continue;
    const bool refused = order_class >= OrderClass::duplicate && order_class <= OrderClass::other;
    table.add({(refused ? "refused: " : "") + std::string(lab::name(order_class)),
               grouped(static_cast<std::int64_t>(count))});
  }
  if (const auto count = orders_->heuristic(); count > 0) {
    table.add({"of these with a branch that ended otherwise (heuristic)",
               grouped(static_cast<std::int64_t>(count))});
  }
  show(table);
  say("");
}

bool Demo::tell_checks(const std::vector<lab::Check>& checks) {
  bool all = orders_->of(OrderClass::undecided) == 0 && orders_->of(OrderClass::aborted) == 0 &&
             orders_->heuristic() == 0 && orders_->told() == shop_.lines.size();
  Table table({"check", "expected", "found", ""}, {false, true, true});
  json::array list;
  for (const auto& check : checks) {
    all = all && check.holds();
    table.add({check.what, check.expected, check.found, check.holds() ? "ok" : "WRONG"});
    list.push_back(
        json::object{{"what", check.what}, {"expected", check.expected}, {"found", check.found}});
  }
  show(table);
  if (options_.json) {
    print_json(json::object{{"adds_up", all},
                            {"seconds", static_cast<double>(since(begin_)) / 1e3},
                            {"committed", orders_->of(OrderClass::committed)},
                            {"in_doubt_after_crash", doubt_.size()},
                            {"checks", std::move(list)}});
  }
  return all;
}

int Demo::run() {
  say("Twofold: one piece of work across several stores, all of it or none.");
  for (const auto act :
       {&Demo::start_all, &Demo::load, &Demo::crash_between_decision_and_commit,
        &Demo::let_the_audit_wait, &Demo::start_again, &Demo::kill_a_participant, &Demo::settle}) {
    if (auto done = (this->*act)(); !done) {
      fail(done.error());
      note("The demo's files are in " + directory_.string() +
           " (what each process printed: logs/)");
      // The orders' thread waits for processes that will not come back.
      audit_.reset();
      cluster_.reset();
      std::_Exit(1);
    }
  }
  say("");
  say(adds_up_ ? "Everything adds up: every order is in all four stores or in none (" +
                     age(since(begin_)) + ")."
               : "It does NOT add up: this is a bug in Twofold. The files are in " +
                     directory_.string() + ".");
  return adds_up_ ? 0 : 1;
}

// ---- looking
// ---------------------------------------------------------------------------------------

Result<std::vector<Branch>> Demo::look_for_doubt() const {
  std::vector<Branch> found;
  for (const auto& rm : cluster_->configuration().resource_managers) {
    auto address = cluster_->address(rm.name);
    if (!address) return address.error();
    wire::Frame request;
    request.mutable_in_doubt();
    auto answer = client::call_once(*address, std::move(request), kPatience, rm.name);
    if (!answer) return answer.error();
    for (auto& branch : *answer->mutable_in_doubt_answer()->mutable_branches()) {
      found.push_back({rm.name, std::move(branch)});
    }
  }
  return found;
}

Result<wire::LocksAnswer> Demo::look_at_locks(const std::string& rm) const {
  auto address = cluster_->address(rm);
  if (!address) return address.error();
  wire::Frame request;
  request.mutable_locks();
  auto answer = client::call_once(*address, std::move(request), kPatience, rm);
  if (!answer) return answer.error();
  return std::move(*answer->mutable_locks_answer());
}

}  // namespace

int tell_story(const DemoOptions& options, const std::filesystem::path& directory) {
  return Demo(options, directory).run();
}

}  // namespace twofold::cli
