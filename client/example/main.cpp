// Opens an order, and then pays it: the account at `payments` and the order at `orders` change both
// or neither. For a system that `twofold up` has started:
//
//   pay COORDINATOR ORDER AMOUNT        as in: pay 127.0.0.1:7400 o-1 2350
//
// Exit status: 0 committed, 1 aborted, 2 invalid (nothing has happened), 3 unknown.
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "client/client.h"
#include "client/interactive.h"

using namespace twofold;
using namespace twofold::client;

namespace {

// The whole transaction in one message. Running this again, after whatever crash, opens the order
// once: the request id says that it is the same one.
Outcome open_order(Client& client, const std::string& order, const std::string& account) {
  Transaction transaction;
  transaction.request_id = "open-" + order;
  transaction.branches = {
      {"payments", {{"put", {{"key", account}, {"value", 10'000}}}}},
      {"orders", {{"insert", {{"key", "order/" + order}, {"value", "open"}}}}},
  };
  return client.submit(std::move(transaction)).outcome;
}

// What did not begin has not happened.
Outcome not_begun(const Error& error) {
  Outcome outcome;
  outcome.verdict = Verdict::rejected;
  outcome.detail = error.message;
  return outcome;
}

// Step by step: what is read here stays as it is until the end, so it may decide what is written.
Outcome pay_order(Client& client, const std::string& order, const std::string& account,
                  std::int64_t amount) {
  Result<ActiveTransaction> begun = client.begin();
  if (!begun) return not_begun(begun.error());
  ActiveTransaction& transaction = *begun;
  const Worked read = transaction.work("payments", {{"get", {{"key", account}}}});
  if (read.ok()) std::cout << "balance: " << to_text(read.results.front()) << '\n';
  transaction.work("payments", {{"add", {{"key", account}, {"by", -amount}, {"min", 0}}}});
  transaction.work("orders", {{"expect", {{"key", "order/" + order}, {"value", "open"}}},
                              {"put", {{"key", "order/" + order}, {"value", "paid"}}}});
  Outcome outcome = transaction.commit();  // of all that was asked for, or it says what failed
  if (outcome.verdict == Verdict::unknown) {
    outcome = client.ask_gtrid(transaction.gtrid(), wire::REPLY_AT_DECISION);
  }
  return outcome;
}

// Tells a person; gives the exit status.
int tell(std::string_view what, const Outcome& outcome) {
  std::cout << what << ": " << name(outcome.verdict);
  if (outcome.reason != Reason::none) std::cout << " (" << name(outcome.reason) << ')';
  if (!outcome.detail.empty()) std::cout << ": " << outcome.detail;
  std::cout << '\n';
  for (const Refusal& refusal : outcome.refusals) std::cout << "  " << to_text(refusal) << '\n';
  if (outcome.heuristic) std::cout << "  a participant ended against it: see `twofold show`\n";
  switch (outcome.verdict) {
    case Verdict::committed: return 0;  // everywhere, now or as soon as a participant is back
    case Verdict::aborted:              // nowhere
      if (retryable(outcome.reason)) std::cout << "  it may be tried again as it is\n";
      return 1;
    case Verdict::rejected:
    case Verdict::not_found: return 2;
    case Verdict::pending:  // it may have committed or may still: never run it under another id
    case Verdict::expired:
    case Verdict::unknown: break;
  }
  std::cout << "  run this again, or see `twofold list`, before you rely on either\n";
  return 3;
}

int usage() {
  std::cerr << "usage: pay COORDINATOR ORDER AMOUNT, as in: pay 127.0.0.1:7400 o-1 2350\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return usage();
  const Result<Address> coordinator = parse_address(argv[1]);
  if (!coordinator) {
    std::cerr << "pay: " << coordinator.error().message << '\n';
    return usage();
  }
  const std::string order = argv[2];
  const std::string account = "account/" + order;
  const std::string_view digits = argv[3];
  std::int64_t amount = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), amount);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || amount <= 0) {
    std::cerr << "pay: '" << digits << "' is no amount: write a whole number above 0\n";
    return usage();
  }

  Options options;
  options.coordinator = *coordinator;
  options.name = "pay";
  options.give_up = std::chrono::seconds{5};  // without a decision: Verdict::unknown
  Client client(options);
  if (const int status = tell("open", open_order(client, order, account)); status != 0) {
    return status;
  }
  return tell("pay", pay_order(client, order, account, amount));
}
