// A store as an adapter, without a branch core: the engine's side, and shorthands for what a core
// would ask for.
#pragma once

#include <gtest/gtest.h>

#include "resource_manager/adapters/store.h"
#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/test_host.h"

namespace twofold::resource_manager {

using RunWork = Run;  // in a test, Run is Google Test's

inline Value number(std::int64_t value) {
  return Value{value};
}
inline Value text(std::string value) {
  return Value{std::move(value)};
}
inline Operation get(std::string key) {
  return {"get", {{"key", text(std::move(key))}}};
}
inline Operation put(std::string key, Value value) {
  return {"put", {{"key", text(std::move(key))}, {"value", std::move(value)}}};
}
inline Operation erase(std::string key) {
  return {"erase", {{"key", text(std::move(key))}}};
}
inline Operation add(std::string key, std::int64_t by) {
  return {"add", {{"key", text(std::move(key))}, {"by", number(by)}}};
}

inline constexpr LogId kLog{0xa1};

inline Xid make_xid(std::uint64_t sequence, std::uint64_t epoch = 3) {
  Xid xid;
  xid.gtrid = Gtrid{kLog, epoch, 77, sequence, "main"}.encode();
  xid.bqual = Bqual{0, "payments"}.encode();
  return xid;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { options_.directory = directory_.path() / "store"; }
  ~StoreTest() override { close(); }

  void open() {
    Result<std::unique_ptr<Adapter>> opened = open_store(options_);
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
    host_ = std::make_unique<TestHost>();
    recovered_ = store_->recover(Time(std::chrono::hours(1)));
    store_->attach(*host_);
  }
  // As at the end of a process: what was asked for is written.
  void close() {
    if (store_) store_->stop();
    store_.reset();
    host_.reset();
  }
  void reopen() {
    close();
    open();
  }

  Ran run(BranchId branch, const Work& work) {
    store_->run(RunWork{branch, make_xid(branch), encode_work(work)});
    return host_->next_of<Ran>();
  }
  Results results(BranchId branch, const Work& work) {
    const Ran ran = run(branch, work);
    EXPECT_EQ(ran.code, Xa::ok);
    return decode_results(ran.results).value();
  }
  Value value_of(const std::string& key) {
    const Results found = results(kReader, {get(key)});
    store_->discard(Discard{kReader});
    return found.at(0);
  }

  bool persisted() { return std::holds_alternative<Persisted>(host_->next()); }
  void ask_prepare(BranchId branch) {
    store_->persist(PersistPrepare{branch * 4,
                                   branch,
                                   make_xid(branch),
                                   {{"k", LockMode::exclusive}, {"r", LockMode::shared}}});
  }
  void ask_commit(BranchId branch, bool one_phase = false) {
    store_->persist(PersistCommit{branch * 4 + 1, branch, make_xid(branch), one_phase});
  }
  bool prepare(BranchId branch) {
    ask_prepare(branch);
    store_->flush();
    return persisted();
  }
  bool commit(BranchId branch, bool one_phase = false) {
    ask_commit(branch, one_phase);
    store_->flush();
    return persisted();
  }
  void commit_at_once(BranchId branch, const Work& work) {
    run(branch, work);
    ASSERT_TRUE(commit(branch, true));
  }
  wire::ScanAnswer scan(const std::string& prefix = "", std::uint64_t bytes_max = 1u << 20) {
    wire::Scan question;
    question.set_prefix(prefix);
    return scan(question, bytes_max);
  }
  wire::ScanAnswer scan(const wire::Scan& question, std::uint64_t bytes_max) {
    std::optional<wire::ScanAnswer> answer;
    store_->scan(question, bytes_max, [&](auto scanned) { answer = std::move(scanned).value(); });
    return answer.value();
  }
  Evidence evidence(const Xid& xid) {
    std::optional<Evidence> found;
    store_->evidence(xid, [&](Evidence told) { found = told; });
    return found.value();
  }

  static constexpr BranchId kReader = 1'000'000;
  test::TemporaryDirectory directory_;
  StoreOptions options_;
  std::unique_ptr<TestHost> host_;
  std::unique_ptr<Adapter> store_;
  Recovered recovered_;
};

}  // namespace twofold::resource_manager
