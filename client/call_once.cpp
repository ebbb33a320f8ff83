#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "client/client.h"
#include "protocol/convert.h"

namespace twofold::client {
namespace {

// One conversation on an io_context of its own; finished when `answer` is there.
struct Conversation {
  boost::asio::io_context io;
  std::shared_ptr<Connection> connection;
  std::optional<Result<wire::Frame>> answer;

  void finish(Result<wire::Frame> result) {
    if (answer) return;
    answer = std::move(result);
    io.stop();
  }
};

std::string how_to_start(const std::string& expects) {
  if (expects.empty()) return " Start it, or give the address of one that runs";
  return " Start the resource manager " + expects + ", or give the address where it runs";
}

// What only one of the two kinds of server answers, sent to the other: it would end the connection.
std::optional<Error> wrong_server(const Address& address, const wire::Welcome& welcome,
                                  const wire::Frame& request) {
  const bool coordinator = welcome.role() == wire::ROLE_COORDINATOR;
  if (coordinator && (request.has_scan() || request.has_locks() || request.has_in_doubt())) {
    return Error{Fault::invalid, to_text(address) + " is the coordinator " + welcome.node() +
                                     ", not a resource manager: give a resource manager's address"};
  }
  if (!coordinator && (request.has_list() || request.has_show())) {
    return Error{Fault::invalid, to_text(address) + " is the resource manager " + welcome.name() +
                                     ", not a coordinator: give the coordinator's address"};
  }
  return std::nullopt;
}

void converse(Conversation& talk, const wire::Frame& request) {
  Connection::Handlers handlers;
  handlers.on_frame = [&talk, id = request.request()](wire::Frame& frame) {
    if (frame.request() != id) return;  // heartbeats, and a Failure that ends the connection
    if (frame.has_failure()) return talk.finish(to_error(frame.failure()));
    talk.finish(std::move(frame));
  };
  handlers.on_closed = [&talk](Error why) {
    if (why.fault == Fault::closed) why.message += " before it had answered: try again";
    talk.finish(std::move(why));
  };
  talk.connection->replace_handlers(std::move(handlers));
  if (talk.connection->send(request) || !talk.connection->is_open()) return;
  talk.finish(Error{Fault::invalid, talk.connection->peer() + " does not accept a request of " +
                                        std::to_string(request.ByteSizeLong()) + " bytes"});
}

}  // namespace

Result<wire::Frame> call_once(const Address& address, wire::Frame request,
                              std::chrono::milliseconds timeout, const std::string& expects) {
  if (!has_valid_texts(request)) {
    return Error{Fault::invalid,
                 "a text in this request is not UTF-8, so it names nothing: correct it"};
  }
  Conversation talk;
  request.set_request(1);
  boost::asio::steady_timer deadline(talk.io, timeout);
  deadline.async_wait([&](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    talk.finish(Error{Fault::timeout, to_text(address) + " did not answer within " +
                                          std::to_string(timeout.count()) +
                                          " ms; it may be stopped or busy: try again"});
  });
  wire::Hello hello;
  hello.set_role(wire::ROLE_CLIENT);
  hello.set_name("client");
  hello.set_expects(expects);
  ConnectionOptions options;
  options.handshake_max = timeout;
  connect_and_greet(talk.io, address, std::move(hello), options,
                    [&](Result<std::pair<std::shared_ptr<Connection>, wire::Welcome>> greeted) {
                      if (greeted) {
                        talk.connection = std::move(greeted->first);
                        if (auto wrong = wrong_server(address, greeted->second, request)) {
                          talk.connection->close(*wrong);
                          return talk.finish(std::move(*wrong));
                        }
                        return converse(talk, request);
                      }
                      Error error = greeted.error();
                      if (error.fault == Fault::closed) error.message += how_to_start(expects);
                      talk.finish(std::move(error));
                    });
  talk.io.run();
  return std::move(*talk.answer);
}

}  // namespace twofold::client
