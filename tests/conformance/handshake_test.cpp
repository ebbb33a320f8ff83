// "The handshake" of docs/protocol.md, and what a connection may carry.
#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

TEST_P(Participant, WelcomeSaysWhoIsHere) {
  auto main = session();
  EXPECT_EQ(main->welcome().version(), 1u);
  EXPECT_EQ(main->welcome().role(), wire::ROLE_RESOURCE_MANAGER);
  EXPECT_EQ(main->welcome().name(), kName);
  EXPECT_NE(main->welcome().incarnation(), 0u);
  EXPECT_NE(main->welcome().store_id(), 0u);
  auto other = client();
  EXPECT_EQ(other->welcome().incarnation(), main->welcome().incarnation());
  EXPECT_EQ(other->welcome().store_id(), main->welcome().store_id());
}

TEST_P(Participant, TheIncarnationIsOfTheProcessAndTheStoreIdOfTheData) {
  const wire::Welcome before = client()->welcome();
  restart();
  const wire::Welcome after = client()->welcome();
  EXPECT_NE(after.incarnation(), before.incarnation());
  EXPECT_EQ(after.store_id(), before.store_id());
}

TEST_P(Participant, AHelloForSomebodyElseIsRefused) {
  wire::Hello hello = coordinator_hello(1);
  hello.set_expects("orders");
  EXPECT_TRUE(connect(hello)->refused());
  hello.set_expects(kName);
  EXPECT_FALSE(connect(hello)->refused());
}

TEST_P(Participant, ACoordinatorSaysWhoItIs) {
  wire::Hello hello = coordinator_hello(1);
  hello.clear_node();
  EXPECT_TRUE(connect(hello)->refused());
  hello = coordinator_hello(1, 1, std::string(33, 'n'));
  EXPECT_TRUE(connect(hello)->refused());
  hello = coordinator_hello(1);
  hello.clear_log_id();
  EXPECT_TRUE(connect(hello)->refused());
  hello = coordinator_hello(1);
  hello.clear_epoch();
  EXPECT_TRUE(connect(hello)->refused());
  EXPECT_TRUE(connect(coordinator_hello(0))->refused());
}

TEST_P(Participant, ASecondHelloEndsTheConnection) {
  auto main = session();
  wire::Frame frame;
  *frame.mutable_hello() = coordinator_hello(9);
  main->send_as_is(frame);
  main->wait_closed();
}

// And nothing else: others go on.
TEST_P(Participant, AVerbWithoutASessionEndsItsConnection) {
  auto main = session();
  for (const wire::Frame& verb :
       {FakePeer::start(branch_xid(1), {write("k", 1)}), FakePeer::commit(branch_xid(1)),
        FakePeer::recover_frame(true, 10), FakePeer::ask_outcome(branch_xid(1))}) {
    auto other = client();
    other->send(verb);
    other->wait_closed();
  }
  EXPECT_TRUE(main->recover().empty());
}

TEST_P(Participant, AQuestionWithoutARequestNumberEndsItsConnection) {
  auto main = session();
  main->send_as_is(FakePeer::commit(branch_xid(1)));
  main->wait_closed();
}

TEST_P(Participant, AMessageForACoordinatorEndsItsConnection) {
  auto other = client();
  wire::Frame frame;
  frame.mutable_begin();
  other->send(frame);
  other->wait_closed();
}

}  // namespace
}  // namespace twofold::conformance
