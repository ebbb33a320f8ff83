#include "client/link.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "protocol/check.h"
#include "protocol/convert.h"

namespace twofold::client {
namespace {

constexpr std::chrono::milliseconds kReconnectFirst{20};
constexpr std::chrono::milliseconds kReconnectMax{1'000};

// Faults that another attempt cannot mend: the peer speaks another version, or is somebody else.
bool lasting(const Error& error) {
  return error.fault == Fault::unsupported || error.fault == Fault::invalid ||
         error.fault == Fault::not_found;
}

// Unique among all clients that a coordinator meets. Not 0.
std::uint64_t draw_client_id() {
  std::uint64_t id = 0;
  while (id == 0) TWOFOLD_CHECK(getrandom(&id, sizeof id, 0) == sizeof id);
  return id;
}

}  // namespace

Link::Link(boost::asio::io_context& io, Address coordinator, std::string name,
           ConnectionOptions options)
    : io_(io),
      coordinator_(std::move(coordinator)),
      name_(std::move(name)),
      client_(draw_client_id()),
      options_(options),
      backoff_(kReconnectFirst, kReconnectMax),
      pause_(io) {}

void Link::start(Handlers handlers) {
  handlers_ = std::make_shared<const Handlers>(std::move(handlers));
  connect();
}

void Link::want() {
  if (idle_ && !stopped_) connect();
}

void Link::stop() {
  stopped_ = true;
  handlers_ = nullptr;
  pause_.cancel();
  if (auto cancel = std::exchange(cancel_connect_, nullptr)) cancel();
  if (auto connection = std::exchange(connection_, nullptr)) {
    connection->close({Fault::closed, "the client has finished"});
  }
}

Link::Sent Link::send(const wire::Frame& frame) {
  if (!connection_) return Sent::not_connected;
  if (connection_->send(frame)) return Sent::yes;
  return connection_->is_open() ? Sent::too_large : Sent::not_connected;
}

void Link::connect() {
  idle_ = false;
  wire::Hello hello;
  hello.set_role(wire::ROLE_CLIENT);
  hello.set_name(name_);
  hello.set_client(client_);
  hello.set_connection(++connections_);
  cancel_connect_ = connect_and_greet(io_, coordinator_, std::move(hello), options_,
                                      [weak = weak_from_this()](Result<Greeted> greeted) {
                                        if (auto self = weak.lock())
                                          self->on_greeted(std::move(greeted));
                                      });
}

void Link::connect_later() {
  pause_.expires_after(backoff_.next());
  pause_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    auto self = weak.lock();
    if (self && !cancelled && !self->stopped_) self->connect();
  });
}

void Link::on_greeted(Result<Greeted> greeted) {
  cancel_connect_ = nullptr;
  if (stopped_) return;
  if (!greeted) return fail(greeted.error(), lasting(greeted.error()));
  auto& [connection, welcome] = *greeted;
  if (welcome.role() != wire::ROLE_COORDINATOR) {
    const Error error{Fault::invalid, to_text(coordinator_) + " is a resource manager (" +
                                          welcome.name() +
                                          "), not a coordinator; give the coordinator's address"};
    connection->close(error);
    return fail(error, true);
  }
  on_welcome(std::move(connection), welcome);
}

void Link::on_welcome(std::shared_ptr<Connection> connection, const wire::Welcome& welcome) {
  const LogId log_id{welcome.log_id()};
  const TxnId newest = from_wire(welcome.newest());
  // TxnIds of different logs do not compare (rule 1).
  known_ = log_id == log_id_ ? std::max(known_, newest) : newest;
  log_id_ = log_id;
  frame_bytes_max_ = welcome.frame_bytes_max();
  backoff_.reset();
  connection_ = std::move(connection);
  // A frame or an end that comes from a connection that is no longer ours changes nothing.
  const auto from = [weak = weak_from_this(), which = connection_.get()] {
    auto self = weak.lock();
    return self && self->connection_.get() == which ? self : nullptr;
  };
  Connection::Handlers handlers;
  handlers.on_frame = [from](wire::Frame& frame) {
    if (auto self = from()) self->on_frame(frame);
  };
  handlers.on_closed = [from](const Error& why) {
    if (auto self = from()) self->on_closed(why);
  };
  connection_->replace_handlers(std::move(handlers));
  const auto current = handlers_;  // a handler may stop this link
  current->on_up();
}

void Link::on_frame(wire::Frame& frame) {
  if (frame.has_heartbeat()) {
    known_ = std::max(known_, from_wire(frame.heartbeat().newest()));
  } else if (frame.request() != 0) {
    const auto current = handlers_;
    current->on_frame(frame);
  }
}

void Link::on_closed(const Error& why) {
  connection_ = nullptr;
  fail(why, false);
}

void Link::fail(const Error& why, bool final) {
  idle_ = final;
  if (!final) connect_later();
  const auto current = handlers_;
  current->on_down(why, final);
}

}  // namespace twofold::client
