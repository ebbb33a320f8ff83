// Useful by itself: a file appears if and only if the order commits. A real coordinator, a store
// and files.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "client/client.h"
#include "lab/cluster/cluster.h"
#include "tests/log/temporary_directory.h"

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

class FilesTransaction : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path file = directory_.path() / "shop.toml";
    std::ofstream(file) << kConfiguration;
    lab::ClusterOptions options;
    options.directory = directory_.path() / "data";
    options.configuration = file;
    options.programs = TWOFOLD_BIN_DIR;
    options.kill_at_end = true;
    auto made = lab::Cluster::create(options);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    cluster_.emplace(std::move(*made));
    const auto started = cluster_->start_all();
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }
  client::Options client_options() const {
    client::Options options;
    options.coordinator = cluster_->address("coordinator").value();
    options.retries = 1'000;
    options.retry_max = std::chrono::milliseconds{200};
    options.give_up = std::chrono::milliseconds{120'000};
    return options;
  }
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
    std::ifstream file(directory_.path() / "data/invoices/files/2024" / (name + ".txt"));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::map<std::string, std::int64_t> integers(const std::string& rm) const {
    wire::Frame request;
    request.mutable_scan();
    std::map<std::string, std::int64_t> found;
    const auto answer = client::call_once(cluster_->address(rm).value(), request,
                                          std::chrono::milliseconds{10'000});
    EXPECT_TRUE(answer.has_value()) << answer.error().message;
    if (!answer) return found;
    for (const auto& entry : answer->scan_answer().entries()) {
      found[entry.key()] = entry.value().integer();
    }
    return found;
  }

  test::TemporaryDirectory directory_;
  std::optional<lab::Cluster> cluster_;
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
    ASSERT_TRUE(cluster_->kill(name));
    lab::StartOptions armed;
    armed.arguments = {"--crash-at", point};
    armed.wait_until_ready = false;
    ASSERT_TRUE(cluster_->start(name, armed));
    std::thread reviver([&, victim = name] {
      EXPECT_TRUE(cluster_->wait_for_end(victim, std::chrono::seconds(60)));
      EXPECT_TRUE(cluster_->start(victim));
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
