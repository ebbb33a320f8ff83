#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <thread>

#include "client/client.h"
#include "tests/client/fake_coordinator.h"

namespace twofold::client {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{30'000};

wire::Frame scan() {
  wire::Frame frame;
  frame.mutable_scan()->set_prefix("order/");
  return frame;
}

class CallOnceTest : public testing::Test {
 protected:
  CallOnceTest() { server_.welcome.set_role(wire::ROLE_RESOURCE_MANAGER); }
  void serve(FakeCoordinator::Script script) {
    server_.script = std::move(script);
    thread_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] {
      server_.stop();
      io_.stop();
    });
    thread_.join();
  }

  boost::asio::io_context io_;
  FakeCoordinator server_{io_};
  const Address address_ = server_.address();
  std::thread thread_;
};

TEST_F(CallOnceTest, AnswersOneRequest) {
  serve([](Connection& to, const wire::Frame& request) {
    wire::Frame heartbeat;
    heartbeat.mutable_heartbeat();
    to.send(heartbeat);
    wire::Frame frame;
    frame.set_request(request.request());
    frame.mutable_scan_answer()->add_entries()->set_key(request.scan().prefix() + "1");
    to.send(frame);
  });
  const auto result = call_once(address_, scan(), kPatience, "payments");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->scan_answer().entries(0).key(), "order/1");
}

TEST_F(CallOnceTest, WhatIsNotUtf8IsNotSent) {
  serve([](Connection&, const wire::Frame&) { ADD_FAILURE() << "it was sent"; });
  wire::Frame request;
  request.mutable_scan()->set_prefix("\xff");
  const auto scanned = call_once(address_, request, kPatience);
  ASSERT_TRUE(scanned.has_error());
  EXPECT_EQ(scanned.error().fault, Fault::invalid);
  const auto greeted = call_once(address_, scan(), kPatience, "\xff");
  ASSERT_TRUE(greeted.has_error());
  EXPECT_EQ(greeted.error().fault, Fault::invalid);
}

TEST_F(CallOnceTest, SaysWhomItExpects) {
  server_.refuse = {wire::FAILURE_NOT_HERE, "this is kitchen, not payments: check the address"};
  serve({});
  const auto result = call_once(address_, scan(), kPatience, "payments");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().fault, Fault::not_found);
  EXPECT_THAT(result.error().message, HasSubstr("this is kitchen, not payments"));
  TearDown();
  EXPECT_EQ(server_.hellos.at(0).expects(), "payments");
}

// It would end the connection, with the words of a protocol and not of a person.
TEST_F(CallOnceTest, WhatTheOtherKindOfServerAnswersIsNotSent) {
  server_.welcome.set_name("payments");
  serve([](Connection&, const wire::Frame&) { ADD_FAILURE() << "it was sent"; });
  wire::Frame list, show;
  list.mutable_list();
  show.mutable_show()->set_request_id("r");
  for (const wire::Frame& request : {list, show}) {
    const auto result = call_once(address_, request, kPatience);
    ASSERT_TRUE(result.has_error());
    EXPECT_EQ(result.error().fault, Fault::invalid);
    EXPECT_EQ(result.error().message,
              to_text(address_) +
                  " is the resource manager payments, not a coordinator: give the coordinator's "
                  "address");
  }
}

TEST_F(CallOnceTest, ACoordinatorIsNotAskedForKeys) {
  server_.welcome.set_role(wire::ROLE_COORDINATOR);
  server_.welcome.set_node("main");
  serve([](Connection&, const wire::Frame&) { ADD_FAILURE() << "it was sent"; });
  const auto result = call_once(address_, scan(), kPatience);
  ASSERT_TRUE(result.has_error());
  EXPECT_THAT(result.error().message, HasSubstr("is the coordinator main, not a resource manager"));
}

TEST_F(CallOnceTest, AFailureIsAnError) {
  serve([](Connection& to, const wire::Frame& request) {
    answer(to, request, wire::FAILURE_REQUEST, "scan_bytes_max is 8 MiB");
  });
  EXPECT_EQ(call_once(address_, scan(), kPatience).error().message, "scan_bytes_max is 8 MiB");
}

TEST_F(CallOnceTest, LostBeforeTheAnswer) {
  serve([this](Connection&, const wire::Frame&) { server_.drop(); });
  const auto result = call_once(address_, scan(), kPatience);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().fault, Fault::closed);
  EXPECT_EQ(result.error().message,
            to_text(address_) + " closed the connection before it had answered: try again");
}

TEST_F(CallOnceTest, NoAnswerInTime) {
  serve({});
  const auto result = call_once(address_, scan(), milliseconds{50});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().fault, Fault::timeout);
  EXPECT_THAT(result.error().message, AllOf(HasSubstr(to_text(address_)), HasSubstr("50 ms")));
}

TEST_F(CallOnceTest, TooLargeForThePeer) {
  server_.welcome.set_frame_bytes_max(65'536);
  serve({});
  wire::Frame large = scan();
  large.mutable_scan()->set_prefix(std::string(70'000, 'x'));
  const auto result = call_once(address_, large, kPatience);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().fault, Fault::invalid);
}

TEST(CallOnce, ConnectionRefusedNamesTheAddressAndWhatToStart) {
  const Address address = unused_address();
  const auto rm = call_once(address, scan(), kPatience, "payments");
  ASSERT_FALSE(rm);
  EXPECT_THAT(rm.error().message, AllOf(HasSubstr(to_text(address)), HasSubstr("refused"),
                                        HasSubstr("tart the resource manager payments")));
  const auto coordinator = call_once(address, scan(), kPatience);
  ASSERT_FALSE(coordinator);
  EXPECT_THAT(coordinator.error().message,
              AllOf(HasSubstr(to_text(address)), HasSubstr("tart it")));
}

}  // namespace
}  // namespace twofold::client
