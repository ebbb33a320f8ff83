#include <fcntl.h>

#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "protocol/connection.h"

namespace twofold {
namespace {

namespace asio = boost::asio;
using SystemError = boost::system::error_code;

// After a failed accept: descriptors run out for longer than an instant.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

struct Listener::State : std::enable_shared_from_this<Listener::State> {
  explicit State(asio::io_context& io) : acceptor(io), pause(io) {}

  void accept() {
    acceptor.async_accept(
        [self = shared_from_this()](const SystemError& ec, asio::ip::tcp::socket socket) {
          if (!self->stopped) self->on_accepted(ec, std::move(socket));
        });
  }

  void on_accepted(const SystemError& ec, asio::ip::tcp::socket socket) {
    if (!ec) {
      ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
      // Copied: a handler that stops the listener must not destroy itself.
      const auto handler = on_socket;
      handler(std::move(socket));
    } else if (ec != asio::error::connection_aborted) {
      const auto handler = on_fault;
      handler({Fault::io, "accepting a connection on " + to_text(address) + ": " + ec.message() +
                              "; trying again"});
      if (!stopped) return accept_later();
    }
    if (!stopped) accept();
  }

  void accept_later() {
    pause.expires_after(kAcceptPause);
    pause.async_wait([self = shared_from_this()](const SystemError&) {
      if (!self->stopped) self->accept();
    });
  }

  asio::ip::tcp::acceptor acceptor;
  asio::steady_timer pause;
  Address address;
  std::function<void(asio::ip::tcp::socket)> on_socket;
  std::function<void(const Error&)> on_fault;
  bool stopped = false;
};

Listener::Listener(asio::io_context& io, const Address& address,
                   std::function<void(asio::ip::tcp::socket)> on_socket,
                   std::function<void(const Error&)> on_fault)
    : state_(std::make_shared<State>(io)) {
  State& state = *state_;
  state.on_socket = std::move(on_socket);
  state.on_fault = std::move(on_fault);
  try {
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                        asio::ip::tcp::resolver::passive);
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    state.acceptor.open(endpoint.protocol());
    ::fcntl(state.acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    state.acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true));
    state.acceptor.bind(endpoint);
    state.acceptor.listen();
    state.acceptor.non_blocking(true);
    state.address = {address.host, state.acceptor.local_endpoint().port()};
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error("cannot listen on " + to_text(address) + ": " +
                             error.code().message() +
                             "; choose a free port and an address of this machine");
  }
  state.accept();
}

Listener::~Listener() {
  stop();
}

Address Listener::address() const {
  return state_->address;
}

void Listener::stop() {
  if (std::exchange(state_->stopped, true)) return;
  SystemError ignored;
  state_->acceptor.close(ignored);
  state_->pause.cancel();
  // The handlers go from the event loop: one of them may be what called.
  asio::post(state_->acceptor.get_executor(), [state = state_] {
    state->on_socket = nullptr;
    state->on_fault = nullptr;
  });
}

}  // namespace twofold
