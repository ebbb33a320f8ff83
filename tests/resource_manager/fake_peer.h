// A coordinator or client in a test's hands: speaks to a resource manager over TCP, a step at a
// time.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/connection.h"
#include "protocol/convert.h"
#include "protocol/operation.h"
#include "protocol/outcome.h"
#include "protocol/xa.h"
#include "protocol/xid.h"

namespace twofold::test {

inline constexpr LogId kLog{0xa1};
inline constexpr std::uint64_t kNonce = 77;

inline Xid branch_xid(std::uint64_t sequence, std::uint64_t epoch = 1, std::string node = "main") {
  Xid xid;
  xid.gtrid = Gtrid{kLog, epoch, kNonce, sequence, std::move(node)}.encode();
  xid.bqual = Bqual{0, "payments"}.encode();
  return xid;
}

inline Operation put(std::string key, std::int64_t value) {
  return {"put", {{"key", Value{std::move(key)}}, {"value", Value{value}}}};
}
inline Operation get(std::string key) {
  return {"get", {{"key", Value{std::move(key)}}}};
}
inline Operation add(std::string key, std::int64_t by, std::int64_t min) {
  return {"add", {{"key", Value{std::move(key)}}, {"by", Value{by}}, {"min", Value{min}}}};
}

inline wire::Hello coordinator_hello(std::uint64_t session, std::uint64_t epoch = 1,
                                     std::string node = "main") {
  wire::Hello hello;
  hello.set_role(wire::ROLE_COORDINATOR);
  hello.set_name(node);
  hello.set_node(std::move(node));
  hello.set_log_id(kLog.value);
  hello.set_epoch(epoch);
  hello.set_nonce(kNonce);
  hello.set_session(session);
  while (hello.earlier_size() + 1 < static_cast<int>(epoch)) hello.add_earlier(kNonce);
  return hello;
}
inline wire::Hello client_hello() {
  wire::Hello hello;
  hello.set_role(wire::ROLE_CLIENT);
  hello.set_name("test");
  return hello;
}

class FakePeer {
 public:
  // Runs `io` until the handshake has succeeded or failed.
  FakePeer(boost::asio::io_context& io, const Address& address, wire::Hello hello) : io_(io) {
    bool done = false;
    connect_and_greet(io, address, std::move(hello), {}, [&](auto result) {
      done = true;
      if (!result) {
        refused_ = result.error();
        return;
      }
      connection_ = std::move(result->first);
      welcome_ = std::move(result->second);
    });
    run_until([&] { return done; });
    if (!connection_) return;
    connection_->replace_handlers({[this](wire::Frame& frame) {
                                     if (!frame.has_heartbeat())
                                       answers_[frame.request()] = std::move(frame);
                                   },
                                   [this](const Error& why) { closed_ = why; },
                                   {}});
  }
  ~FakePeer() {
    if (!connection_) return;
    connection_->replace_handlers({});
    connection_->close({Fault::closed, "the test ends"});
  }
  FakePeer(const FakePeer&) = delete;

  const std::optional<Error>& refused() const { return refused_; }  // the handshake failed
  const std::optional<Error>& closed() const { return closed_; }    // after it
  const wire::Welcome& welcome() const { return welcome_; }
  void wait_closed() {
    run_until([&] { return closed_.has_value(); });
  }

  std::uint64_t send(wire::Frame frame) {
    frame.set_request(++last_request_);
    connection_->send(frame);
    return last_request_;
  }
  // Into the kernel's hands, so that it arrives whatever becomes of this side.
  void flush() { connection_->flush_blocking(); }
  void send_as_is(const wire::Frame& frame) { connection_->send(frame); }
  bool answered(std::uint64_t request) const { return answers_.contains(request); }
  // None: the connection ended first.
  std::optional<wire::Frame> answer(std::uint64_t request) {
    run_until([&] { return answered(request) || closed_; });
    auto node = answers_.extract(request);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }
  wire::Frame ask(wire::Frame frame) {
    return answer(send(std::move(frame))).value_or(wire::Frame{});
  }

  // ---- branch verbs ----
  static wire::Frame start(const Xid& xid, const Work& work, wire::Then then = wire::THEN_PREPARE,
                           std::uint32_t remaining_ms = 60'000) {
    wire::Frame frame;
    wire::Start& start = *frame.mutable_start();
    to_wire(xid, *start.mutable_xid());
    start.set_work(encode_work(work));
    start.set_then(then);
    start.set_remaining_ms(remaining_ms);
    start.set_read_only_vote(true);
    return frame;
  }
  static wire::Frame commit(const Xid& xid) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_commit()->mutable_xid());
    return frame;
  }
  static wire::Frame commit_one_phase(const Xid& xid, std::uint64_t incarnation,
                                      std::uint64_t work_items) {
    wire::Frame frame = commit(xid);
    frame.mutable_commit()->set_one_phase(true);
    frame.mutable_commit()->set_incarnation(incarnation);
    frame.mutable_commit()->set_work_items(work_items);
    return frame;
  }
  static wire::Frame prepare(const Xid& xid, std::uint64_t incarnation, std::uint64_t work_items,
                             bool read_only_vote = true) {
    wire::Frame frame;
    wire::Prepare& prepare = *frame.mutable_prepare();
    to_wire(xid, *prepare.mutable_xid());
    prepare.set_incarnation(incarnation);
    prepare.set_work_items(work_items);
    prepare.set_read_only_vote(read_only_vote);
    return frame;
  }
  static wire::Frame rollback(const Xid& xid) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_rollback()->mutable_xid());
    return frame;
  }
  static wire::Frame release(const Xid& xid) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_release()->mutable_xid());
    return frame;
  }
  static wire::Frame forget(const Xid& xid) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_forget()->mutable_xid());
    return frame;
  }
  static wire::Frame ask_outcome(const Xid& xid, std::uint64_t store_id = 0) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_ask_outcome()->mutable_xid());
    frame.mutable_ask_outcome()->set_store_id(store_id);
    return frame;
  }
  static wire::Frame recover_frame(bool start, std::uint32_t batch, bool close = false) {
    wire::Frame frame;
    frame.mutable_recover()->set_start(start);
    frame.mutable_recover()->set_batch(batch);
    frame.mutable_recover()->set_close(close);
    return frame;
  }
  void mark(TxnId low_water) {
    wire::Frame frame;
    frame.mutable_mark()->mutable_low_water()->set_epoch(low_water.epoch);
    frame.mutable_mark()->mutable_low_water()->set_sequence(low_water.sequence);
    send_as_is(frame);
  }

  // ---- a client's part in a branch ----
  static wire::Frame join(const Xid& xid, std::uint64_t thread = 1, bool resume = false) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_join()->mutable_xid());
    frame.mutable_join()->set_thread(thread);
    frame.mutable_join()->set_resume(resume);
    return frame;
  }
  static wire::Frame execute(const Xid& xid, const Work& work, std::uint64_t thread = 1) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_execute()->mutable_xid());
    frame.mutable_execute()->set_thread(thread);
    frame.mutable_execute()->set_work(encode_work(work));
    return frame;
  }
  static wire::Frame end(const Xid& xid, wire::End::Flag flag = wire::End::SUCCESS,
                         std::uint64_t thread = 1) {
    wire::Frame frame;
    to_wire(xid, *frame.mutable_end()->mutable_xid());
    frame.mutable_end()->set_thread(thread);
    frame.mutable_end()->set_flag(flag);
    return frame;
  }

  Xa code(wire::Frame frame) {
    const wire::Frame answer = ask(std::move(frame));
    EXPECT_TRUE(answer.has_branch_answer()) << answer.failure().text();
    return static_cast<Xa>(answer.branch_answer().code());
  }
  std::vector<Xid> recover() {
    std::vector<Xid> xids;
    wire::RecoverAnswer listed;
    for (bool begin = true; begin || !listed.end(); begin = false) {
      const wire::Frame answer = ask(recover_frame(begin, 2));
      EXPECT_TRUE(answer.has_recover_answer());
      if (!answer.has_recover_answer()) break;
      listed = answer.recover_answer();
      for (const auto& branch : listed.branches()) xids.push_back(from_wire(branch.xid()).value());
    }
    return xids;
  }
  wire::Evidence::Kind outcome_of(const Xid& xid) {
    return ask(ask_outcome(xid)).evidence().kind();
  }

  // ---- inspection ----
  std::map<std::string, std::int64_t> scan() {
    wire::Frame frame;
    frame.mutable_scan();
    std::map<std::string, std::int64_t> found;
    const wire::Frame answer = ask(std::move(frame));
    for (const auto& entry : answer.scan_answer().entries()) {
      found[entry.key()] = entry.value().integer();
    }
    return found;
  }
  wire::LocksAnswer locks() {
    wire::Frame frame;
    frame.mutable_locks();
    return ask(std::move(frame)).locks_answer();
  }
  wire::InDoubtAnswer in_doubt() {
    wire::Frame frame;
    frame.mutable_in_doubt();
    return ask(std::move(frame)).in_doubt_answer();
  }
  wire::StatsAnswer stats() {
    wire::Frame frame;
    frame.mutable_stats();
    return ask(std::move(frame)).stats_answer();
  }

 private:
  template <class Happened>
  void run_until(Happened happened) {
    while (!happened()) {
      io_.restart();
      // The limit only ends a test that would hang.
      ASSERT_GT(io_.run_one_for(std::chrono::seconds(30)), 0u)
          << "what was waited for did not happen";
    }
  }

  boost::asio::io_context& io_;
  std::shared_ptr<Connection> connection_;
  wire::Welcome welcome_;
  std::optional<Error> refused_, closed_;
  std::uint64_t last_request_ = 0;
  std::map<std::uint64_t, wire::Frame> answers_;
};

}  // namespace twofold::test
