// The handshake, from both ends: connect_and_greet() for whoever connects, check_hello() for
// whoever accepts.
#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <limits>
#include <utility>

#include "protocol/connection.h"
#include "protocol/convert.h"
#include "protocol/xid.h"

namespace twofold {
namespace {

namespace asio = boost::asio;
using SystemError = boost::system::error_code;
using Greeted = std::pair<std::shared_ptr<Connection>, wire::Welcome>;

std::uint32_t to_u32(std::size_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  Greeting(asio::io_context& io, Address address, wire::Hello hello, ConnectionOptions options,
           std::function<void(Result<Greeted>)> done)
      : address_(std::move(address)),
        options_(options),
        socket_(io),
        resolver_(io),
        timer_(io),
        done_(std::move(done)) {
    *hello_.mutable_hello() = std::move(hello);
  }

  void begin() {
    if (!has_valid_texts(hello_)) {
      return give_up({Fault::invalid, "a name that " + to_text(address_) +
                                          " was to be greeted with is not UTF-8: correct it"});
    }
    timer_.expires_after(options_.handshake_max);
    timer_.async_wait([self = shared_from_this()](const SystemError& ec) {
      if (ec) return;
      self->give_up({Fault::timeout, to_text(self->address_) +
                                         " did not finish the handshake within " +
                                         std::to_string(self->options_.handshake_max.count()) +
                                         " ms: is it a Twofold server, and not stopped?"});
    });
    SystemError ec;
    const auto numeric = asio::ip::make_address(address_.host, ec);
    if (!ec)
      return connect(asio::ip::tcp::resolver::results_type::create(
          asio::ip::tcp::endpoint(numeric, address_.port), address_.host, ""));
    resolver_.async_resolve(
        address_.host, std::to_string(address_.port),
        [self = shared_from_this()](const SystemError& failed,
                                    const asio::ip::tcp::resolver::results_type& found) {
          if (self->finished_) return;
          if (!failed) return self->connect(found);
          self->give_up(
              {Fault::io, "cannot find " + to_text(self->address_) + ": " + failed.message()});
        });
  }

  // Ends it without success; `done` follows from the event loop.
  void give_up(Error why) {
    if (finished_) return;
    finish();
    if (connection_) std::exchange(connection_, nullptr)->close(why);
    asio::post(timer_.get_executor(), [self = shared_from_this(), why = std::move(why)] {
      std::exchange(self->done_, nullptr)(why);
    });
  }

 private:
  void connect(const asio::ip::tcp::resolver::results_type& found) {
    asio::async_connect(socket_, found,
                        [self = shared_from_this()](const SystemError& ec, const auto&) {
                          if (!self->finished_) self->on_connected(ec);
                        });
  }

  void on_connected(const SystemError& ec) {
    if (ec) {
      return give_up({Fault::closed, "cannot connect to " + to_text(address_) + ": " +
                                         ec.message() + "; is it running there?"});
    }
    wire::Hello& hello = *hello_.mutable_hello();
    hello.set_version(kProtocolVersion);
    hello.set_heartbeat_ms(to_u32(static_cast<std::size_t>(options_.heartbeat.count())));
    hello.set_frame_bytes_max(to_u32(options_.frame_bytes_max));
    connection_ = Connection::make(std::move(socket_), options_);
    // The timer keeps this alive; were it the connection as well, each would keep the other.
    Connection::Handlers handlers;
    handlers.on_frame = [weak = weak_from_this()](wire::Frame& frame) {
      if (const auto self = weak.lock()) self->on_frame(frame);
    };
    handlers.on_closed = [weak = weak_from_this()](const Error& why) {
      if (const auto self = weak.lock()) self->give_up(self->without_welcome(why));
    };
    connection_->start(std::move(handlers));
    connection_->send(hello_);
  }

  Error without_welcome(Error why) const {
    if (why.fault == Fault::closed) {
      why.message += " before it had greeted: is it a Twofold server, and not just stopping?";
    }
    return why;
  }

  void on_frame(wire::Frame& frame) {
    if (finished_ || frame.has_heartbeat()) return;  // a slow server says meanwhile that it lives
    if (frame.has_failure()) return give_up(to_error(frame.failure()));
    if (!frame.has_welcome()) {
      connection_->fail(wire::FAILURE_HANDSHAKE, "Welcome was expected as the first answer");
      return give_up({Fault::invalid,
                      to_text(address_) +
                          " answered something else than Welcome: " + "is it a Twofold server?"});
    }
    if (frame.welcome().version() != kProtocolVersion) {
      return give_up({Fault::unsupported,
                      to_text(address_) + " speaks protocol version " +
                          std::to_string(frame.welcome().version()) + ", this program version " +
                          std::to_string(kProtocolVersion) + ": upgrade the older one"});
    }
    connection_->set_peer_limit(frame.welcome().frame_bytes_max());
    connection_->hold();
    finish();
    Greeted greeted(std::exchange(connection_, nullptr), std::move(*frame.mutable_welcome()));
    std::exchange(done_, nullptr)(std::move(greeted));
  }

  void finish() {
    finished_ = true;
    timer_.cancel();
    resolver_.cancel();
    SystemError ignored;
    socket_.close(ignored);
  }

  Address address_;
  wire::Frame hello_;
  ConnectionOptions options_;
  asio::ip::tcp::socket socket_;
  asio::ip::tcp::resolver resolver_;
  asio::steady_timer timer_;
  std::shared_ptr<Connection> connection_;
  std::function<void(Result<Greeted>)> done_;
  bool finished_ = false;
};

// What is missing in a coordinator's Hello; null: nothing.
const char* missing_in(const wire::Hello& hello) {
  if (hello.node().empty() || hello.node().size() > kNodeBytesMax) {
    return "a node name of 1 to 32 bytes";
  }
  if (hello.log_id() == 0) return "a log id";
  if (hello.epoch() == 0) return "an epoch above 0";
  if (hello.session() == 0) return "a session above 0";
  return nullptr;
}

}  // namespace

std::function<void()> connect_and_greet(asio::io_context& io, const Address& address,
                                        wire::Hello hello, ConnectionOptions options,
                                        std::function<void(Result<Greeted>)> done) {
  auto greeting =
      std::make_shared<Greeting>(io, address, std::move(hello), options, std::move(done));
  greeting->begin();
  return [weak = std::weak_ptr(greeting), address] {
    if (const auto running = weak.lock()) {
      running->give_up({Fault::closed, "connecting to " + to_text(address) + " was cancelled"});
    }
  };
}

wire::FailureCode check_hello(const wire::Frame& frame, std::string& text) {
  if (!frame.has_hello()) {
    text = "the first frame must be Hello";
    return wire::FAILURE_HANDSHAKE;
  }
  const wire::Hello& hello = frame.hello();
  if (hello.version() != kProtocolVersion) {
    text = "protocol version " + std::to_string(hello.version()) + " is not spoken here, version " +
           std::to_string(kProtocolVersion) + " is: upgrade the older side";
    return wire::FAILURE_VERSION;
  }
  if (hello.role() < wire::ROLE_COORDINATOR || hello.role() > wire::ROLE_CLIENT) {
    text = "Hello names no role that is known here: coordinator, resource manager or client";
    return wire::FAILURE_HANDSHAKE;
  }
  if (hello.role() == wire::ROLE_CLIENT && hello.client() != 0 && hello.connection() == 0) {
    text = "a client that gives its id needs a connection counter above 0";
    return wire::FAILURE_HANDSHAKE;
  }
  const char* missing = hello.role() == wire::ROLE_COORDINATOR ? missing_in(hello) : nullptr;
  if (missing) {
    text = std::string("a coordinator's Hello needs ") + missing;
    return wire::FAILURE_HANDSHAKE;
  }
  return wire::FAILURE_UNSPECIFIED;
}

}  // namespace twofold
