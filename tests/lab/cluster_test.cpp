#include "lab/cluster/cluster.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "lab/cluster/state.h"

namespace twofold::lab {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class ClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cluster-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::canonical(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ClusterOptions options() const {
    ClusterOptions options;
    options.directory = folder_;
    options.programs = TWOFOLD_BIN_DIR;
    options.kill_at_end = true;
    return options;
  }
  // One coordinator and one participant: quick to start.
  ClusterOptions small() {
    const auto file = folder_ / "given.toml";
    std::ofstream(file) << "[coordinator]\nlisten = \"127.0.0.1:0\"\n\n"
                           "[[resource_manager]]\nname = \"payments\"\naddress = \"127.0.0.1:0\"\n";
    auto made = options();
    made.configuration = file;
    return made;
  }
  Result<Cluster> make(const ClusterOptions& options) { return Cluster::create(options); }

  std::filesystem::path folder_;
};

TEST_F(ClusterTest, LaysOutADirectory) {
  auto cluster = make(options());
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_THAT(cluster->names(),
              ElementsAre("coordinator", "orders", "payments", "dispatch", "kitchen"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "coordinator" / "log"));
  std::set<std::string> addresses;
  const ClusterState state = cluster->state().value();
  for (const auto& member : state.members) {
    EXPECT_FALSE(is_alive(member.process));
    EXPECT_FALSE(member.address.ends_with(":0")) << member.address;
    addresses.insert(member.address);
  }
  EXPECT_EQ(addresses.size(), 5U);

  // The ports stay when it is opened again, and the paths are relative: the directory may move.
  auto again = Cluster::create(options());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->state()->members, cluster->state()->members);
  std::ifstream file(folder_ / "twofold.toml");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, testing::Not(HasSubstr(folder_.string())));
}

TEST_F(ClusterTest, BasePortNumbersThemAll) {
  auto made = options();
  made.base_port = 17'400;
  auto cluster = make(made);
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->address("coordinator")->port, 17'400);
  EXPECT_EQ(cluster->address("kitchen")->port, 17'404);
  for (const std::int64_t out_of_range : {-1, 65'532, 70'000}) {
    made.base_port = out_of_range;
    EXPECT_THAT(
        Cluster::create(made).error().message,
        HasSubstr("--base-port " + std::to_string(out_of_range) + ": choose one from 1 to 65531"));
  }
}

TEST_F(ClusterTest, AMissingLogIsNotMadeAnew) {
  ASSERT_TRUE(make(options()));
  std::filesystem::remove_all(folder_ / "coordinator" / "log");
  const auto again = Cluster::create(options());
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("is missing"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "coordinator" / "log"));
}

// Only the log that a system has run with can end what its participants hold.
TEST_F(ClusterTest, AnotherLogIsNotTakenForTheOneThatIsThere) {
  ASSERT_TRUE(make(small()));
  const auto log = folder_ / "coordinator" / "log";
  const auto other = folder_ / "another-log";
  std::string text;
  {
    std::ifstream file(folder_ / "given.toml");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto configure = [&](const std::filesystem::path& named) {
    std::string changed = text;
    changed.insert(text.find("listen"), "log = \"" + named.string() + "\"\n");
    std::ofstream(folder_ / "given.toml") << changed;
    auto made = options();
    made.configuration = folder_ / "given.toml";
    return made;
  };
  const auto refused = Cluster::create(configure(other));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("and this system has run with " + log.string()));
  EXPECT_TRUE(Cluster::create(configure(folder_ / "coordinator" / "." / "log")));
  std::filesystem::rename(log, other);  // moved
  const auto moved = Cluster::create(configure(other));
  EXPECT_TRUE(moved) << moved.error().message;
}

// The coordinator is asked about every log that is there, also in a directory that is new.
TEST_F(ClusterTest, ALogOfAnotherNodeIsNoticedBeforeAnythingIsLaidOut) {
  ASSERT_TRUE(make(small()));
  auto elsewhere = options();
  elsewhere.directory = folder_ / "new";
  elsewhere.configuration = folder_ / "other.toml";
  std::ofstream(elsewhere.configuration)
      << "[coordinator]\nnode = \"other\"\nlog = \"" << (folder_ / "coordinator" / "log").string()
      << "\"\nlisten = \"127.0.0.1:0\"\n[[resource_manager]]\nname = \"payments\"\n"
         "address = \"127.0.0.1:0\"\n";
  const auto refused = make(elsewhere);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("belongs to the node \"main\""));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new" / "twofold.toml"));
}

TEST_F(ClusterTest, OpenWantsWhatUpHasMade) {
  const auto opened = Cluster::open(folder_);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("twofold up --data"));
  std::ofstream(folder_ / "cluster.json") << "{}";
  EXPECT_EQ(Cluster::open(folder_).error().fault, Fault::damaged);
}

TEST_F(ClusterTest, StartsKillsAndStartsAgain) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  const auto started = cluster->start_all();
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_TRUE(cluster->is_running("payments"));
  EXPECT_TRUE(cluster->is_running("coordinator"));
  EXPECT_THAT(cluster->start("payments").error().message, HasSubstr("already running"));
  EXPECT_THAT(cluster->start("nobody").error().message, HasSubstr("coordinator, payments"));

  const auto killed = cluster->kill("payments");
  ASSERT_TRUE(killed) << killed.error().message;
  EXPECT_FALSE(cluster->is_running("payments"));
  EXPECT_TRUE(cluster->wait_for_end("payments", 0ms));
  EXPECT_THAT(cluster->kill("payments").error().message, HasSubstr("does not run"));
  const auto address = cluster->address("payments");
  const auto restarted = cluster->start("payments");
  ASSERT_TRUE(restarted) << restarted.error().message;
  EXPECT_EQ(cluster->address("payments")->port, address->port);
  EXPECT_NE(cluster->state()->find("payments")->process, *killed);

  EXPECT_THAT(cluster->stop_all(), ElementsAre());  // nobody had to be killed
  EXPECT_TRUE(cluster->state()->running().empty());
}

TEST_F(ClusterTest, AProcessThatCannotStartLeavesItsLastWords) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  StartOptions wrong;
  wrong.arguments = {"--no-such-option"};
  const auto started = cluster->start("payments", wrong);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().fault, Fault::closed);
  EXPECT_THAT(started.error().message, HasSubstr("no-such-option"));
  EXPECT_FALSE(cluster->is_running("payments"));
}

TEST_F(ClusterTest, ClaimIsForOneAtATime) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->claim());
  const auto again = Cluster::create(small());
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("pid " + std::to_string(::getpid())));
  EXPECT_THAT(again.error().message, HasSubstr("twofold down --data"));
}

TEST_F(ClusterTest, LeftoversOfAnUpThatWasKilledAreNamed) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->start("payments"));
  // The up that watched it is a process that has ended.
  auto state = *cluster->state();
  state.up = {::getpid(), 1};
  ASSERT_TRUE(write_cluster_state(folder_, state));
  const auto pid = state.find("payments")->process.pid;
  const auto again = Cluster::create(small());
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("payments (pid " + std::to_string(pid) + ")"));
  EXPECT_THAT(again.error().message, HasSubstr("is gone"));
  auto opened = Cluster::open(folder_, TWOFOLD_BIN_DIR);
  ASSERT_TRUE(opened) << opened.error().message;
  opened->stop_all();
  EXPECT_TRUE(Cluster::create(small()));
}

TEST_F(ClusterTest, AReusedPidIsNeverKilled) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  auto state = *cluster->state();
  const_cast<Member*>(state.find("payments"))->process = {::getpid(), 1};  // somebody else's: ours
  ASSERT_TRUE(write_cluster_state(folder_, state));
  EXPECT_FALSE(cluster->is_running("payments"));
  EXPECT_EQ(cluster->kill("payments").error().fault, Fault::not_found);
  EXPECT_TRUE(cluster->stop_all().empty());
}

// An up that was killed between starting a process and noting its pid.
TEST_F(ClusterTest, AProcessWithoutAPidOnRecordIsFound) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->start("payments"));
  auto state = *cluster->state();
  auto* member = const_cast<Member*>(state.find("payments"));
  const ProcessId started = std::exchange(member->process, {});
  ASSERT_TRUE(write_cluster_state(folder_, state));
  EXPECT_EQ(cluster->state().value().find("payments")->process, started);
  ASSERT_TRUE(cluster->kill("payments"));
  EXPECT_FALSE(is_alive(started));
}

TEST(ReservedPorts, AreDistinctAndOutsideTheOutgoingRange) {
  const auto ports = ReservedPort::find(20);
  ASSERT_TRUE(ports) << ports.error().message;
  std::set<std::uint16_t> numbers;
  for (const ReservedPort& port : *ports) numbers.insert(port.number());
  EXPECT_EQ(numbers.size(), 20U);
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint16_t low = 0;
  ASSERT_TRUE(range >> low);
  for (const auto port : numbers) EXPECT_LT(port, std::max<std::uint16_t>(low, 32'768));
}

// Another system that looks for ports while a process of this one is down must not get its port.
TEST_F(ClusterTest, ItsPortsAreItsOwnWhileAProcessIsDown) {
  auto cluster = make(small());
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_TRUE(cluster->start("payments"));
  ASSERT_TRUE(cluster->kill("payments"));
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(cluster->address("payments").value().port);
  EXPECT_NE(::bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(other);
  EXPECT_TRUE(cluster->start("payments"));
}

}  // namespace
}  // namespace twofold::lab
