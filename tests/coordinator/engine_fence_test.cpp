// Two connections of one client: what still arrives on the older does not run once the newer has
// been welcomed.

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "tests/coordinator/engine_fixture.h"

namespace twofold::test {
namespace {

namespace asio = boost::asio;

// A socket whose bytes leave when the test says so.
class RawClient {
 public:
  RawClient(asio::io_context& io, const Address& address) : socket_(io) {
    socket_.connect({asio::ip::make_address(address.host), address.port});
  }
  void write(std::string_view bytes) { asio::write(socket_, asio::buffer(bytes)); }
  void write(const wire::Frame& frame) { write(encoded(frame)); }
  void end_writing() { socket_.shutdown(asio::ip::tcp::socket::shutdown_send); }
  // The next frame that is no heartbeat.
  wire::Frame read() {
    wire::Frame frame;
    do {
      std::string_view payload;
      while (!reader_.next(payload)) {
        char bytes[4096];
        boost::system::error_code ec;
        const std::size_t count = socket_.read_some(asio::buffer(bytes), ec);
        if (ec) return {};
        reader_.append({bytes, count});
      }
      EXPECT_TRUE(parse_message(payload, frame));
    } while (frame.has_heartbeat());
    return frame;
  }
  static std::string encoded(const wire::Frame& frame) {
    std::string bytes;
    append_frame(frame, bytes);
    return bytes;
  }

 private:
  asio::ip::tcp::socket socket_;
  FrameReader reader_{1u << 20};
};

class EngineFenceTest : public EngineTest {
 protected:
  static wire::Frame hello(std::uint64_t client, std::uint64_t counter) {
    wire::Frame frame;
    frame.mutable_hello()->set_version(kProtocolVersion);
    frame.mutable_hello()->set_role(wire::ROLE_CLIENT);
    frame.mutable_hello()->set_client(client);
    frame.mutable_hello()->set_connection(counter);
    return frame;
  }
  void connect_as(TestClient& client, std::uint64_t id, std::uint64_t counter) {
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::make_address(address_.host), address_.port});
    client.connection = Connection::make(std::move(socket), {});
    client.connection->start(client.handlers());
    EXPECT_TRUE(client.connection->send(hello(id, counter)));
  }
  // Until the coordinator has read to the end of every other connection.
  void until_alone(TestClient& client) {
    wire::Frame stats;
    stats.mutable_stats();
    for (std::int64_t connections = 0; connections != 1;) {
      const wire::Frame answer = call(client, stats);
      ASSERT_TRUE(answer.has_stats_answer());
      for (const auto& number : answer.stats_answer().numbers()) {
        if (number.name() == "connections") connections = number.value();
      }
    }
  }
  // A submission of which one half arrives before a newer connection is welcomed, the other half
  // after. What the newer connection is told of it then.
  Verdict told_of_a_submission_in_flight(std::uint64_t id) {
    wire::Frame submit = submission("late");
    submit.set_request(1);
    const std::string bytes = RawClient::encoded(submit);
    RawClient older(io, address_);
    older.write(hello(id, 1));
    EXPECT_TRUE(older.read().has_welcome());
    older.write(std::string_view(bytes).substr(0, bytes.size() / 2));
    TestClient newer;
    connect_as(newer, id, 2);
    EXPECT_EQ(outcome(newer, question("late")).verdict, Verdict::not_found);
    older.write(std::string_view(bytes).substr(bytes.size() / 2));
    older.end_writing();
    ended_with_ = older.read();
    until_alone(newer);
    return outcome(newer, question("late")).verdict;
  }
  wire::Frame ended_with_;  // what the older connection was told
};

TEST_F(EngineFenceTest, a_submission_in_flight_on_the_older_connection_does_not_run) {
  start_and_link();
  EXPECT_EQ(told_of_a_submission_in_flight(0xc1), Verdict::not_found);
  EXPECT_EQ(ended_with_.request(), 0u);
  EXPECT_EQ(ended_with_.failure().code(), wire::FAILURE_STALE);
  EXPECT_NE(ended_with_.failure().text().find("connection 2"), std::string::npos);
  EXPECT_EQ(orders.count("start"), 0);
  EXPECT_EQ(payments.count("start"), 0);
}

// Which shows that the test above proves something.
TEST_F(EngineFenceTest, without_an_id_it_does_run) {
  start_and_link();
  EXPECT_EQ(told_of_a_submission_in_flight(0), Verdict::committed);
}

TEST_F(EngineFenceTest, what_was_taken_before_runs_and_can_be_asked_for) {
  payments.script(wire::Frame::kStart, FakeParticipant::hang());
  start_and_link();
  TestClient older, newer;
  connect_as(older, 0xc1, 1);
  older.send(submission("taken"));
  until([&] { return payments.hanging() == 1; });
  connect_as(newer, 0xc1, 2);
  until([&] { return older.closed.has_value(); });
  EXPECT_EQ(older.failure->code(), wire::FAILURE_STALE);
  payments.answer_hanging();
  EXPECT_EQ(outcome(newer, question("taken")).verdict, Verdict::committed);
}

TEST_F(EngineFenceTest, late_connections_are_refused_while_a_newer_is_open_and_after) {
  start_and_link();
  TestClient bystander;
  connect(bystander);
  {
    RawClient newer(io, address_);
    newer.write(hello(0xc1, 7));
    EXPECT_TRUE(newer.read().has_welcome());
    // This one does not wait for Welcome.
    RawClient late(io, address_);
    wire::Frame submit = submission("late");
    submit.set_request(1);
    late.write(RawClient::encoded(hello(0xc1, 7)) + RawClient::encoded(submit));
    EXPECT_EQ(late.read().failure().code(), wire::FAILURE_STALE);
  }
  until_alone(bystander);
  RawClient late(io, address_);
  wire::Frame submit = submission("late");
  submit.set_request(1);
  late.write(RawClient::encoded(hello(0xc1, 6)) + RawClient::encoded(submit));
  const wire::Frame refused = late.read();
  EXPECT_EQ(refused.failure().code(), wire::FAILURE_STALE);
  EXPECT_NE(refused.failure().text().find("connection 7"), std::string::npos);
  late.end_writing();
  until_alone(bystander);
  EXPECT_EQ(outcome(bystander, question("late")).verdict, Verdict::not_found);
}

}  // namespace
}  // namespace twofold::test
