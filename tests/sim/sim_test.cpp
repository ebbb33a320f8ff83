// The simulator itself: the same seed is the same world, and what is planted is planted nowhere
// else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/sim/planted.h"
#include "tests/sim/world.h"

namespace twofold::sim {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Simulator, TheSameSeedIsTheSameWorldStepByStep) {
  std::set<std::uint64_t> digests;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Result first = simulate(seed, true), again = simulate(seed, true);
    const Result untraced = simulate(seed, false);
    EXPECT_EQ(first.digest, again.digest);
    EXPECT_EQ(first.digest, untraced.digest);
    EXPECT_EQ(first.trace, again.trace);
    EXPECT_THAT(first.faults, testing::IsEmpty());
    EXPECT_TRUE(first.counts());
    digests.insert(first.digest);
  }
  EXPECT_EQ(digests.size(), 20u);
}

// Serialisability, on histories made by hand.
class HistoryTest : public testing::Test {
 protected:
  // A committed transaction at one participant.
  Xid transaction(std::uint64_t sequence) {
    const Xid xid{kFormatId, Gtrid{LogId{7}, 1, 2, sequence, "main"}.encode(),
                  Bqual{0, "payments"}.encode()};
    history_.started(xid);
    return xid;
  }
  void commit(const Xid& xid, std::initializer_list<const char*> writes) {
    history_.prepared(xid);
    history_.voted(xid, true, false);
    history_.logged(
        CommitRecord{Gtrid::decode(xid.gtrid)->txn_id(), xid.gtrid, {{xid, 1}}, {"", 0}});
    history_.commits(xid, false);
    for (const char* key : writes) {
      history_.applied("payments", key, history_.writer(xid.gtrid));
    }
    history_.committed(xid);
  }
  void read(const Xid& reader, const char* key, Writer version) {
    history_.read(reader, std::string("payments/") + key, version);
  }
  Writer writer(const Xid& xid) { return history_.writer(xid.gtrid); }

  History history_;
};

TEST_F(HistoryTest, InTurnIsSerialisable) {
  const Xid first = transaction(1), second = transaction(2);
  read(first, "a", 0);
  commit(first, {"a"});
  read(second, "a", writer(first));
  commit(second, {"a", "b"});
  history_.judge();
  EXPECT_THAT(history_.faults(), testing::IsEmpty());
}

TEST_F(HistoryTest, ALostUpdateIsFound) {
  const Xid first = transaction(1), second = transaction(2);
  read(first, "a", 0);
  read(second, "a", 0);
  commit(first, {"a"});
  commit(second, {"a"});
  history_.judge();
  EXPECT_THAT(history_.faults(), testing::ElementsAre(testing::HasSubstr("not serialisable")));
}

TEST_F(HistoryTest, WriteSkewIsFound) {
  const Xid first = transaction(1), second = transaction(2);
  read(first, "a", 0);
  read(second, "b", 0);
  commit(first, {"b"});
  commit(second, {"a"});
  history_.judge();
  EXPECT_THAT(history_.faults(), testing::ElementsAre(testing::HasSubstr("not serialisable")));
}

TEST_F(HistoryTest, AReadOfWhatWasNeverCommittedIsFound) {
  const Xid first = transaction(1), second = transaction(2);
  read(second, "a", writer(first));
  commit(second, {"b"});
  history_.judge();
  EXPECT_THAT(history_.faults(), testing::ElementsAre(testing::HasSubstr("that is gone")));
}

// ---- planted bugs -------------------------------------------------------------------------------

TEST(PlantedBugs, AreThoseThatTheCoresHave) {
  std::set<std::string> in_cores, listed;
  const std::regex planted(R"re(TWOFOLD_PLANTED\((\w+)\)|planted\("(\w+)"\))re");
  for (const char* core : {"coordinator/core", "resource_manager/core"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(TWOFOLD_SOURCE_DIR) / core)) {
      const std::string text = read_file(entry.path());
      for (std::sregex_iterator at(text.begin(), text.end(), planted), end; at != end; ++at) {
        in_cores.insert((*at)[1].matched ? (*at)[1].str() : (*at)[2].str());
      }
    }
  }
  for (const PlantedBug& bug : planted_bugs()) listed.emplace(bug.name);
  EXPECT_EQ(in_cores, listed);
  EXPECT_GE(listed.size(), 20u);
}

TEST(PlantedBugs, AreInNoProgramThatIsShipped) {
  const std::filesystem::path programs(TWOFOLD_BIN_DIR);
  const auto carries = [](const std::filesystem::path& program, std::string_view bug) {
    return read_file(program).find(bug) != std::string::npos;
  };
  const auto planted = programs.parent_path() / "tests" / "twofold-sim-planted";
  for (const PlantedBug& bug : planted_bugs()) {
    EXPECT_TRUE(carries(planted, bug.name)) << bug.name;
  }
  for (const char* program : {"twofold-coordinator", "twofold-rm", "twofold", "twofold-sim"}) {
    const std::string text = read_file(programs / program);
    ASSERT_FALSE(text.empty()) << program;
    for (const PlantedBug& bug : planted_bugs()) {
      EXPECT_EQ(text.find(bug.name), std::string::npos) << program << " has " << bug.name;
    }
  }
}

}  // namespace
}  // namespace twofold::sim
