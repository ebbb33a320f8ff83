// Clients of all kinds: those that ask, those beyond the limits, and those that send garbage.

#include <boost/asio/write.hpp>
#include <random>

#include "tests/coordinator/engine_fixture.h"

namespace twofold::test {
namespace {

namespace asio = boost::asio;
using Act = FakeParticipant;

class EngineClientsTest : public EngineTest {
 protected:
  // A connection whose first frame is `first`.
  void connect_raw(TestClient& client, const wire::Frame& first) {
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::make_address(address_.host), address_.port});
    client.connection = Connection::make(std::move(socket), {});
    client.connection->start(client.handlers());
    EXPECT_TRUE(client.connection->send(first));
  }
  void expect_refused(const wire::Frame& first, wire::FailureCode code, const std::string& words) {
    TestClient client;
    connect_raw(client, first);
    until([&] { return client.closed.has_value(); });
    ASSERT_TRUE(client.failure);
    EXPECT_EQ(client.failure->code(), code);
    EXPECT_NE(client.failure->text().find(words), std::string::npos) << client.failure->text();
  }
  void expect_ended(const wire::Frame& frame, wire::FailureCode code, const std::string& words) {
    TestClient client;
    connect(client);
    EXPECT_TRUE(client.connection->send(frame));
    until([&] { return client.closed.has_value(); });
    ASSERT_TRUE(client.failure);
    EXPECT_EQ(client.failure->code(), code);
    EXPECT_NE(client.failure->text().find(words), std::string::npos) << client.failure->text();
  }
  static wire::Frame hello() {
    wire::Frame frame;
    frame.mutable_hello()->set_version(kProtocolVersion);
    frame.mutable_hello()->set_role(wire::ROLE_CLIENT);
    frame.mutable_hello()->set_frame_bytes_max(1u << 20);
    return frame;
  }
};

TEST_F(EngineClientsTest, welcome_names_node_log_and_newest) {
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(client.welcome.role(), wire::ROLE_COORDINATOR);
  EXPECT_EQ(client.welcome.node(), "main");
  EXPECT_EQ(client.welcome.log_id(), orders.hello().log_id());
  const TxnId before = from_wire(client.welcome.newest());
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  TestClient later;
  connect(later);
  EXPECT_GT(from_wire(later.welcome.newest()), before);
}

TEST_F(EngineClientsTest, heartbeats_carry_the_newest) {
  options.heartbeat_ms = 20;
  start_and_link();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, submission("r1")).verdict, Verdict::committed);
  std::optional<TxnId> told;
  Connection::Handlers handlers = client.handlers();
  handlers.on_frame = [&](wire::Frame& frame) {
    if (frame.has_heartbeat()) told = from_wire(frame.heartbeat().newest());
  };
  client.connection->replace_handlers(std::move(handlers));
  until([&] { return told.has_value(); });
  EXPECT_EQ(*told, (TxnId{1, 1}));
}

TEST_F(EngineClientsTest, lists_and_shows_what_is_under_way_and_what_has_ended) {
  payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  client.send(submission("slow"));
  until([&] { return payments.hanging() == 1; });
  wire::Frame list;
  list.mutable_list();
  wire::Frame answer = call(client, list);
  ASSERT_EQ(answer.list_answer().transactions_size(), 1);
  const wire::TransactionView& view = answer.list_answer().transactions(0);
  EXPECT_EQ(view.request_id(), "slow");
  EXPECT_EQ(view.phase(), "preparing");
  ASSERT_EQ(view.branches_size(), 2);
  EXPECT_EQ(view.branches(1).rm(), "payments");
  ASSERT_GE(view.phases_size(), 1);
  const std::int64_t wall = std::chrono::duration_cast<std::chrono::microseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
  EXPECT_NEAR(static_cast<double>(view.phases(0).wall_us()), static_cast<double>(wall), 60e6);

  wire::Frame show;
  show.mutable_show()->set_request_id("slow");
  answer = call(client, show);
  EXPECT_TRUE(answer.show_answer().found());
  payments.answer_hanging();
  const Outcome told = outcome(client, question("slow", wire::REPLY_AT_END));
  EXPECT_EQ(told.verdict, Verdict::committed);
  show.mutable_show()->set_gtrid(told.gtrid);
  answer = call(client, show);
  EXPECT_TRUE(answer.show_answer().found());
  EXPECT_EQ(answer.show_answer().transaction().phase(), "ended");
  show.mutable_show()->set_request_id("never");
  EXPECT_FALSE(call(client, show).show_answer().found());
}

TEST_F(EngineClientsTest, a_list_is_cut_where_the_client_says) {
  for (int i = 0; i < 3; ++i) payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  for (int i = 0; i < 3; ++i) client.send(submission("slow-" + std::to_string(i)));
  until([&] { return payments.hanging() == 3; });
  wire::Frame list;
  list.mutable_list()->set_entries_max(2);
  const wire::Frame answer = call(client, list);
  EXPECT_EQ(answer.list_answer().transactions_size(), 2);
  EXPECT_TRUE(answer.list_answer().truncated());
}

TEST_F(EngineClientsTest, an_outcome_too_large_for_the_client_comes_without_its_results) {
  orders.results = std::string(150'000, 'r');
  start_and_link();
  TestClient client;
  ConnectionOptions small;
  small.frame_bytes_max = 64u << 10;
  connect(client, small);
  const wire::Frame answer = call(client, submission("r1"));
  ASSERT_TRUE(answer.has_outcome());
  EXPECT_EQ(from_wire(answer.outcome()).verdict, Verdict::committed);
  EXPECT_EQ(answer.outcome().results_size(), 0);
  EXPECT_NE(answer.outcome().detail().find("larger"), std::string::npos);
  EXPECT_EQ(outcome(client, question("r1")).verdict, Verdict::committed);
}

TEST_F(EngineClientsTest, questions_that_say_nothing_are_refused_one_by_one) {
  start();
  TestClient client;
  connect(client);
  wire::Frame ask, show;
  ask.mutable_ask();
  show.mutable_show();
  wire::Frame now = submission("r1");
  now.mutable_submit()->set_reply_at(wire::REPLY_NOW);
  for (const wire::Frame& frame : {ask, show, now}) {
    const wire::Frame answer = call(client, frame);
    ASSERT_TRUE(answer.has_failure());
    EXPECT_EQ(answer.failure().code(), wire::FAILURE_REQUEST);
  }
  EXPECT_EQ(outcome(client, question("never", wire::REPLY_NOW)).verdict, Verdict::not_found);
}

TEST_F(EngineClientsTest, a_submission_with_an_unknown_resource_manager_is_rejected) {
  start_and_link();
  TestClient client;
  connect(client);
  const Outcome told = outcome(client, submission("r1", {"orders", "nobody"}));
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::invalid);
  EXPECT_NE(told.detail.find("nobody"), std::string::npos);
}

TEST_F(EngineClientsTest, handshakes_that_do_not_fit_are_told_why) {
  start();
  wire::Frame frame = hello();
  frame.mutable_hello()->set_version(99);
  expect_refused(frame, wire::FAILURE_VERSION, "99");
  frame = hello();
  frame.mutable_hello()->set_role(wire::ROLE_RESOURCE_MANAGER);
  expect_refused(frame, wire::FAILURE_HANDSHAKE, "clients only");
  frame = hello();
  frame.mutable_hello()->set_expects("payments");
  expect_refused(frame, wire::FAILURE_NOT_HERE, "payments");
  frame = hello();
  frame.mutable_hello()->set_client(0xc1);  // an id without a counter
  expect_refused(frame, wire::FAILURE_HANDSHAKE, "counter");
  frame = hello();
  frame.mutable_hello()->set_heartbeat_ms(5'000);  // silence_max_ms
  expect_refused(frame, wire::FAILURE_HANDSHAKE, "5000 ms are too rare");
  expect_refused(submission("r1"), wire::FAILURE_HANDSHAKE, "Hello");
}

TEST_F(EngineClientsTest, messages_that_do_not_belong_here_end_that_connection_only) {
  start_and_link();
  TestClient bystander;
  connect(bystander);
  wire::Frame frame = hello();
  expect_ended(frame, wire::FAILURE_HANDSHAKE, "second Hello");
  frame.Clear();
  frame.set_request(1);
  frame.mutable_commit();
  expect_ended(frame, wire::FAILURE_UNKNOWN_MESSAGE, "coordinator");
  frame.Clear();
  frame.mutable_mark();
  expect_ended(frame, wire::FAILURE_UNKNOWN_MESSAGE, "coordinator");
  frame.Clear();
  frame.set_request(1);
  frame.mutable_failure();  // an answer to nothing
  expect_ended(frame, wire::FAILURE_UNKNOWN_MESSAGE, "coordinator");
  expect_ended(submission("unnumbered"), wire::FAILURE_REQUEST, "number");
  EXPECT_EQ(outcome(bystander, submission("r1")).verdict, Verdict::committed);
}

TEST_F(EngineClientsTest, garbage_ends_that_connection_only) {
  start_and_link();
  TestClient bystander;
  connect(bystander);
  std::minstd_rand random(7);
  for (int i = 0; i < 30; ++i) {
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::make_address(address_.host), address_.port});
    std::string bytes(1 + random() % 5'000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    boost::system::error_code ignored;
    asio::write(socket, asio::buffer(bytes), ignored);
  }
  EXPECT_EQ(outcome(bystander, submission("r1")).verdict, Verdict::committed);
}

TEST_F(EngineClientsTest, silent_connections_are_ended) {
  options.heartbeat_ms = 20;
  options.silence_max_ms = 60;
  start();
  asio::ip::tcp::socket socket(io);
  socket.connect({asio::ip::make_address(address_.host), address_.port});
  std::string bytes(1'000, '\0');
  boost::system::error_code ended;
  std::function<void()> read = [&] {
    socket.async_read_some(asio::buffer(bytes), [&](boost::system::error_code code, std::size_t) {
      ended = code;
      if (!code) read();
    });
  };
  read();
  until([&] { return static_cast<bool>(ended); });
}

TEST_F(EngineClientsTest, clients_beyond_the_limit_are_told_to_come_later) {
  options.connections_max = 2;
  start();
  TestClient one, two;
  connect(one);
  connect(two);
  expect_refused(hello(), wire::FAILURE_BUSY, "connections_max");
  one.connection->close({Fault::closed, "enough"});
  until([&] { return one.closed.has_value(); });
  wire::Frame frame;
  frame.mutable_stats();
  EXPECT_TRUE(call(two, frame).has_stats_answer());
  // Its place is free as soon as the coordinator has seen it go.
  bool welcome = false;
  for (int i = 0; i < 1'000 && !welcome; ++i) {
    TestClient next;
    connect_raw(next, hello());
    until([&] { return next.closed.has_value() || next.connection->counters().frames_in > 0; });
    welcome = !next.failure;
  }
  EXPECT_TRUE(welcome);
}

TEST_F(EngineClientsTest, transactions_beyond_the_limit_are_rejected_as_overload) {
  options.transactions_max = 2;
  for (int i = 0; i < 2; ++i) payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient client;
  connect(client);
  client.send(submission("slow-1"));
  client.send(submission("slow-2"));
  until([&] { return payments.hanging() == 2; });
  const Outcome told = outcome(client, submission("one-too-many"));
  EXPECT_EQ(told.verdict, Verdict::rejected);
  EXPECT_EQ(told.reason, Reason::overload);
  payments.answer_hanging();
  EXPECT_EQ(outcome(client, question("slow-1", wire::REPLY_AT_END)).verdict, Verdict::committed);
  EXPECT_EQ(outcome(client, question("slow-2", wire::REPLY_AT_END)).verdict, Verdict::committed);
  EXPECT_EQ(outcome(client, submission("one-too-many")).verdict, Verdict::committed);
}

TEST_F(EngineClientsTest, open_requests_are_bounded_even_by_those_who_left) {
  options.transactions_max = 1;  // 1,002 open requests in all
  payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  TestClient gone;
  connect(gone);
  gone.send(submission("slow"));
  until([&] { return payments.hanging() == 1; });
  for (int i = 0; i < 1'001; ++i) gone.send(question("slow"));
  wire::Frame list;
  list.mutable_list();
  EXPECT_TRUE(call(gone, list).has_list_answer());  // all of it has arrived
  gone.connection->close({Fault::closed, "gone"});
  TestClient client;
  connect(client);
  wire::Frame answer = call(client, question("slow"));
  ASSERT_TRUE(answer.has_failure());
  EXPECT_EQ(answer.failure().code(), wire::FAILURE_BUSY);
  payments.answer_hanging();
  until([&] { return payments.committed.size() == 1; });
  EXPECT_EQ(outcome(client, question("slow")).verdict, Verdict::committed);
}

TEST_F(EngineClientsTest, a_client_that_left_has_still_submitted) {
  payments.script(wire::Frame::kStart, Act::hang());
  start_and_link();
  {
    TestClient client;
    connect(client);
    client.send(submission("r1"));
    until([&] { return payments.hanging() == 1; });
    client.connection->close({Fault::closed, "gone"});
    until([&] { return client.closed.has_value(); });
  }
  payments.answer_hanging();
  TestClient client;
  connect(client);
  EXPECT_EQ(outcome(client, question("r1")).verdict, Verdict::committed);
}

}  // namespace
}  // namespace twofold::test
