#include "client/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/fake_coordinator.h"

namespace twofold::client {
namespace {

using ::testing::HasSubstr;

class LinkTest : public testing::Test {
 protected:
  void SetUp() override { start(coordinator_.address()); }
  void TearDown() override { link_->stop(); }

  void start(const Address& address) {
    if (link_) link_->stop();
    link_ = std::make_shared<Link>(io_, address, "test", ConnectionOptions{});
    Link::Handlers handlers;
    handlers.on_up = [this] { ++ups_; };
    handlers.on_down = [this](const Error& why, bool final) {
      ++downs_;
      why_ = why.message;
      final_ = final;
    };
    handlers.on_frame = [this](wire::Frame& frame) { frames_.push_back(frame); };
    link_->start(std::move(handlers));
  }
  void until_ups(int ups) {
    run_until(io_, [&] { return ups_ >= ups; });
  }
  void until_downs(int downs) {
    run_until(io_, [&] { return downs_ >= downs; });
  }

  boost::asio::io_context io_;
  FakeCoordinator coordinator_{io_};
  std::shared_ptr<Link> link_;
  int ups_ = 0, downs_ = 0;
  std::string why_;
  bool final_ = false;
  std::vector<wire::Frame> frames_;
};

TEST_F(LinkTest, GreetsAsAClientAndLearnsOfTheLog) {
  EXPECT_EQ(link_->known(), TxnId{});
  until_ups(1);
  EXPECT_TRUE(link_->connected());
  EXPECT_EQ(link_->known(), (TxnId{3, 10}));
  EXPECT_EQ(link_->log_id(), LogId{77});
  EXPECT_EQ(link_->frame_bytes_max(), 1u << 20);
  EXPECT_EQ(coordinator_.hellos.at(0).role(), wire::ROLE_CLIENT);
  EXPECT_EQ(coordinator_.hellos.at(0).name(), "test");
  EXPECT_NE(coordinator_.hellos.at(0).client(), 0u);
  EXPECT_EQ(coordinator_.hellos.at(0).connection(), 1u);
}

// So that the coordinator takes nothing from the older connection any more.
TEST_F(LinkTest, EveryConnectionHasAHigherCounterOfTheSameClient) {
  until_ups(1);
  coordinator_.drop();
  until_ups(2);
  ASSERT_EQ(coordinator_.hellos.size(), 2u);
  EXPECT_EQ(coordinator_.hellos[1].client(), coordinator_.hellos[0].client());
  EXPECT_GT(coordinator_.hellos[1].connection(), coordinator_.hellos[0].connection());
  start(coordinator_.address());  // another client
  until_ups(3);
  EXPECT_NE(coordinator_.hellos.at(2).client(), coordinator_.hellos[0].client());
}

TEST_F(LinkTest, AsStaleItConnectsAgain) {
  until_ups(1);
  coordinator_.connection().fail(wire::FAILURE_STALE, "fenced");
  until_downs(1);
  EXPECT_FALSE(final_);
  until_ups(2);
}

TEST_F(LinkTest, ComesBackAfterALoss) {
  until_ups(1);
  coordinator_.drop();
  until_downs(1);
  EXPECT_FALSE(final_);
  EXPECT_FALSE(link_->connected());
  EXPECT_EQ(link_->send(wire::Frame{}), Link::Sent::not_connected);
  until_ups(2);
  EXPECT_TRUE(link_->connected());
}

TEST_F(LinkTest, KeepsTryingUntilSomebodyListens) {
  const Address address = coordinator_.address();
  until_ups(1);
  coordinator_.stop();
  until_downs(3);
  EXPECT_THAT(why_, HasSubstr(to_text(address)));
  coordinator_.listen();
  until_ups(2);
}

TEST_F(LinkTest, ATransientRefusalIsTriedAgain) {
  coordinator_.refuse = {wire::FAILURE_BUSY, "too many connections"};
  until_downs(2);
  EXPECT_EQ(why_, "too many connections");
  EXPECT_FALSE(final_);
  coordinator_.refuse.reset();
  until_ups(1);
}

TEST_F(LinkTest, AnotherVersionIsFinalUntilWanted) {
  coordinator_.refuse = {wire::FAILURE_VERSION, "upgrade the older side"};
  until_downs(1);
  EXPECT_TRUE(final_);
  EXPECT_EQ(why_, "upgrade the older side");
  coordinator_.refuse.reset();
  link_->want();
  link_->want();  // once is enough
  until_ups(1);
  EXPECT_EQ(coordinator_.hellos.size(), 2u);
}

TEST_F(LinkTest, AResourceManagerIsNotACoordinator) {
  coordinator_.welcome.set_role(wire::ROLE_RESOURCE_MANAGER);
  coordinator_.welcome.set_name("payments");
  until_downs(1);
  EXPECT_TRUE(final_);
  EXPECT_THAT(why_, HasSubstr("payments"));
  EXPECT_THAT(why_, HasSubstr("not a coordinator"));
}

TEST_F(LinkTest, HeartbeatsRaiseWhatIsKnownAndNeverLowerIt) {
  until_ups(1);
  for (const TxnId id : {TxnId{3, 25}, TxnId{3, 20}}) {
    wire::Frame frame;
    to_wire(id, *frame.mutable_heartbeat()->mutable_newest());
    coordinator_.connection().send(frame);
  }
  wire::Frame last;
  last.set_request(1);
  last.mutable_stats_answer();
  coordinator_.connection().send(last);
  run_until(io_, [&] { return !frames_.empty(); });
  EXPECT_EQ(frames_.size(), 1u);
  EXPECT_EQ(link_->known(), (TxnId{3, 25}));
}

TEST_F(LinkTest, AnotherLogStartsOverWithWhatIsKnown) {
  until_ups(1);
  coordinator_.welcome.set_log_id(78);
  to_wire(TxnId{1, 2}, *coordinator_.welcome.mutable_newest());
  coordinator_.drop();
  until_ups(2);
  EXPECT_EQ(link_->log_id(), LogId{78});
  EXPECT_EQ(link_->known(), (TxnId{1, 2}));
}

TEST_F(LinkTest, SaysWhatTheCoordinatorDoesNotAccept) {
  coordinator_.welcome.set_frame_bytes_max(100'000);
  until_ups(1);
  wire::Frame large;
  large.mutable_submit()->set_request_id(std::string(100'001, 'x'));
  EXPECT_EQ(link_->send(large), Link::Sent::too_large);
  EXPECT_TRUE(link_->connected());
}

TEST_F(LinkTest, AFailureBeforeTheEndIsTheReason) {
  until_ups(1);
  coordinator_.connection().fail(wire::FAILURE_SHUTDOWN, "the coordinator is shutting down");
  until_downs(1);
  EXPECT_THAT(why_, HasSubstr("the coordinator is shutting down"));
  EXPECT_FALSE(final_);
}

TEST_F(LinkTest, StoppedWhileConnectingItStaysSilent) {
  link_->stop();
  io_.poll();
  EXPECT_EQ(ups_ + downs_, 0);
}

}  // namespace
}  // namespace twofold::client
