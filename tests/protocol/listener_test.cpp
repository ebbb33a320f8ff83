#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>

#include "protocol/connection.h"
#include "tests/protocol/net.h"

namespace twofold {
namespace {

test::Socket connected(test::Net& net, const Address& address) {
  test::Socket socket(net.io);
  socket.connect({boost::asio::ip::make_address(address.host), address.port});
  return socket;
}

TEST(Listener, AcceptsOnAPortOfItsOwnChoice) {
  test::Net net;
  std::vector<test::Socket> accepted;
  Listener listener(
      net.io, {"127.0.0.1", 0}, [&](test::Socket socket) { accepted.push_back(std::move(socket)); },
      [](const Error& error) { ADD_FAILURE() << error.message; });
  EXPECT_NE(listener.address().port, 0);
  const auto first = connected(net, listener.address());
  const auto second = connected(net, listener.address());
  net.run_until([&] { return accepted.size() == 2; });
  for (auto& socket : accepted) {
    EXPECT_TRUE(::fcntl(socket.native_handle(), F_GETFD) & FD_CLOEXEC);
  }
}

TEST(Listener, AnAddressInUseSaysSo) {
  test::Net net;
  Listener first(
      net.io, {"127.0.0.1", 0}, [](test::Socket) {}, [](const Error&) {});
  try {
    Listener second(
        net.io, first.address(), [](test::Socket) {}, [](const Error&) {});
    ADD_FAILURE() << "a second listener on the same port";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(to_text(first.address())), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos);
  }
}

TEST(Listener, MayBeStoppedAndDestroyedByItsHandler) {
  test::Net net;
  int accepted = 0;
  std::optional<Listener> listener;
  listener.emplace(
      net.io, Address{"127.0.0.1", 0},
      [&](test::Socket) {
        listener.reset();
        ++accepted;
      },
      [](const Error&) { ADD_FAILURE(); });
  const Address address = listener->address();
  const auto one = connected(net, address);
  const auto two = connected(net, address);
  net.run_until([&] { return accepted > 0; });
  net.run_ready();
  EXPECT_EQ(accepted, 1);
  test::Socket late(net.io);
  boost::system::error_code ec;
  late.connect({boost::asio::ip::make_address(address.host), address.port}, ec);
  EXPECT_TRUE(ec);
}

// UBSan's check of virtual calls opens a pipe: it cannot run where there is no descriptor left.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define TWOFOLD_WITH_UBSAN
#endif
#endif
#ifndef TWOFOLD_WITH_UBSAN
TEST(Listener, OutOfDescriptorsIsToldAndTriedAgain) {
  test::Net net;
  int accepted = 0;
  std::vector<Error> faults;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Listener listener(
      net.io, {"127.0.0.1", 0}, [&](test::Socket) { ++accepted; },
      [&](const Error& error) {
        faults.push_back(error);
        ::setrlimit(RLIMIT_NOFILE, &before);
      });
  const auto waiting = connected(net, listener.address());
  const int next = ::dup(0);
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  net.run_until([&] { return accepted == 1; });
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].message.find(to_text(listener.address())), std::string::npos);
}
#endif

}  // namespace
}  // namespace twofold
