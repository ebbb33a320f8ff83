// The files kind as an adapter, on a real disk: what it is asked for, what a later process finds,
// and what it makes of data that a crash left half done.
#include "resource_manager/adapters/files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <fstream>
#include <set>

#include "resource_manager/adapters/files_disk.h"
#include "resource_manager/adapters/files_io.h"
#include "tests/log/small_disk.h"
#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/test_host.h"

namespace twofold::resource_manager {
namespace {

namespace fs = std::filesystem;
using RunWork = Run;  // in a test, Run is Google Test's
using Published = std::map<std::string, std::string>;

constexpr LogId kLog{0xa1};

Xid make_xid(std::uint64_t sequence) {
  Xid xid;
  xid.gtrid = Gtrid{kLog, 3, 77, sequence, "main"}.encode();
  xid.bqual = Bqual{0, "invoices"}.encode();
  return xid;
}
Operation publish(std::string path, std::string content) {
  return {"publish", {{"path", Value{std::move(path)}}, {"content", Value{std::move(content)}}}};
}
Operation remove(std::string path) {
  return {"remove", {{"path", Value{std::move(path)}}}};
}
std::string read_whole(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    options_.directory = directory_.path() / "data";
    options_.pool.full_retry = std::chrono::milliseconds(1);
  }
  ~FilesTest() override { close(); }

  void open() {
    Result<std::unique_ptr<Adapter>> opened = open_files(options_);
    ASSERT_TRUE(opened) << opened.error().message;
    adapter_ = std::move(*opened);
    host_ = std::make_unique<TestHost>();
    recovered_ = adapter_->recover(Time(std::chrono::hours(1)));
    adapter_->attach(*host_);
  }
  void close() {
    if (adapter_) adapter_->stop();
    adapter_.reset();
    host_.reset();
  }
  void reopen() {
    close();
    open();
  }
  std::string open_fault() {
    const auto opened = open_files(options_);
    return opened ? "opened" : opened.error().message;
  }

  Ran run(BranchId branch, const Work& work) {
    adapter_->run(RunWork{branch, make_xid(branch), encode_work(work)});
    adapter_->flush();
    return host_->next_of<Ran>();
  }
  bool persisted() {
    adapter_->flush();
    return std::holds_alternative<Persisted>(host_->next());
  }
  void ask_prepare(BranchId branch) {
    adapter_->persist(PersistPrepare{branch * 4,
                                     branch,
                                     make_xid(branch),
                                     {{"a b", LockMode::exclusive}, {"/", LockMode::shared}}});
  }
  bool prepare(BranchId branch, const Work& work) {
    EXPECT_EQ(run(branch, work).code, Xa::ok);
    ask_prepare(branch);
    return persisted();
  }
  void ask_commit(BranchId branch, bool one_phase = false) {
    adapter_->persist(PersistCommit{branch * 4 + 1, branch, make_xid(branch), one_phase});
  }
  bool commit(BranchId branch, bool one_phase = false) {
    ask_commit(branch, one_phase);
    return persisted();
  }
  void commit_at_once(BranchId branch, const Work& work) {
    EXPECT_EQ(run(branch, work).code, Xa::ok);
    EXPECT_TRUE(commit(branch, true));
  }
  Evidence evidence(BranchId branch) {
    std::optional<Evidence> found;
    adapter_->evidence(make_xid(branch), [&](Evidence told) { found = told; });
    host_->run_until([&] { return found.has_value(); });
    return *found;
  }
  wire::ScanAnswer scan(const std::string& prefix = "", std::uint64_t bytes_max = 1u << 20) {
    wire::Scan question;
    question.set_prefix(prefix);
    std::optional<wire::ScanAnswer> answer;
    adapter_->scan(question, bytes_max, [&](const auto& told) { answer = told.value(); });
    adapter_->flush();
    host_->run_until([&] { return answer.has_value(); });
    return *answer;
  }

  Published published() const {
    Published found;
    for (const auto& entry : fs::recursive_directory_iterator(options_.directory / "files")) {
      if (!entry.is_regular_file()) continue;
      found[entry.path().lexically_relative(options_.directory / "files").string()] =
          read_whole(entry.path());
    }
    return found;
  }
  std::size_t count(const char* folder) const {
    const auto entries = fs::directory_iterator(options_.directory / folder);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }
  fs::path staging_of(BranchId branch) const {
    return options_.directory / "staging" / to_text(make_xid(branch));
  }

  test::TemporaryDirectory directory_;
  FilesOptions options_;
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<Adapter> adapter_;
  Recovered recovered_;
};

// ---- branches -----------------------------------------------------------------------------------

TEST_F(FilesTest, FilesAppearWithTheCommit) {
  open();
  EXPECT_TRUE(prepare(1, {publish("a/b/c.txt", "one"), publish("d", "")}));
  EXPECT_EQ(published(), Published{});
  EXPECT_EQ(evidence(1), Evidence::none);
  EXPECT_TRUE(commit(1));
  EXPECT_EQ(published(), (Published{{"a/b/c.txt", "one"}, {"d", ""}}));
  EXPECT_EQ(evidence(1), Evidence::committed);
  EXPECT_EQ(count("staging"), 0u);
}

TEST_F(FilesTest, RolledBackOrDiscardedNothingIsLeft) {
  options_.pool.threads =
      1;  // so that the discarding is over when the branch's number is used again
  open();
  EXPECT_TRUE(prepare(1, {publish("a", "one")}));
  adapter_->persist(PersistRollback{6, 1, make_xid(1)});
  EXPECT_TRUE(persisted());
  EXPECT_TRUE(run(2, {publish("b", "two")}).wrote);
  adapter_->discard(Discard{2});
  EXPECT_FALSE(run(2, {}).wrote);
  EXPECT_EQ(published(), Published{});
  EXPECT_EQ(count("staging"), 0u);
  EXPECT_EQ(count("outcomes"), 0u);
}

TEST_F(FilesTest, RemovedFilesTakeTheirEmptyFoldersAlong) {
  open();
  commit_at_once(1, {publish("a/b/c", "1"), publish("a/b/d", "2"), publish("a/e", "3")});
  commit_at_once(2, {remove("a/b/c")});
  EXPECT_EQ(published(), (Published{{"a/b/d", "2"}, {"a/e", "3"}}));
  commit_at_once(3, {remove("a/b/d")});
  EXPECT_FALSE(fs::exists(options_.directory / "files/a/b"));
  commit_at_once(4, {publish("a/b", "a file now"), remove("a/e")});
  commit_at_once(5, {remove("a/b"), publish("a/b/c/d", "a folder again")});
  EXPECT_EQ(published(), (Published{{"a/b/c/d", "a folder again"}}));
}

TEST_F(FilesTest, WorkSaysWhetherItWroteAndWhetherItFrees) {
  open();
  commit_at_once(1, {publish("a", "1"), publish("b", "1")});
  Ran ran = run(2, {{"get", {{"path", Value{"a"}}}}});
  EXPECT_EQ(decode_results(ran.results).value(), (Results{Value{"1"}}));
  EXPECT_FALSE(ran.wrote);
  ran = run(3, {remove("a")});
  EXPECT_TRUE(ran.wrote && ran.frees);
  ran = run(3, {publish("c", "")});
  EXPECT_TRUE(ran.wrote && !ran.frees);
  ran = run(4, {publish("b", "")});
  EXPECT_EQ(ran.code, Xa::rbintegrity);
  EXPECT_EQ(ran.refusals.size(), 1u);
}

TEST_F(FilesTest, AScanShowsSizes) {
  open();
  commit_at_once(1, {publish("a/x", "12"), publish("a-b", "1"), publish("b", "")});
  EXPECT_TRUE(prepare(2, {publish("c", "")}));
  const wire::ScanAnswer all = scan();
  ASSERT_EQ(all.entries_size(), 3);
  EXPECT_EQ(all.entries(0).key(), "a-b");  // by bytes, whatever the folders
  EXPECT_EQ(all.entries(1).key(), "a/x");
  EXPECT_EQ(all.entries(1).value().integer(), 2);
  EXPECT_EQ(all.prepared(), 1u);
  EXPECT_EQ(scan("a/").entries_size(), 1);
  EXPECT_EQ(scan("none/at/all").entries_size(), 0);
  EXPECT_EQ(scan("b/below-a-file").entries_size(), 0);
  EXPECT_TRUE(scan("", 30).truncated());
}

// ---- a later process ----------------------------------------------------------------------------

TEST_F(FilesTest, ALaterProcessFindsWhatIsInDoubt) {
  open();
  const std::uint64_t store_id = adapter_->store_id();
  EXPECT_TRUE(prepare(1, {publish("a", "one")}));
  EXPECT_TRUE(prepare(2, {publish("b", "two")}));
  run(3, {publish("c", "three")});
  reopen();
  EXPECT_EQ(adapter_->store_id(), store_id);
  ASSERT_EQ(recovered_.prepared.size(), 2u);
  EXPECT_EQ(recovered_.prepared[0].xid, make_xid(1));
  EXPECT_EQ(recovered_.prepared[0].locks,
            (std::vector<LockRequest>{{"a b", LockMode::exclusive}, {"/", LockMode::shared}}));
  EXPECT_LE(recovered_.prepared[0].since, Time(std::chrono::hours(1)));
  EXPECT_GT(recovered_.prepared[0].since, Time(std::chrono::minutes(50)));
  EXPECT_EQ(scan().prepared(), 2u);
  EXPECT_TRUE(commit(1));
  adapter_->persist(PersistRollback{10, 2, make_xid(2)});
  EXPECT_TRUE(persisted());
  reopen();
  EXPECT_TRUE(recovered_.prepared.empty());
  EXPECT_EQ(scan().prepared(), 0u);
  EXPECT_EQ(published(), (Published{{"a", "one"}}));
  EXPECT_EQ(evidence(1), Evidence::committed);
  EXPECT_EQ(evidence(2), Evidence::none);
}

TEST_F(FilesTest, NodesAndTheirMarks) {
  open();
  const NodeRecord node{"main/../x", kLog, 3, ~std::uint64_t{0}, {}};
  adapter_->persist(PersistNode{3, node, true, false});
  EXPECT_TRUE(persisted());
  for (BranchId branch = 1; branch <= 3; ++branch) {
    commit_at_once(branch, {publish(std::to_string(branch), "")});
  }
  NodeRecord marked = node;
  marked.low_water = {3, 3};
  adapter_->persist(PersistNode{7, marked, false, true});
  EXPECT_TRUE(persisted());
  EXPECT_EQ(count("outcomes"), 3u);  // of another node: "main"
  marked.node = "main";
  marked.former = {{LogId{8}, {1, 2}}, {LogId{9}, {}}};  // restored since
  adapter_->persist(PersistNode{11, marked, false, true});
  EXPECT_TRUE(persisted());
  EXPECT_EQ(evidence(2), Evidence::none);
  EXPECT_EQ(evidence(3), Evidence::committed);
  reopen();
  NodeRecord other = marked;
  other.node = node.node;
  other.former.clear();
  EXPECT_TRUE(std::is_permutation(recovered_.nodes.begin(), recovered_.nodes.end(),
                                  std::vector<NodeRecord>{marked, other}.begin()));
  EXPECT_EQ(recovered_.nodes.size(), 2u);
}

// ---- what a crash leaves half done --------------------------------------------------------------

// A branch that publishes a and f/g, and removes r, staged; the crash came before `steps` + 1 of
// its commit's steps.
class HalfCommitted : public FilesTest, public ::testing::WithParamInterface<int> {
 protected:
  void commit_half(int steps) {
    const fs::path staging = staging_of(2), files = options_.directory / "files";
    const std::function<void()> all[] = {
        [&] {
          fs::rename(staging / "outcome", options_.directory / "outcomes" / staging.filename());
        },
        [&] { fs::remove(files / "r"); },
        [&] { fs::rename(staging / "0", files / "a"); },
        [&] { fs::create_directory(files / "f"); },
        [&] { fs::rename(staging / "1", files / "f/g"); },
    };
    for (int step = 0; step < steps; ++step) all[step]();
  }
};

TEST_P(HalfCommitted, IsFinishedAtTheNextStart) {
  open();
  commit_at_once(1, {publish("r", "old"), publish("s", "stays")});
  EXPECT_TRUE(prepare(2, {publish("a", "new"), publish("f/g", "new"), remove("r")}));
  close();
  commit_half(GetParam());
  open();
  if (GetParam() == 0) {  // nothing had happened: it is in doubt
    EXPECT_EQ(recovered_.prepared.size(), 1u);
    EXPECT_TRUE(commit(2));
  }
  reopen();
  EXPECT_TRUE(recovered_.prepared.empty());
  EXPECT_EQ(published(), (Published{{"a", "new"}, {"f/g", "new"}, {"s", "stays"}}));
  EXPECT_EQ(count("staging"), 0u);
  EXPECT_EQ(evidence(2), Evidence::committed);
}

INSTANTIATE_TEST_SUITE_P(Steps, HalfCommitted, ::testing::Range(0, 6));

TEST_F(FilesTest, WhatWasHalfPreparedIsRemoved) {
  open();
  EXPECT_TRUE(prepare(1, {publish("a", "one")}));
  close();
  fs::remove(staging_of(1) / "manifest");
  open();
  EXPECT_TRUE(recovered_.prepared.empty());
  EXPECT_EQ(count("staging"), 0u);
  EXPECT_EQ(published(), Published{});
}

// It never votes, so without its outcome it never was.
TEST_F(FilesTest, AHalfOnePhaseCommitNeverWas) {
  for (const bool outcome : {false, true}) {
    {
      auto disk = files::Disk::open(options_.directory).value();
      files::Manifest manifest;
      manifest.one_phase = true;
      manifest.publish = {"a"};
      EXPECT_EQ(disk->stage(make_xid(1), manifest, {{"a", "one"}}, 0), Written::durable);
    }
    if (outcome) {
      fs::rename(staging_of(1) / "outcome", options_.directory / "outcomes" / to_text(make_xid(1)));
    }
    open();
    EXPECT_TRUE(recovered_.prepared.empty());
    EXPECT_EQ(count("staging"), 0u);
    EXPECT_EQ(published(), outcome ? (Published{{"a", "one"}}) : Published{});
    close();
  }
}

TEST_F(FilesTest, DamagedDataKeepsItFromStarting) {
  open();
  EXPECT_TRUE(prepare(1, {publish("a", "one")}));
  close();
  const fs::path manifest = staging_of(1) / "manifest";
  const std::string whole = read_whole(manifest);
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), "twofold branch 2" + whole.substr(16)}) {
    std::ofstream(manifest) << text;
    auto opened = open_files(options_);
    ASSERT_TRUE(opened);
    EXPECT_THROW((*opened)->recover(Time{}), std::runtime_error);
  }
  std::ofstream(manifest) << whole;
  open();
  EXPECT_EQ(recovered_.prepared.size(), 1u);
}

// ---- making and opening -------------------------------------------------------------------------

TEST_F(FilesTest, OnlyAnEmptyDirectoryBecomesData) {
  fs::create_directories(options_.directory);
  std::ofstream(options_.directory / "letter.txt") << "mine";
  EXPECT_NE(open_fault().find("holds other files"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.directory), {}), 1);
  fs::remove(options_.directory / "letter.txt");
  fs::create_directory(options_.directory / "staging");  // an interrupted creation
  open();
}

TEST_F(FilesTest, ASecondProcessIsKeptOut) {
  open();
  EXPECT_NE(open_fault().find("is in use by process"), std::string::npos);
}

TEST_F(FilesTest, AnotherFormatIsNotOpened) {
  open();
  close();
  std::ofstream(options_.directory / "format") << "twofold files 1\n7\n";
  EXPECT_NE(open_fault().find("start the version that wrote it"), std::string::npos);
  std::ofstream(options_.directory / "format") << "twofold files 2\nx\n";
  EXPECT_NE(open_fault().find("is damaged"), std::string::npos);
}

TEST_F(FilesTest, AMissingPartIsNamed) {
  for (const char* folder : {"files", "staging", "outcomes", "nodes"}) {
    open();
    close();
    fs::rename(options_.directory / folder, options_.directory / "gone");
    EXPECT_NE(open_fault().find(std::string("/") + folder + " is missing"), std::string::npos);
    fs::rename(options_.directory / "gone", options_.directory / folder);
  }
}

TEST_F(FilesTest, StagingThatGoesWhileItRunsEndsItWithAReason) {
  EXPECT_EXIT(
      {
        open();
        run(1, {publish("a", "one")});
        fs::remove_all(options_.directory / "staging");
        ask_prepare(1);
        persisted();
      },
      ::testing::ExitedWithCode(74), "staging.*somebody removed a part of the data");
}

TEST_F(FilesTest, ABranchThatSomebodyRemovedEndsItWithAReason) {
  EXPECT_EXIT(
      {
        open();
        run(1, {publish("a", "one")});
        ask_prepare(1);
        persisted();
        fs::remove_all(options_.directory / "staging" / to_text(make_xid(1)));
        commit(1);
      },
      ::testing::ExitedWithCode(74), "put its folder back before the next start");
}

// ---- nodes --------------------------------------------------------------------------------------

class NodesTest : public FilesTest {
 protected:
  bool record(const NodeRecord& node) {
    adapter_->persist(PersistNode{++ticket_ * 4 + 3, node, true, false});
    return persisted();
  }
  static NodeRecord node(std::uint64_t epoch, std::string name = "main") {
    return {std::move(name), kLog, epoch, 77, {epoch, 1}, {}};
  }
  fs::path file(const std::string& name = "main") const {
    return options_.directory / "nodes" / base64url_encode(name);
  }
  std::vector<NodeRecord> found() {
    reopen();
    return recovered_.nodes;
  }

 private:
  std::uint64_t ticket_ = 0;
};

// Whatever a crash leaves of a write, the record before it is there; and if that was the first, the
// file was not there yet.
TEST_F(NodesTest, AWriteCutShortLeavesTheRecordBefore) {
  open();
  EXPECT_TRUE(record(node(3)));
  for (std::uint64_t epoch = 4; epoch < 8; ++epoch) {
    const std::string before = read_whole(file());
    EXPECT_TRUE(record(node(epoch)));
    close();
    const std::string after = read_whole(file());
    ASSERT_EQ(after.size(), before.size());
    const auto first = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), after.begin()).first - before.begin());
    const auto last = static_cast<std::size_t>(
        before.rend() - std::mismatch(before.rbegin(), before.rend(), after.rbegin()).first - 1);
    ASSERT_LT(first, last);
    for (const std::size_t written : {first + 1, (first + last) / 2, last}) {
      std::ofstream(file(), std::ios::binary) << after.substr(0, written) << before.substr(written);
      open();
      EXPECT_EQ(recovered_.nodes, std::vector{node(epoch - 1)}) << written;
      close();
    }
    std::ofstream(file(), std::ios::binary) << after;
    open();
    EXPECT_EQ(recovered_.nodes, std::vector{node(epoch)});
  }
  close();
  std::ofstream(file(), std::ios::binary) << std::string(8'192, 'x');
  auto opened = open_files(options_);
  ASSERT_TRUE(opened);
  EXPECT_THROW((*opened)->recover(Time{}), std::runtime_error);
}

TEST_F(NodesTest, OneWithMoreFormerLogsThanItsFileHolds) {
  open();
  NodeRecord many = node(3);
  for (std::uint64_t log = 1; log <= 500; ++log) {
    many.former.push_back({LogId{~log}, {log, log}});
    if (log % 50 != 0) continue;
    ++many.epoch;
    EXPECT_TRUE(record(many));
    EXPECT_EQ(found(), std::vector{many});
  }
  many.former.resize(1);
  EXPECT_TRUE(record(many));
  EXPECT_EQ(found(), std::vector{many});
}

// A coordinator that starts again gets its session, a new one too, and can remove something.
TEST_F(NodesTest, ADiskThatOthersHaveFilled) {
  test::SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs a small file system: run as root";
  options_.directory = disk.path() / "data";
  options_.reserve_bytes = 0;
  open();
  commit_at_once(1, {publish("a", std::string(300u << 10, 'x')), publish("b", "")});
  EXPECT_TRUE(record(node(3)));
  disk.fill();
  ASSERT_FALSE(files::has_room(disk.path(), 1));
  for (std::uint64_t epoch = 4; epoch < 40; ++epoch) EXPECT_TRUE(record(node(epoch)));
  EXPECT_TRUE(record(node(1, "another")));
  EXPECT_EQ(run(2, {publish("c", "")}).code, Xa::ok);
  ask_prepare(2);
  EXPECT_FALSE(persisted());
  EXPECT_TRUE(prepare(3, {remove("b")}));
  EXPECT_FALSE(fs::exists(options_.directory / "reserve"));
  disk.fill();  // what the reserve left
  EXPECT_TRUE(commit(3));
  EXPECT_EQ(published().count("b"), 0u);
  reopen();
  EXPECT_EQ(recovered_.nodes.size(), 2u);
  EXPECT_TRUE(record(node(40)));
  disk.free_again();
  commit_at_once(4, {remove("a")});
  EXPECT_TRUE(fs::exists(options_.directory / "reserve"));
  EXPECT_TRUE(record(node(2, "another")));
  EXPECT_TRUE(record(node(1, "a third")));
  close();
}

// ---- no room (rule 23) --------------------------------------------------------------------------

TEST_F(FilesTest, APrepareWithoutRoomIsRefusedAndLeavesNothing) {
  options_.reserve_bytes = 0;
  open();
  EXPECT_EQ(run(1, {publish("a", std::string(5'000, 'x'))}).code, Xa::ok);
  EXPECT_EQ(run(2, {publish("b", std::string(5'000, 'x'))}).code, Xa::ok);
  {
    test::FileSizeLimit limit(4'096);
    ask_prepare(1);
    EXPECT_FALSE(persisted());
    ask_commit(2, true);
    EXPECT_FALSE(persisted());
  }
  EXPECT_EQ(count("staging"), 0u);
  EXPECT_TRUE(prepare(3, {publish("c", std::string(5'000, 'x'))}));
}

TEST_F(FilesTest, AReserveIsKeptForCommits) {
  test::SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs a small file system: run as root";
  options_.directory = disk.path() / "data";
  options_.reserve_bytes = 256u << 10;
  open();
  EXPECT_TRUE(prepare(1, {publish("a", std::string(300u << 10, 'x'))}));
  EXPECT_EQ(run(2, {publish("b", std::string(500u << 10, 'x'))}).code, Xa::ok);
  ask_prepare(2);
  EXPECT_FALSE(persisted());
  EXPECT_TRUE(commit(1));
  fs::resize_file(disk.path() / "filler", disk.fill() - (64u << 10));
  EXPECT_EQ(run(4, {publish("c", "")}).code, Xa::ok);
  ask_prepare(4);
  EXPECT_FALSE(persisted());
  EXPECT_TRUE(prepare(3, {remove("a")}));  // makes room, and may use the reserve
  EXPECT_EQ(count("staging"), 1u);
}

// Where there is no inode left for its folder.
TEST_F(FilesTest, ACommitWithoutRoomIsRepeated) {
  test::SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs a small file system: run as root";
  options_.directory = disk.path() / "data";
  options_.reserve_bytes = 0;
  open();
  EXPECT_TRUE(prepare(1, {publish("deep/a", "one"), publish("b", "two")}));
  EXPECT_EQ(run(2, {publish("c", "three")}).code, Xa::ok);
  fs::remove(options_.directory / "reserve");
  struct statvfs room {};
  ASSERT_EQ(::statvfs(disk.path().c_str(), &room), 0);
  const auto inodes = [&](std::uint64_t most) {
    const std::string options = "size=1m,nr_inodes=" + std::to_string(most);
    return ::mount("tmpfs", disk.path().c_str(), "tmpfs", MS_REMOUNT, options.c_str());
  };
  ASSERT_EQ(inodes(room.f_files - room.f_ffree), 0);
  ask_commit(1);
  ask_prepare(2);
  adapter_->flush();
  EXPECT_FALSE(host_->next_of<SpaceChanged>().room);
  EXPECT_EQ(host_->next_of<Refused>().ticket, 8u);
  EXPECT_EQ(evidence(1), Evidence::committed);  // that is decided already
  ASSERT_EQ(inodes(room.f_files), 0);
  EXPECT_EQ(host_->next_of<Persisted>().ticket, 5u);
  EXPECT_TRUE(host_->next_of<SpaceChanged>().room);
  EXPECT_EQ(published(), (Published{{"b", "two"}, {"deep/a", "one"}}));
}

}  // namespace
}  // namespace twofold::resource_manager
