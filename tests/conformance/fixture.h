// One participant, a real process with data of its own, and a coordinator in the test's hands that
// speaks the wire protocol with it. Nothing here is asked of the participant but what
// docs/protocol.md says that it answers to a coordinator or a client.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/kind.h"
#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/fake_peer.h"
#include "tests/resource_manager/program.h"

namespace twofold::conformance {

using test::branch_xid;
using test::client_hello;
using test::coordinator_hello;
using test::FakePeer;
using test::kLog;

inline constexpr const char* kName = "payments";  // as branch_xid() has it

// The second branch of that transaction at this participant.
inline Xid second_branch(std::uint64_t sequence) {
  Xid xid = branch_xid(sequence);
  xid.bqual = Bqual{1, kName}.encode();
  return xid;
}
// An xid that no Twofold has made.
inline Xid foreign_xid() {
  return Xid{1, "somebody", "else"};
}

class ParticipantProcess {
 protected:
  explicit ParticipantProcess(const Kind& kind) : kind_(kind) {}

  const Kind& kind() const { return kind_; }
  // Starts it; `more` is appended to its arguments.
  void serve(const std::vector<std::string>& more = {});
  void kill();  // SIGKILL, waited for
  // How it ended by itself: minus the signal.
  int ended();
  void restart() {
    kill();
    serve();
  }

  std::unique_ptr<FakePeer> connect(wire::Hello hello) { return connect(io_, std::move(hello)); }
  std::unique_ptr<FakePeer> connect(boost::asio::io_context& io, wire::Hello hello) {
    return std::make_unique<FakePeer>(io, address_, std::move(hello));
  }
  // A session, accepted; each newer than those before.
  std::unique_ptr<FakePeer> session(std::uint64_t epoch = 1, const std::string& node = "main");
  std::unique_ptr<FakePeer> client();

  Operation write(const std::string& key, std::int64_t number) const {
    return kind_.write(key, number);
  }
  Operation read(const std::string& key) const { return kind_.read(key); }
  Operation fail(const std::string& key) const { return kind_.fail(key); }

  Xid next_xid(std::uint64_t epoch = 1) { return branch_xid(++sequence_, epoch); }

  // A prepared branch that has written `number` to `key`.
  Xid prepared(FakePeer& peer, const std::string& key, std::int64_t number);
  // What is applied, by a branch of its own that votes read-only: null if there is nothing.
  Value value_of(FakePeer& peer, const std::string& key);
  Value written(std::int64_t number) const { return kind_.written(number); }
  // Whether a branch could write that key now.
  void expect_free(FakePeer& peer, const std::string& key);
  void expect_locked(FakePeer& peer, const std::string& key);
  // Everything sent before has been taken.
  void settle(FakePeer& peer) { peer.recover(); }

  boost::asio::io_context io_{1};

 private:
  const Kind kind_;
  test::TemporaryDirectory directory_;
  std::unique_ptr<test::Program> program_;
  Address address_;
  std::uint64_t counter_ = 0;
  std::uint64_t sequence_ = 1'000;
};

class Participant : public ::testing::TestWithParam<Kind>, protected ParticipantProcess {
 protected:
  Participant() : ParticipantProcess(GetParam()) {}
  void SetUp() override { serve(); }
};

// With a session, main_. Skipped for a participant that takes submitted work only.
class Interactive : public Participant {
 protected:
  void SetUp() override;
  // An interactive branch, enlisted by its coordinator.
  Xid begin(std::uint32_t remaining_ms = 60'000);
  Xa vote(const Xid& xid, std::uint64_t work_items);

  std::unique_ptr<FakePeer> main_;
};

inline Xa code_of(const std::optional<wire::Frame>& answer) {
  EXPECT_TRUE(answer && answer->has_branch_answer());
  return answer ? static_cast<Xa>(answer->branch_answer().code()) : Xa::er_rmfail;
}

}  // namespace twofold::conformance
