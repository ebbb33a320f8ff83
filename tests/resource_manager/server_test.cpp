// A whole resource manager (server, engine, branch core, store) over TCP; a fake coordinator holds
// the other end. All in one thread, which runs until what is waited for has happened.
#include "resource_manager/server.h"

#include <gtest/gtest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "resource_manager/adapters/store.h"
#include "tests/log/temporary_directory.h"
#include "tests/resource_manager/fake_peer.h"

namespace twofold::resource_manager {
namespace {

using test::add;
using test::branch_xid;
using test::client_hello;
using test::coordinator_hello;
using test::FakePeer;
using test::get;
using test::put;

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    core_.name = options_.name = "payments";
    core_.incarnation = options_.incarnation = 4711;
    options_.kind = "store";
    options_.listen = Address{"127.0.0.1", 0};
    store_.directory = directory_.path() / "store";
    store_.map_bytes = 4u << 20;
  }

  void serve() {
    adapter_ = open_store(store_).value();
    engine_ = std::make_unique<Engine>(io_, core_, CrashPoint{}, *adapter_);
    server_ = std::make_unique<Server>(io_, options_, *engine_);
  }
  void stop() {
    server_->stop_accepting();
    EXPECT_TRUE(engine_->stop());
    bool closed = false;
    server_->close_all([&] { closed = true; });
    while (!closed) {
      io_.restart();
      ASSERT_GT(io_.run_one_for(std::chrono::seconds(30)), 0u);
    }
    server_.reset();
    engine_.reset();
    adapter_.reset();
  }
  std::unique_ptr<FakePeer> connect(wire::Hello hello) {
    return std::make_unique<FakePeer>(io_, server_->address(), std::move(hello));
  }
  std::unique_ptr<FakePeer> session(std::uint64_t counter, std::uint64_t epoch = 1) {
    auto peer = connect(coordinator_hello(counter, epoch));
    EXPECT_FALSE(peer->refused()) << peer->refused()->message;
    return peer;
  }
  std::string refusal(wire::Hello hello) {
    auto peer = connect(std::move(hello));
    return peer->refused() ? peer->refused()->message : "accepted";
  }
  void run_until(const std::function<bool()>& happened) {
    while (!happened()) {
      io_.restart();
      ASSERT_GT(io_.run_one_for(std::chrono::seconds(30)), 0u)
          << "what was waited for did not happen";
    }
  }

  test::TemporaryDirectory directory_;
  boost::asio::io_context io_{1};
  Options core_;
  ServerOptions options_;
  StoreOptions store_;
  std::unique_ptr<Adapter> adapter_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

std::int64_t number(const wire::StatsAnswer& stats, std::string_view name) {
  for (const auto& each : stats.numbers()) {
    if (each.name() == name) return each.value();
  }
  ADD_FAILURE() << "stats have no " << name;
  return -1;
}

bool has_histogram(const wire::StatsAnswer& stats, std::string_view name) {
  for (const auto& each : stats.histograms()) {
    if (each.name() == name) return true;
  }
  return false;
}

// ---- conversations
// ---------------------------------------------------------------------------------

TEST_F(ServerTest, AnEarlyPreparedBranchCommits) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->welcome().role(), wire::ROLE_RESOURCE_MANAGER);
  EXPECT_EQ(main->welcome().name(), "payments");
  EXPECT_EQ(main->welcome().incarnation(), 4711u);
  EXPECT_EQ(main->welcome().store_id(), adapter_->store_id());

  const Xid xid = branch_xid(1);
  const wire::Frame vote = main->ask(FakePeer::start(xid, {put("k", 7), get("k")}));
  EXPECT_EQ(static_cast<Xa>(vote.branch_answer().code()), Xa::ok);
  EXPECT_EQ(decode_results(vote.branch_answer().results()).value(),
            (Results{Value{}, Value{std::int64_t{7}}}));
  EXPECT_EQ(main->recover(), std::vector<Xid>{xid});
  EXPECT_EQ(main->outcome_of(xid), wire::Evidence::PREPARED);
  EXPECT_TRUE(main->scan().empty());

  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_TRUE(main->recover().empty());
  EXPECT_EQ(main->outcome_of(xid), wire::Evidence::COMMITTED);
  EXPECT_EQ(main->outcome_of(branch_xid(2)), wire::Evidence::NONE);
  EXPECT_EQ(main->scan(), (std::map<std::string, std::int64_t>{{"k", 7}}));
  EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::er_nota);
}

TEST_F(ServerTest, WorkThenPrepareThenRollback) {
  serve();
  auto main = session(1);
  const Xid xid = branch_xid(1);
  EXPECT_EQ(main->code(FakePeer::start(xid, {put("k", 7)}, wire::THEN_NOTHING)), Xa::ok);
  wire::Frame prepare;
  to_wire(xid, *prepare.mutable_prepare()->mutable_xid());
  prepare.mutable_prepare()->set_incarnation(4711);
  prepare.mutable_prepare()->set_work_items(1);
  EXPECT_EQ(main->code(prepare), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(xid)), Xa::ok);
  EXPECT_TRUE(main->recover().empty());
  EXPECT_TRUE(main->scan().empty());
  EXPECT_EQ(main->outcome_of(xid), wire::Evidence::NONE);
}

TEST_F(ServerTest, AOnePhaseCommitTakesOneExchange) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 7)}, wire::THEN_COMMIT_ONE_PHASE)),
            Xa::ok);
  EXPECT_EQ(main->scan(), (std::map<std::string, std::int64_t>{{"k", 7}}));
  EXPECT_EQ(main->outcome_of(branch_xid(1)), wire::Evidence::COMMITTED);
}

TEST_F(ServerTest, AReaderVotesReadOnlyAndKeepsItsLocksUntilRelease) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {get("k")})), Xa::rdonly);
  EXPECT_EQ(main->locks().entries_size(), 1);
  EXPECT_EQ(main->code(FakePeer::release(branch_xid(1))), Xa::ok);
  EXPECT_EQ(main->locks().entries_size(), 0);
}

TEST_F(ServerTest, FailedChecksAndInvalidWorkVoteNoWithTheirReasons) {
  serve();
  auto main = session(1);
  wire::Frame vote = main->ask(FakePeer::start(branch_xid(1), {put("k", 5), add("k", -9, 0)}));
  EXPECT_EQ(static_cast<Xa>(vote.branch_answer().code()), Xa::rbintegrity);
  ASSERT_EQ(vote.branch_answer().refusals_size(), 1);
  EXPECT_EQ(to_text(from_wire(vote.branch_answer().refusals(0))),
            "add k: would go below min 0, found 5");
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(1))), Xa::ok);
  vote = main->ask(FakePeer::start(branch_xid(2), {{"drop", {}}}));
  EXPECT_EQ(static_cast<Xa>(vote.branch_answer().code()), Xa::rbintegrity);
  ASSERT_EQ(vote.branch_answer().refusals_size(), 1);
  EXPECT_EQ(vote.branch_answer().refusals(0).check(), "invalid");
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(2))), Xa::ok);
}

TEST_F(ServerTest, AWaiterGoesOnWhenTheHolderCommits) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 7)})), Xa::ok);
  const std::uint64_t waiter = main->send(FakePeer::start(branch_xid(2), {add("k", 1, 0)}));
  const wire::LocksAnswer locks = main->locks();
  ASSERT_EQ(locks.entries_size(), 1);
  EXPECT_EQ(locks.entries(0).key(), "k");
  ASSERT_EQ(locks.entries(0).holders_size(), 1);
  EXPECT_EQ(from_wire(locks.entries(0).holders(0).xid()).value(), branch_xid(1));
  EXPECT_TRUE(locks.entries(0).holders(0).exclusive());
  EXPECT_TRUE(locks.entries(0).holders(0).prepared());
  ASSERT_EQ(locks.entries(0).waiters_size(), 1);
  EXPECT_EQ(from_wire(locks.entries(0).waiters(0).xid()).value(), branch_xid(2));
  EXPECT_FALSE(main->answered(waiter));
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(1))), Xa::ok);
  EXPECT_EQ(static_cast<Xa>(main->answer(waiter)->branch_answer().code()), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(2))), Xa::ok);
  EXPECT_EQ(main->scan(), (std::map<std::string, std::int64_t>{{"k", 8}}));
}

// The timer: nothing but time ends this wait.
TEST_F(ServerTest, AWaiterEndsAtItsDeadline) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 7)})), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(2), {put("k", 8)}, wire::THEN_PREPARE, 20)),
            Xa::rbtimeout);
}

TEST_F(ServerTest, ManyRequestsAtOnceAreAllAnswered) {
  serve();
  auto main = session(1);
  std::vector<std::uint64_t> votes, ends;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    votes.push_back(main->send(FakePeer::start(branch_xid(i), {put("k" + std::to_string(i), 1)})));
  }
  for (std::uint64_t request : votes) {
    EXPECT_EQ(static_cast<Xa>(main->answer(request)->branch_answer().code()), Xa::ok);
  }
  EXPECT_EQ(main->recover().size(), 200u);
  for (std::uint64_t i = 1; i <= 200; ++i) {
    ends.push_back(main->send(FakePeer::commit(branch_xid(i))));
  }
  for (std::uint64_t request : ends) {
    EXPECT_EQ(static_cast<Xa>(main->answer(request)->branch_answer().code()), Xa::ok);
  }
  EXPECT_EQ(main->scan().size(), 200u);
  EXPECT_LT(number(main->stats(), "forced_writes"), 400);  // they went in groups
}

// ---- restart, sessions
// -----------------------------------------------------------------------------

TEST_F(ServerTest, PreparedBranchesAndTheirLocksAreBackAfterARestart) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 7), get("r")})), Xa::ok);
  main.reset();
  stop();
  serve();
  auto client = connect(client_hello());
  const wire::LocksAnswer locks = client->locks();
  ASSERT_EQ(locks.entries_size(), 2);
  EXPECT_TRUE(locks.entries(0).holders(0).exclusive());
  EXPECT_FALSE(locks.entries(1).holders(0).exclusive());
  const wire::InDoubtAnswer doubt = client->in_doubt();
  ASSERT_EQ(doubt.branches_size(), 1);
  EXPECT_EQ(from_wire(doubt.branches(0).xid()).value(), branch_xid(1));
  EXPECT_EQ(doubt.branches(0).node(), "main");
  EXPECT_EQ(doubt.branches(0).keys_size(), 2);

  main = session(2);
  const std::uint64_t waiter = main->send(FakePeer::start(branch_xid(2), {put("k", 8)}));
  EXPECT_EQ(main->recover(), std::vector<Xid>{branch_xid(1)});
  EXPECT_FALSE(main->answered(waiter));
  EXPECT_EQ(main->code(FakePeer::commit(branch_xid(1))), Xa::ok);
  EXPECT_EQ(static_cast<Xa>(main->answer(waiter)->branch_answer().code()), Xa::ok);
  EXPECT_EQ(main->code(FakePeer::rollback(branch_xid(2))), Xa::ok);
  EXPECT_EQ(main->scan(), (std::map<std::string, std::int64_t>{{"k", 7}}));
}

TEST_F(ServerTest, ANewSessionFencesTheOldOne) {
  serve();
  auto old = session(1);
  EXPECT_EQ(old->code(FakePeer::start(branch_xid(1), {put("voted", 1)})), Xa::ok);
  EXPECT_EQ(old->code(FakePeer::start(branch_xid(2), {put("active", 1)}, wire::THEN_NOTHING)),
            Xa::ok);
  auto fresh = session(2);
  old->wait_closed();
  EXPECT_NE(old->closed()->message.find("newer session"), std::string::npos);
  EXPECT_EQ(fresh->recover(), std::vector<Xid>{branch_xid(1)});
  EXPECT_EQ(fresh->locks().entries_size(), 1);  // the unvoted branch is gone, and its locks
  EXPECT_NE(refusal(coordinator_hello(2)).find("not newer"), std::string::npos);
}

TEST_F(ServerTest, AnOlderEpochIsRefusedAlsoAfterARestart) {
  serve();
  session(1, 5);
  stop();
  serve();
  EXPECT_NE(refusal(coordinator_hello(9, 4)).find("epoch 4"), std::string::npos);
  wire::Hello other_log = coordinator_hello(1, 6);
  other_log.set_log_id(999);
  EXPECT_NE(refusal(other_log).find("--rebuild"), std::string::npos);
  EXPECT_EQ(refusal(coordinator_hello(1, 6)), "accepted");
}

TEST_F(ServerTest, AnUnvotedBranchEndsWithItsConnection) {
  serve();
  session(1)->code(FakePeer::start(branch_xid(1), {put("k", 1)}, wire::THEN_NOTHING));
  auto client = connect(client_hello());
  while (client->locks().entries_size() > 0) {
  }
  EXPECT_EQ(number(client->stats(), "branches"), 0);
}

TEST_F(ServerTest, CoordinatorsSeeOnlyTheirOwnBranches) {
  serve();
  auto main = session(1);
  auto other = connect(coordinator_hello(1, 1, "other"));
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("a", 1)})), Xa::ok);
  EXPECT_EQ(other->code(FakePeer::start(branch_xid(1, 1, "other"), {put("b", 1)})), Xa::ok);
  EXPECT_EQ(main->recover(), std::vector<Xid>{branch_xid(1)});
  EXPECT_EQ(other->recover(), (std::vector<Xid>{branch_xid(1, 1, "other")}));
  EXPECT_EQ(other->code(FakePeer::rollback(branch_xid(1))), Xa::er_nota);
  EXPECT_EQ(main->in_doubt().branches_size(), 2);
}

TEST_F(ServerTest, ShutdownTellsEveryone) {
  serve();
  auto main = session(1);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 1)})), Xa::ok);
  const std::uint64_t commit = main->send(FakePeer::commit(branch_xid(1)));
  run_until([&] { return engine_->branches().counts().prepared == 0; });
  stop();
  EXPECT_EQ(static_cast<Xa>(main->answer(commit)->branch_answer().code()), Xa::ok);
  main->wait_closed();
  EXPECT_NE(main->closed()->message.find("shutting down"), std::string::npos);
}

// ---- who may ask for what
// --------------------------------------------------------------------------

TEST_F(ServerTest, BranchVerbsOfAClientEndItsConnection) {
  serve();
  wire::Frame mark, recover;
  to_wire(TxnId{1, 5}, *mark.mutable_mark()->mutable_low_water());
  recover.mutable_recover()->set_start(true);
  for (wire::Frame frame : {FakePeer::start(branch_xid(1), {put("k", 1)}), recover, mark}) {
    auto client = connect(client_hello());
    if (!frame.has_mark()) frame.set_request(1);
    client->send_as_is(frame);
    client->wait_closed();
    EXPECT_EQ(client->closed()->fault, fault_of(wire::FAILURE_UNKNOWN_MESSAGE));
    EXPECT_NE(client->closed()->message.find("coordinator"), std::string::npos);
  }
  EXPECT_EQ(number(connect(client_hello())->stats(), "started"), 0);
}

TEST_F(ServerTest, AnAnswerToNothingEndsItsConnection) {
  serve();
  auto main = session(1);
  wire::Frame failure;
  failure.set_request(7);
  failure.mutable_failure()->set_code(wire::FAILURE_REQUEST);
  main->send_as_is(failure);
  main->wait_closed();
  EXPECT_EQ(main->closed()->fault, fault_of(wire::FAILURE_UNKNOWN_MESSAGE));
}

TEST_F(ServerTest, AScanThatWasNeverBegunIsAFailureAndNotAnEmptyList) {
  serve();
  auto main = session(1);
  wire::Frame recover;
  recover.mutable_recover()->set_start(false);
  const wire::Frame refused = main->ask(recover);
  ASSERT_TRUE(refused.has_failure());
  EXPECT_EQ(refused.failure().code(), wire::FAILURE_REQUEST);
  EXPECT_TRUE(main->recover().empty());  // the connection is still good
}

TEST_F(ServerTest, ClientsInspect) {
  serve();
  auto client = connect(client_hello());
  const wire::StatsAnswer stats = client->stats();
  EXPECT_EQ(number(stats, "started"), 0);
  EXPECT_EQ(number(stats, "connections"), 1);
  for (const char* name : {"started", "committed", "committed_one_phase", "rolled_back",
                           "read_only", "voted_yes", "voted_no", "lock_timeouts", "deadlocks",
                           "fenced", "branches", "prepared", "waiting", "keys", "map_bytes"}) {
    EXPECT_GE(number(stats, name), 0) << name;
  }
  for (const char* name : {"lock_hold_us", "lock_wait_us", "sync_us", "group_writes"}) {
    EXPECT_TRUE(has_histogram(stats, name)) << name;
  }
}

TEST_F(ServerTest, WrongPlacesAreTold) {
  serve();
  wire::Hello hello = coordinator_hello(1);
  hello.set_expects("orders");
  EXPECT_NE(refusal(hello).find("this is resource manager payments, and orders was expected"),
            std::string::npos);
  hello = client_hello();
  hello.set_role(wire::ROLE_RESOURCE_MANAGER);
  EXPECT_NE(refusal(hello).find("coordinators and clients"), std::string::npos);
  auto client = connect(client_hello());
  wire::Frame submit;
  submit.mutable_submit();
  EXPECT_FALSE(client->answer(client->send(submit)));
  EXPECT_NE(client->closed()->message.find("meant a coordinator"), std::string::npos);
}

TEST_F(ServerTest, BadXidsAreAnsweredAndHarmNothing) {
  serve();
  auto main = session(1);
  wire::Frame commit;
  commit.mutable_commit()->mutable_xid()->set_gtrid(std::string(65, 'g'));
  EXPECT_EQ(main->code(commit), Xa::er_inval);
  wire::Frame ask;
  ask.mutable_ask_outcome()->mutable_xid()->set_gtrid("");
  EXPECT_TRUE(main->ask(ask).has_failure());
  wire::Frame start = FakePeer::start(branch_xid(1), {put("k", 1)});
  start.mutable_start()->set_then(static_cast<wire::Then>(9));
  EXPECT_EQ(main->code(start), Xa::er_inval);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 1)})), Xa::ok);
}

TEST_F(ServerTest, AVerbWithoutARequestNumberEndsItsConnection) {
  serve();
  auto main = session(1);
  main->send_as_is(FakePeer::commit(branch_xid(1)));
  main->wait_closed();
  EXPECT_NE(main->closed()->message.find("request number"), std::string::npos);
}

TEST_F(ServerTest, ASecondHelloEndsItsConnection) {
  serve();
  auto client = connect(client_hello());
  wire::Frame hello;
  *hello.mutable_hello() = client_hello();
  client->send_as_is(hello);
  client->wait_closed();
  EXPECT_NE(client->closed()->message.find("second Hello"), std::string::npos);
}

// What a socket without any manners gets back: one Failure, and the end.
class RawPeer {
 public:
  RawPeer(boost::asio::io_context& io, const Address& address) : socket_(io) {
    socket_.connect({boost::asio::ip::make_address(address.host), address.port});
  }
  void write(const std::string& bytes) { boost::asio::write(socket_, boost::asio::buffer(bytes)); }
  // Reads until the other side ends; `run` keeps that side going.
  wire::Failure failure(const std::function<void(const std::function<bool()>&)>& run) {
    std::string bytes;
    bool ended = false;
    boost::asio::async_read(socket_, boost::asio::dynamic_buffer(bytes),
                            [&](const boost::system::error_code&, std::size_t) { ended = true; });
    run([&] { return ended; });
    FrameReader reader(kFrameBytesMaxDefault);
    reader.append(bytes);
    std::string_view payload;
    wire::Frame frame;
    while (reader.next(payload)) {
      EXPECT_TRUE(frame.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    }
    return frame.failure();
  }

 private:
  boost::asio::ip::tcp::socket socket_;
};

TEST_F(ServerTest, GarbageEndsItsOwnConnectionOnly) {
  serve();
  auto main = session(1);
  const auto run = [this](const std::function<bool()>& happened) { run_until(happened); };
  {
    RawPeer raw(io_, server_->address());
    raw.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const wire::FailureCode code = raw.failure(run).code();
    EXPECT_TRUE(code == wire::FAILURE_TOO_LARGE || code == wire::FAILURE_CORRUPT) << code;
  }
  {
    RawPeer raw(io_, server_->address());
    std::string bytes;
    append_frame(FakePeer::commit(branch_xid(1)), bytes);
    raw.write(bytes);
    EXPECT_EQ(raw.failure(run).code(), wire::FAILURE_HANDSHAKE);
  }
  {
    RawPeer raw(io_, server_->address());
    std::string bytes;
    wire::Frame hello;
    *hello.mutable_hello() = client_hello();
    hello.mutable_hello()->set_version(99);
    append_frame(hello, bytes);
    raw.write(bytes);
    EXPECT_EQ(raw.failure(run).code(), wire::FAILURE_VERSION);
  }
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 1)})), Xa::ok);
}

TEST_F(ServerTest, BeyondConnectionsMaxIsToldAndHarmsNobody) {
  options_.connections_max = 2;
  serve();
  auto main = session(1);
  auto client = connect(client_hello());
  EXPECT_NE(refusal(client_hello()).find("connections_max"), std::string::npos);
  EXPECT_EQ(main->code(FakePeer::start(branch_xid(1), {put("k", 1)})), Xa::ok);
  client.reset();
  run_until([&] { return server_->connections() == 1; });
  EXPECT_EQ(refusal(client_hello()), "accepted");
}

// ---- a full store
// ----------------------------------------------------------------------------------

TEST_F(ServerTest, AFullStoreVotesNoWithNoRoomAndFinishesWhatHasVoted) {
  store_.map_bytes = 1u << 20;
  serve();
  auto main = session(1);
  const Value large{std::string(50'000, 'x')};
  std::vector<Xid> voted;
  std::optional<wire::BranchAnswer> refused;
  for (std::uint64_t i = 1; i <= 40 && !refused; ++i) {
    const Operation put_large{"put", {{"key", Value{"k" + std::to_string(i)}}, {"value", large}}};
    const wire::Frame vote = main->ask(FakePeer::start(branch_xid(i), {put_large}));
    if (static_cast<Xa>(vote.branch_answer().code()) == Xa::ok) {
      voted.push_back(branch_xid(i));
    } else {
      refused = vote.branch_answer();
    }
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(static_cast<Xa>(refused->code()), Xa::rbother);
  EXPECT_TRUE(refused->no_room());
  for (const Xid& xid : voted) EXPECT_EQ(main->code(FakePeer::commit(xid)), Xa::ok);
  EXPECT_EQ(main->scan().size(), voted.size());
}

TEST_F(ServerTest, AScanKeepsToWhatThePeerAccepts) {
  serve();
  auto main = session(1);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const Operation put_large{
        "put",
        {{"key", Value{"k" + std::to_string(i)}}, {"value", Value{std::string(30'000, 'x')}}}};
    EXPECT_EQ(main->code(FakePeer::start(branch_xid(i), {put_large}, wire::THEN_COMMIT_ONE_PHASE)),
              Xa::ok);
  }
  ConnectionOptions small;
  small.frame_bytes_max = 64u << 10;
  std::shared_ptr<Connection> connection;
  bool done = false;
  connect_and_greet(io_, server_->address(), client_hello(), small, [&](auto result) {
    connection = result.value().first;
    done = true;
  });
  run_until([&] { return done; });
  std::optional<wire::Frame> answer;
  connection->replace_handlers({[&](wire::Frame& frame) {
                                  if (!frame.has_heartbeat()) answer = frame;
                                },
                                {},
                                {}});
  wire::Frame scan;
  scan.set_request(1);
  scan.mutable_scan();
  connection->send(scan);
  run_until([&] { return answer.has_value(); });
  ASSERT_TRUE(answer->has_scan_answer()) << answer->failure().text();
  EXPECT_TRUE(answer->scan_answer().truncated());
  EXPECT_EQ(answer->scan_answer().entries_size(), 2);
  connection->replace_handlers({});
  connection->close({Fault::closed, "the test ends"});
}

}  // namespace
}  // namespace twofold::resource_manager
