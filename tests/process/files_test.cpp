// Useful by itself: a file appears if and only if the order commits. A real coordinator, a store
// and files.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "tests/process/fixture.h"

namespace twofold::test {
namespace {

constexpr const char* kConfiguration = R"(
[coordinator]
listen = "127.0.0.1:0"
log = "coordinator/log"

[[resource_manager]]
name = "orders"
address = "127.0.0.1:0"
data = "orders"

[[resource_manager]]
name = "invoices"
kind = "files"
address = "127.0.0.1:0"
data = "invoices"
)";

class FilesTransaction : public ClusterTest {
 protected:
  std::string configuration() const override { return kConfiguration; }
  // Told when it has ended everywhere.
  static client::Transaction order(const std::string& name, std::string path = "") {
    client::Transaction transaction;
    if (path.empty()) path = "2024/" + name + ".txt";
    transaction.request_id = name + path;
    transaction.wait_for_end = true;
    transaction.branches = {
        {"orders", {{"insert", {{"key", Value{name}}, {"value", Value{std::int64_t{1}}}}}}},
        {"invoices",
         {{"publish", {{"path", Value{path}}, {"content", Value{"for " + name + "\n"}}}}}}};
    return transaction;
  }
  std::string invoice(const std::string& name) const {
    return read_file(data() + "/invoices/files/2024/" + name + ".txt");
  }
};

TEST_F(FilesTransaction, AFileAppearsIfAndOnlyIfTheOrderCommits) {
  client::Client client(client_options());
  EXPECT_EQ(client.submit(order("one")).outcome.verdict, Verdict::committed);
  // The order is there already: no file.
  Outcome outcome = client.submit(order("one", "2024/again.txt")).outcome;
  EXPECT_EQ(outcome.reason, Reason::refused) << outcome.detail;
  // The file is there already: no order.
  outcome = client.submit(order("two", "2024/one.txt")).outcome;
  EXPECT_EQ(outcome.reason, Reason::refused) << outcome.detail;
  ASSERT_EQ(outcome.refusals.size(), 1u);
  EXPECT_EQ(outcome.refusals[0].rm, "invoices");
  EXPECT_EQ(outcome.refusals[0].check, "present");
  EXPECT_EQ(invoice("one"), "for one\n");
  EXPECT_EQ(invoice("again"), "");
  EXPECT_EQ(integers("orders"), (std::map<std::string, std::int64_t>{{"one", 1}}));
  EXPECT_EQ(integers("invoices"), (std::map<std::string, std::int64_t>{{"2024/one.txt", 8}}));
}

// Killed at the moments that matter, and started again: both or none.
TEST_F(FilesTransaction, WhateverDies) {
  const std::pair<const char*, const char*> crashes[] = {
      {"invoices", "before:Persisted"},      {"invoices", "after:Answer"},
      {"invoices", "before:PersistCommit"},  {"invoices", "after:PersistCommit"},
      {"coordinator", "before:Durable"},     {"coordinator", "after:Commit@invoices"},
      {"coordinator", "after:Commit@orders"}};
  client::Client client(client_options());
  int number = 0;
  for (const auto& [name, point] : crashes) {
    ASSERT_TRUE(cluster().kill(name));
    lab::StartOptions armed;
    armed.arguments = {"--crash-at", point};
    armed.wait_until_ready = false;
    ASSERT_TRUE(cluster().start(name, armed));
    std::thread reviver([&, victim = name] {
      EXPECT_TRUE(cluster().wait_for_end(victim, std::chrono::seconds(60)));
      EXPECT_TRUE(cluster().start(victim));
    });
    const std::string id = "order-" + std::to_string(++number);
    const Outcome outcome = client.submit(order(id)).outcome;
    reviver.join();
    const bool committed = outcome.verdict == Verdict::committed;
    EXPECT_TRUE(committed) << point << ": " << outcome.detail;  // it is tried again until it is
    EXPECT_EQ(integers("orders").contains(id), committed) << point;
    EXPECT_EQ(invoice(id), committed ? "for " + id + "\n" : "") << point;
  }
}

}  // namespace
}  // namespace twofold::test
