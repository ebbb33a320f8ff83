// What a person is told when it does not go as asked: heuristic ends, participants that are away or
// barred, files that cannot be read.
#include <gmock/gmock.h>

#include <vector>

#include "tests/cli/cli_test.h"

namespace twofold {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliOutcomesTest : public CliTest {
 protected:
  std::filesystem::path lines(const std::string& text) {
    std::ofstream(folder_ / "lines") << text << "\n";
    return folder_ / "lines";
  }
  static std::string in_both(const std::string& key) {
    return R"({"request_id":")" + key + R"(","branches":[)" +
           R"({"rm":"payments","work":[{"op":"put","key":")" + key + R"(","value":1}]},)" +
           R"({"rm":"orders","work":[{"op":"put","key":")" + key + R"(","value":1}]}]})";
  }
  // Another store, empty, takes the place of the one that payments had.
  void replace_payments() {
    std::filesystem::rename(data_ / "payments", data_ / "payments.lost");
    ASSERT_EQ(run("start payments @").status, 0);
  }
  // Payments dies of its commit, and comes back without what it had promised. What was decided for
  // it ends as a heuristic hazard when the operator says that it is lost (rule 16).
  void lose_payments() {
    replace_payments();
    auto cluster = lab::Cluster::open(data_, TWOFOLD_BIN_DIR);
    ASSERT_TRUE(cluster);
    ASSERT_TRUE(cluster->kill("coordinator"));
    lab::StartOptions start;
    start.arguments = {"--accept-store", "payments"};
    const auto started = cluster->start("coordinator", start);
    ASSERT_TRUE(started) << started.error().message;
  }
  void let_payments_die_of_a_commit() {
    ASSERT_EQ(run("kill payments @").status, 0);
    ASSERT_EQ(run("start payments @ --crash-at before:Commit").status, 0);
  }
};

TEST_F(CliOutcomesTest, SubmitTellsAHeuristicEndThatComesToLightLater) {
  start_up();
  let_payments_die_of_a_commit();
  const auto out = folder_ / "client.out";
  auto follower = lab::LogFollower::open(out);
  ASSERT_TRUE(follower) << follower.error().message;
  auto client = lab::spawn(TWOFOLD_BIN_DIR "/twofold",
                           {"submit", lines(in_both("a")).string(), "--data", data_.string(),
                            "--output", (folder_ / "results").string()},
                           out);
  ASSERT_TRUE(client) << client.error().message;
  ASSERT_TRUE(follower->wait_for_line("all are decided; 1 transaction waits", *client, 60s))
      << follower->text();
  lose_payments();
  ASSERT_TRUE(client->wait_for_end(60s)) << follower->text();
  EXPECT_EQ(client->reap(), "exit status 1");
  const std::string told = read_file(out);
  EXPECT_THAT(told, HasSubstr("committed, but a branch ended otherwise (heuristic)"));
  EXPECT_THAT(told, HasSubstr("of these heuristic      1"));
  EXPECT_THAT(told, HasSubstr("1 transaction has ended heuristically"));
  std::vector<json::object> results;
  std::ifstream file(folder_ / "results");
  for (std::string line; std::getline(file, line);)
    results.push_back(json::parse(line).as_object());
  ASSERT_EQ(results.size(), 2U);
  EXPECT_FALSE(results[0].contains("heuristic"));
  EXPECT_EQ(results[1].at("heuristic"), true);
  EXPECT_EQ(results[1].at("line"), 1);
  EXPECT_EQ(results[1].at("outcome"), "committed");

  // Submitted once more, it is told with the reply, and in one line.
  const Ran again = run("submit " + lines(in_both("a")).string() + " --json --output - @");
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(std::count(again.out.begin(), again.out.end(), '\n'), 2) << again.out;
  EXPECT_THAT(again.out, HasSubstr("\"heuristic\":true"));
  EXPECT_THAT(again.out, HasSubstr("\"heuristic\":1"));
  EXPECT_THAT(run("list --all @").out, HasSubstr("(HEURISTIC)"));
}

TEST_F(CliOutcomesTest, CommitByHandTellsAHeuristicEnd) {
  start_up();
  const Ran begun = run("begin @");
  const std::string id = begun.out.substr(0, begun.out.find('\n'));
  let_payments_die_of_a_commit();
  for (const char* rm : {"payments", "orders"}) {
    Ran worked;
    for (int i = 0; i < 100; ++i) {  // until the link is up
      worked = run("work " + id + " " + rm + R"( '{"op":"put","key":"a","value":1}' @)");
      if (worked.status == 0) break;
    }
    ASSERT_EQ(worked.status, 0) << worked.err;
  }
  EXPECT_EQ(run("commit " + id + " @").status, 0);  // decided; nothing else is known yet
  lose_payments();
  const Ran told = run("commit " + id + " --wait @");
  EXPECT_EQ(told.status, 1);
  EXPECT_THAT(told.out, HasSubstr(id + " committed"));
  EXPECT_THAT(told.err, HasSubstr("a branch ended otherwise (heuristic): see twofold show " + id));
}

// It is tried again and again meanwhile, and would go on without a word.
TEST_F(CliOutcomesTest, WhyOrdersAreTriedAgainIsToldOnce) {
  start_up();
  ASSERT_EQ(run("kill payments @").status, 0);
  replace_payments();
  for (int i = 0; i < 1000; ++i) {
    if (run("stats coordinator @").out.find("barred") != std::string::npos) break;
  }
  const Ran ran = run("submit " + lines(in_both("a") + "\n" + in_both("b")).string() +
                      " --retries 3 --output /dev/null @");
  EXPECT_EQ(ran.status, 0) << ran.err;
  const std::string why = "trying again, at most 3 times each: payments answers with another store";
  EXPECT_THAT(ran.err, HasSubstr(why));
  EXPECT_EQ(ran.err.find(why, ran.err.find(why) + 1), std::string::npos) << ran.err;

  const Ran enlisted =
      run("enlist $(" TWOFOLD_BIN_DIR "/twofold begin @) payments --data " + data_.string());
  EXPECT_EQ(enlisted.status, 1);
  EXPECT_THAT(enlisted.err, HasSubstr("no branch was begun there; the transaction goes on"));
}

TEST_F(CliOutcomesTest, AFileIsOpenedBeforeAnythingIsSaid) {
  start_up();
  for (const char* command : {"submit", "order"}) {
    const Ran missing = run(std::string(command) + " " + (folder_ / "none").string() + " @");
    EXPECT_EQ(missing.status, 1);
    EXPECT_THAT(missing.err, HasSubstr("cannot read"));
    EXPECT_THAT(missing.err, Not(HasSubstr("run ")));
    const Ran unwritable = run(std::string(command) + " /dev/null --output " +
                               (folder_ / "none" / "out").string() + " @");
    EXPECT_EQ(unwritable.status, 1);
    EXPECT_THAT(unwritable.err, HasSubstr("cannot write"));
    EXPECT_THAT(unwritable.err, Not(HasSubstr("run ")));
  }
}

TEST_F(CliOutcomesTest, InDoubtNamesWhoHasNothing) {
  start_up();
  ASSERT_EQ(run("kill kitchen @").status, 0);
  const Ran told = run("in-doubt @");
  EXPECT_EQ(told.status, 1);
  EXPECT_THAT(told.err, HasSubstr("kitchen: cannot connect"));
  EXPECT_EQ(told.out, "nothing is in doubt at orders, payments, dispatch\n");
}

}  // namespace
}  // namespace twofold
