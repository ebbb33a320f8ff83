// The operations on files, without a disk.
#include "resource_manager/adapters/files_operations.h"

#include <gtest/gtest.h>

namespace twofold::resource_manager::files {
namespace {

Operation publish(std::string path, std::string content, std::optional<bool> replace = {}) {
  Operation operation{"publish",
                      {{"path", Value{std::move(path)}}, {"content", Value{std::move(content)}}}};
  if (replace) operation.arguments.emplace_back("replace", Value{*replace});
  return operation;
}
Operation remove(std::string path) {
  return {"remove", {{"path", Value{std::move(path)}}}};
}
Operation get(std::string path) {
  return {"get", {{"path", Value{std::move(path)}}}};
}
Operation list(std::string prefix) {
  return {"list", {{"prefix", Value{std::move(prefix)}}}};
}
Value texts(const std::vector<std::string>& paths) {
  List found;
  for (const std::string& path : paths) found.push_back(Value{path});
  return Value{found};
}

struct FakeTree final : Tree {
  std::map<std::string, std::string> files;
  bool broken = false;

  Result<std::optional<std::uint64_t>> size_of(const std::string& path) override {
    if (broken) return Error{Fault::io, "the disk is broken"};
    const auto at = files.find(path);
    if (at == files.end()) return std::optional<std::uint64_t>();
    return std::optional<std::uint64_t>(at->second.size());
  }
  Result<std::string> read(const std::string& path) override { return files.at(path); }
  Result<std::vector<std::string>> list(const std::string& prefix) override {
    std::vector<std::string> found;
    for (const auto& [path, content] : files) {
      if (path.starts_with(prefix)) found.push_back(path);
    }
    return found;
  }
};

class FilesOperations : public ::testing::Test {
 protected:
  Evaluated evaluate(const Work& work) {
    const Parsed parsed = parse(encode_work(work));
    EXPECT_TRUE(parsed.invalid.empty()) << to_text(parsed.invalid.at(0));
    return files::evaluate(parsed.operations, limits_, tree_, changes_).value();
  }
  Results results(const Work& work) {
    Evaluated evaluated = evaluate(work);
    EXPECT_TRUE(evaluated.refusals.empty()) << to_text(evaluated.refusals.at(0));
    return evaluated.results;
  }
  std::string refused(const Work& work) {
    const Evaluated evaluated = evaluate(work);
    return evaluated.refusals.size() == 1
               ? evaluated.refusals[0].check + ": " + evaluated.refusals[0].value
               : std::to_string(evaluated.refusals.size()) + " refusals";
  }
  FakeTree tree_;
  Changes changes_;
  Limits limits_;
};

// ---- parsing ------------------------------------------------------------------------------------

TEST(FilesParsing, PathsAreRelativeAndPlain) {
  const std::string wrong[] = {"",
                               "/a",
                               "a/",
                               "a//b",
                               ".",
                               "..",
                               "a/../b",
                               "./a",
                               "a\nb",
                               std::string("a\0b", 3),
                               "a\x7f",
                               "a\u0085b",
                               "a/\u202etxt.exe",
                               "\u2066a",
                               std::string(201, 'x'),
                               std::string(401, 'x'),
                               "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"};
  for (const std::string& path : wrong) {
    for (const Operation& operation : {publish(path, ""), remove(path), get(path)}) {
      const Parsed parsed = parse(encode_work({operation}));
      ASSERT_EQ(parsed.invalid.size(), 1u) << path;
      EXPECT_EQ(parsed.invalid[0].check, "invalid");
      EXPECT_FALSE(parsed.invalid[0].limit.empty());
    }
  }
  for (const std::string path : {"a", "a/b.txt", ".hidden", "..a", "Übersicht/März 2024.csv",
                                 "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16"}) {
    EXPECT_TRUE(parse(encode_work({get(path)})).invalid.empty()) << path;
  }
}

TEST(FilesParsing, APrefixNeedNotBeWhole) {
  for (const std::string prefix : {"", "a", "a/", "a/b", "a/b/"}) {
    EXPECT_TRUE(parse(encode_work({list(prefix)})).invalid.empty()) << prefix;
  }
  for (const std::string prefix : {"/", "/a", "a//", "../", "a/../"}) {
    EXPECT_EQ(parse(encode_work({list(prefix)})).invalid.size(), 1u) << prefix;
  }
}

TEST(FilesParsing, ArgumentsHaveTheirTypes) {
  const Operation wrong[] = {
      {"drop", {}},
      {"get", {}},
      {"get", {{"path", Value{std::int64_t{1}}}}},
      {"publish", {{"path", Value{"a"}}, {"content", Value{std::int64_t{1}}}}},
      {"publish", {{"path", Value{"a"}}, {"content", Value{"x"}}, {"replace", Value{"yes"}}}},
      {"remove", {{"path", Value{"a"}}, {"content", Value{"x"}}}}};
  for (const Operation& operation : wrong) {
    EXPECT_EQ(parse(encode_work({operation})).invalid.size(), 1u) << operation.name;
  }
  const Operation bytes{"publish", {{"path", Value{"a"}}, {"content", Value{Bytes{"\xff"}}}}};
  EXPECT_EQ(parse(encode_work({bytes})).operations.at(0).content, "\xff");
}

// ---- locks --------------------------------------------------------------------------------------

std::vector<LockRequest> locks(const Work& work) {
  return locks_of(parse(encode_work(work)).operations);
}
constexpr LockMode kShared = LockMode::shared, kExclusive = LockMode::exclusive;

TEST(FilesLocks, WhoeverChangesAFileSharesItsFolders) {
  const std::vector<LockRequest> expected{
      {"/", kShared}, {"a", kShared}, {"a/b", kShared}, {"a/b/c", kExclusive}};
  EXPECT_EQ(locks({publish("a/b/c", "")}), expected);
  EXPECT_EQ(locks({remove("a/b/c")}), expected);
  EXPECT_EQ(locks({get("a/b/c")}), (std::vector<LockRequest>{{"a/b/c", kShared}}));
}

TEST(FilesLocks, AListHasItsFolderForItself) {
  EXPECT_EQ(locks({list("")}), (std::vector<LockRequest>{{"/", kExclusive}}));
  EXPECT_EQ(locks({list("re")}), (std::vector<LockRequest>{{"/", kExclusive}}));
  EXPECT_EQ(locks({list("a/b/")}), (std::vector<LockRequest>{{"a/b", kExclusive}}));
  EXPECT_EQ(locks({list("a/b/c")}), (std::vector<LockRequest>{{"a/b", kExclusive}}));
}

// ---- evaluation ---------------------------------------------------------------------------------

TEST_F(FilesOperations, PublishIsForNewFiles) {
  tree_.files = {{"old", "12345"}};
  EXPECT_EQ(refused({publish("old", "x")}), "present: a file of 5 bytes");
  EXPECT_EQ(refused({publish("old", "x", false)}), "present: a file of 5 bytes");
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(results({publish("old", "x", true), publish("new", "y", true)}),
            (Results{Value{}, Value{}}));
  EXPECT_EQ(changes_, (Changes{{"new", "y"}, {"old", "x"}}));
}

TEST_F(FilesOperations, RemoveIsForFilesThatAreThere) {
  tree_.files = {{"a/b", ""}};
  EXPECT_EQ(refused({remove("a")}), "absent: ");
  EXPECT_EQ(refused({remove("a/b"), remove("a/b")}), "absent: ");
  EXPECT_EQ(changes_, (Changes{{"a/b", std::nullopt}}));
}

TEST_F(FilesOperations, AFileAndAFolderDoNotShareAName) {
  tree_.files = {{"a/b", ""}, {"f", ""}};
  EXPECT_EQ(refused({publish("a", "")}), "type: a folder: a");
  EXPECT_EQ(refused({publish("f/x/y", "")}), "type: a file: f");
  EXPECT_EQ(to_text(evaluate({publish("a", "")}).refusals.at(0)),
            "publish a: wrong type, expected a file, found a folder: a");
  EXPECT_EQ(to_text(evaluate({publish("f/x/y", "")}).refusals.at(0)),
            "publish f/x/y: wrong type, expected a folder, found a file: f");
  EXPECT_EQ(results({remove("a/b"), publish("a", ""), remove("f"), publish("f/x/y", "")}).size(),
            4u);
  EXPECT_EQ(refused({publish("f", "")}), "type: a folder: f");
  EXPECT_EQ(refused({publish("a/c", "")}), "type: a file: a");
}

TEST_F(FilesOperations, ABranchSeesWhatItDid) {
  tree_.files = {{"a/1", "one"}, {"a/2", "two"}, {"ab", ""}};
  EXPECT_EQ(results({get("a/1"), publish("a/3", "three"), remove("a/2"), get("a/2"), get("a/3"),
                     list("a/"), list("a"), list("b")}),
            (Results{Value{"one"}, Value{}, Value{}, Value{}, Value{"three"}, texts({"a/1", "a/3"}),
                     texts({"a/1", "a/3", "ab"}), texts({})}));
}

TEST_F(FilesOperations, WhatIsNoTextIsTheBytes) {
  tree_.files = {{"a", "\xff"}};
  EXPECT_EQ(results({get("a"), get("none")}), (Results{Value{Bytes{"\xff"}}, Value{}}));
}

TEST_F(FilesOperations, ResultsAndChangesAreBounded) {
  tree_.files = {{"a", std::string(600, 'x')}};
  limits_ = {1'000, 1'000};
  EXPECT_EQ(results({get("a")}).size(), 1u);
  EXPECT_EQ(refused({get("a"), get("a")}), "invalid: 1200");
  EXPECT_EQ(refused({publish("b", std::string(600, 'x')), publish("c", std::string(600, 'x'))}),
            "invalid: 1202");
  EXPECT_EQ(refused({remove("a")}), "invalid: 1203");  // of the whole branch
}

TEST_F(FilesOperations, AFaultOfTheDiskIsNoRefusal) {
  tree_.broken = true;
  const Parsed parsed = parse(encode_work({get("a")}));
  EXPECT_FALSE(files::evaluate(parsed.operations, limits_, tree_, changes_));
}

}  // namespace
}  // namespace twofold::resource_manager::files
