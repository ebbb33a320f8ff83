// The command as a person uses it: the real program against real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "lab/cluster/cluster.h"
#include "lab/workflows/generate.h"
#include "tests/cli/cli_test.h"
#include "tests/lab/order_model.h"

namespace twofold {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::int64_t> expected_totals(const lab::GeneratedOrders& shop) {
  std::map<std::string, std::int64_t> totals{{"committed", 0},       {"refused_funds", 0},
                                             {"refused_courier", 0}, {"refused_kitchen", 0},
                                             {"refused_unknown", 0}, {"refused_duplicate", 0},
                                             {"invalid", 0}};
  lab::OrderModel model(shop.world);
  for (const auto& line : shop.lines) {
    const auto order = lab::parse_order(line);
    const auto found = order ? model.run(*order) : lab::OrderClass::invalid;
    const bool whole = found == lab::OrderClass::committed || found == lab::OrderClass::invalid;
    ++totals[(whole ? "" : "refused_") + std::string(name(found))];
  }
  return totals;
}

std::map<std::string, std::int64_t> totals_in(const Ran& ran) {
  std::map<std::string, std::int64_t> totals;
  const auto value = ran.parsed();
  if (!value.is_object()) return totals;
  for (const auto& entry : value.get_object()) totals[entry.key()] = entry.value().as_int64();
  return totals;
}

TEST_F(CliTest, EveryCommandExplainsItselfWithAnExample) {
  EXPECT_EQ(run("--help").status, 0);
  for (const char* command : {"up", "down", "kill", "start", "submit", "order", "scan", "list",
                              "show", "in-doubt", "locks", "stats", "demo"}) {
    const auto help = run(std::string(command) + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("Example")) << command;
    EXPECT_THAT(help.out, HasSubstr("--json")) << command;
  }
}

TEST_F(CliTest, WrongUsageSaysWhatIsRight) {
  const auto unknown = run("bogus --data x");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no command bogus: choose one of "));
  EXPECT_THAT(unknown.err, HasSubstr("in-doubt"));
  EXPECT_THAT(unknown.err, HasSubstr("twofold --help"));
  const auto alone = run("");
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("Begin with:  twofold demo"));
  const auto option = run("submit x --bogus");
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.err, HasSubstr("See: twofold submit --help"));
  EXPECT_THAT(run("show '' @").err, HasSubstr("show which transaction?"));
  const auto ports = run("up @ --base-port 70000");
  EXPECT_EQ(ports.status, 1);
  EXPECT_THAT(ports.err, HasSubstr("from 1 to 65531"));
  EXPECT_FALSE(std::filesystem::exists(data_ / "cluster.json"));
}

TEST_F(CliTest, ErrorsSayWhatToDo) {
  const auto nowhere = run("list @");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("start one with: twofold up --data"));
  EXPECT_THAT(run("scan payments").err, HasSubstr("--rm NAME=HOST:PORT"));
  EXPECT_THAT(run("list").err, HasSubstr("--coordinator HOST:PORT"));
  EXPECT_THAT(run("scan payments --rm nonsense").err, HasSubstr("NAME=HOST:PORT"));
  const auto silent = run("submit /dev/null --coordinator 127.0.0.1:1 --give-up 1");
  EXPECT_EQ(silent.status, 1);
  EXPECT_THAT(silent.err, HasSubstr("127.0.0.1:1"));
}

TEST_F(CliTest, OrdersRunOnceAndAddUp) {
  start_up();
  make_shop(400, 11);
  const auto expected = expected_totals(shop_);
  const auto output = folder_ / "results.jsonl";
  const auto first = run(order_command("--load --output " + output.string()));
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(totals_in(first), expected);
  EXPECT_EQ(run("in-doubt --json @").out, "[]\n");

  // One result line for each line.
  std::set<std::int64_t> lines;
  std::ifstream results(output);
  for (std::string line; std::getline(results, line);) {
    lines.insert(json::parse(line).at("line").as_int64());
  }
  EXPECT_EQ(lines.size(), shop_.lines.size());

  // Resumed, the same run reports the same; another run finds duplicates where the first committed.
  const auto resumed = run(order_command("--run " + run_id(first.err)));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(totals_in(resumed), expected);
  const auto second = totals_in(run(order_command("")));
  EXPECT_EQ(second.at("committed"), 0);
  EXPECT_EQ(second.at("refused_duplicate"),
            expected.at("committed") + expected.at("refused_duplicate"));

  const auto again = run(order_command("--load"));
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("has data already"));
  EXPECT_EQ(run(order_command("--load --run " + run_id(first.err))).status, 0);

  const auto orders = run("scan orders --json @").parsed();
  EXPECT_EQ(static_cast<std::int64_t>(orders.as_array().size()), expected.at("committed"));
  EXPECT_THAT(run("scan orders --prefix order/o-1 @").out, HasSubstr("order/o-1"));
}

TEST_F(CliTest, AClientThatIsKilledIsResumed) {
  start_up();
  make_shop(1'500, 12);
  const auto err = folder_ / "client.err";
  auto follower = lab::LogFollower::open(err);
  ASSERT_TRUE(follower) << follower.error().message;
  // Results on standard output, so that the follower sees the first one come.
  auto client = lab::spawn(
      TWOFOLD_BIN_DIR "/twofold",
      {"order", (folder_ / "orders.jsonl").string(), "--world", (folder_ / "world.json").string(),
       "--load", "--data", data_.string(), "--concurrency", "4", "--output", "-"},
      err);
  ASSERT_TRUE(client) << client.error().message;
  ASSERT_TRUE(follower->wait_for_line("{\"line\":", *client, 60s)) << follower->text();
  client->signal(SIGKILL);
  ASSERT_TRUE(client->wait_for_end(10s));
  ASSERT_EQ(client->reap(), "SIGKILL");
  const auto resumed = run(order_command("--load --run " + run_id(follower->text())));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(totals_in(resumed), expected_totals(shop_));
}

TEST_F(CliTest, SubmitReportsEachLine) {
  start_up();
  const auto input = folder_ / "lines";
  std::ofstream(input)
      << R"({"request_id":"put","branches":[)"
      << R"({"rm":"payments","work":[{"op":"put","key":"a","value":5}]}]})"
      << "\n\nnot json\n"
      << R"({"branches":[{"rm":"nobody","work":[{"op":"put","key":"a","value":5}]}]})"
      << "\n";
  const auto ran = run("submit - --concurrency 1 --json --output - @", input.string());
  EXPECT_EQ(ran.status, 0) << ran.err;
  std::map<std::int64_t, json::object> results;
  json::object summary;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    auto object = json::parse(line).as_object();
    if (object.contains("line")) {
      results[object.at("line").as_int64()] = object;
    } else {
      summary = object;
    }
  }
  ASSERT_EQ(results.size(), 3U) << ran.out;
  EXPECT_EQ(results[1].at("outcome"), "committed");
  EXPECT_EQ(results[1].at("request_id"), "put");
  EXPECT_EQ(results[3].at("outcome"), "invalid");
  EXPECT_THAT(std::string(results[3].at("reason").as_string()), HasSubstr("not valid JSON"));
  EXPECT_EQ(results[4].at("outcome"), "invalid");
  EXPECT_EQ(summary.at("committed"), 1);
  EXPECT_EQ(summary.at("invalid"), 2);

  std::ofstream(input) << R"({"branches":[{"rm":"payments","work":[)"
                          R"({"op":"add","key":"a","by":-6,"min":0}]}]})";
  const auto refused = run("submit " + input.string() + " @");
  EXPECT_EQ(refused.status, 0) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("would go below min 0"));

  const auto shown = run("show put --json @");
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(shown.parsed().at("outcome"), "committed");
  EXPECT_THAT(run("show put @").out, HasSubstr("payments"));
  // Under each of its names.
  const auto id = std::string(shown.parsed().at("id").as_string());
  const auto gtrid = std::string(shown.parsed().at("gtrid").as_string());
  EXPECT_EQ(results[1].at("id"), id.c_str());
  EXPECT_EQ(run("show " + id + " @").out, run("show put @").out);
  EXPECT_EQ(run("show " + gtrid + " @").out, run("show put @").out);
  EXPECT_THAT(run("list --all @").out, HasSubstr("\n" + id + " "));
  EXPECT_EQ(run("show 1.999999 @").status, 1);

  // An address of the wrong kind is told as such.
  const auto state = lab::read_cluster_state(data_);
  const auto payments = state->find("payments")->address;
  const auto coordinator = state->find("coordinator")->address;
  EXPECT_THAT(run("list --coordinator " + payments).err,
              HasSubstr("is the resource manager payments, not a coordinator"));
  EXPECT_THAT(run("scan x --rm x=" + coordinator).err, HasSubstr("this is the coordinator"));
  EXPECT_THAT(run("scan x --rm x=" + payments).err, HasSubstr("this is resource manager payments"));
  EXPECT_THAT(run("list --all @").out, HasSubstr("put"));
  EXPECT_EQ(run("show no-such-request @").status, 1);
  for (const char* command :
       {"show \"$(printf '\\377')\" @", "scan payments --prefix \"$(printf '\\377')\" @"}) {
    const auto no_text = run(command);
    EXPECT_EQ(no_text.status, 1) << command;
    EXPECT_THAT(no_text.err, HasSubstr("not UTF-8")) << command;
  }
  EXPECT_EQ(run("list --json @").parsed(), json::array());
  EXPECT_EQ(run("locks payments --json @").parsed(), json::array());
  const auto stats = run("stats --json @").parsed();
  EXPECT_EQ(stats.as_object().size(), 5U);
  EXPECT_THAT(run("stats payments @").out, HasSubstr("committed"));
}

TEST_F(CliTest, ASignalEndsTheWaitForEnds) {
  start_up();
  // payments dies of the commit that it is told: decided, and not ended.
  ASSERT_EQ(run("kill payments @").status, 0);
  ASSERT_EQ(run("start payments @ --crash-at before:Commit").status, 0);
  const auto input = folder_ / "lines";
  std::ofstream(input)
      << R"({"branches":[{"rm":"payments","work":[{"op":"put","key":"a","value":1}]},)"
      << R"({"rm":"orders","work":[{"op":"put","key":"a","value":1}]}]})"
      << "\n";
  const auto out = folder_ / "client.out";
  auto follower = lab::LogFollower::open(out);
  ASSERT_TRUE(follower) << follower.error().message;
  auto client = lab::spawn(TWOFOLD_BIN_DIR "/twofold",
                           {"submit", input.string(), "--data", data_.string()}, out);
  ASSERT_TRUE(client) << client.error().message;
  ASSERT_TRUE(follower->wait_for_line("all are decided; 1 transaction waits for a participant",
                                      *client, 60s))
      << follower->text();
  client->signal(SIGTERM);
  ASSERT_TRUE(client->wait_for_end(20s));
  EXPECT_EQ(client->reap(), "exit status 130");
  const auto told = read_file(out);
  EXPECT_THAT(told, HasSubstr("1 transaction is decided and may not have ended everywhere"));
  EXPECT_THAT(told, testing::Not(HasSubstr("stopped before the end")));
}

TEST_F(CliTest, UpTellsOfDeathsAndStarts) {
  start_up();
  auto follower = lab::LogFollower::open(up_log());
  ASSERT_TRUE(follower) << follower.error().message;
  const auto killed = run("kill payments @");
  EXPECT_EQ(killed.status, 0) << killed.err;
  EXPECT_THAT(killed.out, HasSubstr("twofold start payments"));
  EXPECT_EQ(follower->wait_for_line("payments died", *up_, 20s),
            " (SIGKILL); start it again with: twofold start payments --data " + data_.string());
  EXPECT_EQ(run("kill payments @").status, 1);
  EXPECT_EQ(run("in-doubt @").status, 1);
  EXPECT_EQ(run("in-doubt orders @").status, 0);
  EXPECT_EQ(run("start payments @").status, 0);
  ASSERT_TRUE(follower->wait_for_line("payments runs again", *up_, 20s));
  EXPECT_EQ(run("start payments @").status, 1);
  EXPECT_EQ(run("in-doubt @").status, 0);

  // With the coordinator down the participants still answer.
  EXPECT_EQ(run("kill coordinator @").status, 0);
  EXPECT_EQ(run("scan payments @").status, 0);
  EXPECT_EQ(run("locks payments @").status, 0);
  EXPECT_EQ(run("in-doubt @").status, 0);
  EXPECT_EQ(run("list @").status, 1);
  EXPECT_EQ(run("start coordinator @").status, 0);
  EXPECT_EQ(run("list @").status, 0);

  const auto down = run("down @");
  EXPECT_EQ(down.status, 0) << down.err;
  ASSERT_TRUE(up_->wait_for_end(20s));
  EXPECT_EQ(up_->reap(), "exit status 0");
  EXPECT_TRUE(lab::read_cluster_state(data_)->running().empty());
  EXPECT_THAT(run("down @").out, HasSubstr("nothing runs"));
}

class StartedTest : public CliTest {
 protected:
  // One attempt; true: committed.
  bool submits_to(const std::string& rm) {
    const auto file = folder_ / "one.jsonl";
    std::ofstream(file) << R"({"branches": [{"rm": ")" << rm
                        << R"(", "work": [{"op": "put", "key": "k", "value": 1}]}]})" << '\n';
    const auto ran = run("submit " + file.string() + " --retries 0 --json @");
    const auto told = ran.parsed();
    return told.is_object() && told.at("committed").to_number<int>() == 1;
  }
  void lose_store_of(const std::string& rm) {
    std::filesystem::rename(data_ / rm, folder_ / ("lost-" + std::to_string(++lost_)));
  }

 private:
  int lost_ = 0;
};

// No attempt of theirs may be refused because a link is not there yet.
TEST_F(StartedTest, WhatIsStartedServesWhenStartReturns) {
  start_up();
  EXPECT_TRUE(submits_to("payments"));
  for (const char* name : {"payments", "coordinator", "payments", "coordinator"}) {
    ASSERT_EQ(run(std::string("kill ") + name + " @").status, 0);
    const auto started = run(std::string("start ") + name + " @");
    EXPECT_EQ(started.status, 0) << started.err;
    EXPECT_EQ(started.err, "");
    EXPECT_TRUE(submits_to("payments")) << name;
  }
  // With no coordinator there is nothing to wait for; one that does not run is not waited for.
  ASSERT_EQ(run("kill coordinator @").status, 0);
  ASSERT_EQ(run("kill payments @").status, 0);
  EXPECT_EQ(run("start coordinator @").err, "");
  EXPECT_TRUE(submits_to("orders"));
}

TEST_F(StartedTest, WhatIsOnlyForTheCoordinatorReachesIt) {
  start_up();
  EXPECT_TRUE(submits_to("kitchen"));
  ASSERT_EQ(run("kill kitchen @").status, 0);
  lose_store_of("kitchen");
  EXPECT_EQ(run("start kitchen @").status, 0);
  EXPECT_FALSE(submits_to("kitchen"));
  ASSERT_EQ(run("kill coordinator @").status, 0);
  EXPECT_THAT(run("start coordinator --accept-store nobody @").err,
              HasSubstr("there is no resource manager of that name"));
  EXPECT_THAT(run("start kitchen --accept-store kitchen @").err,
              HasSubstr("twofold start coordinator"));
  const auto accepted = run("start coordinator --accept-store kitchen --accept-store orders @");
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_TRUE(submits_to("kitchen"));

  ASSERT_EQ(run("down @").status, 0);
  ASSERT_TRUE(up_->wait_for_end(20s));
  lose_store_of("kitchen");
  start_up({"--accept-store", "kitchen"});
  EXPECT_TRUE(submits_to("kitchen"));

  // A backup in place of the log.
  ASSERT_EQ(run("down @").status, 0);
  ASSERT_TRUE(up_->wait_for_end(20s));
  const auto log = (data_ / "coordinator" / "log").string();
  ASSERT_EQ(std::system((TWOFOLD_BIN_DIR "/twofold-log backup " + log + " " + log + ".copy > " +
                         (folder_ / "backup").string())
                            .c_str()),
            0);
  std::filesystem::remove_all(log);
  std::filesystem::rename(log + ".copy", log);
  EXPECT_THAT(run("up @").err, HasSubstr("is marked as a backup"));
  start_up({"--restored"});
  EXPECT_TRUE(submits_to("kitchen"));
  EXPECT_EQ(run("down @").status, 0);
}

TEST_F(CliTest, LeftoversAreToldAndStopped) {
  start_up();
  EXPECT_THAT(run("up @").err, HasSubstr("is already up"));
  up_->signal(SIGKILL);
  ASSERT_TRUE(up_->wait_for_end(10s));
  up_->reap();
  const auto again = run("up @");
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("still has processes of an earlier run"));
  EXPECT_THAT(again.err, HasSubstr("twofold down --data"));
  EXPECT_EQ(run("down @").status, 0);
  EXPECT_TRUE(lab::read_cluster_state(data_)->running().empty());
  start_up();  // with the same ports and data
  EXPECT_EQ(run("down @").status, 0);
}

TEST_F(CliTest, TheDemoAddsUp) {
  const auto demo = run("demo --json --orders 400 --data " + (folder_ / "demo").string());
  ASSERT_EQ(demo.status, 0) << demo.out << demo.err;
  const auto result = demo.parsed();
  EXPECT_TRUE(result.at("adds_up").as_bool());
  EXPECT_GT(result.at("in_doubt_after_crash").to_number<int>(), 0);
  EXPECT_TRUE(lab::read_cluster_state(folder_ / "demo")->running().empty());
}

}  // namespace
}  // namespace twofold
