#include "coordinator/client_server.h"

#include <algorithm>
#include <utility>

#include "coordinator/statistics.h"
#include "protocol/convert.h"
#include "protocol/utf8.h"
#include "runtime/logging.h"

namespace twofold::coordinator {
namespace {

// Every client accepts a frame of this and more.
constexpr std::size_t kDetailBytesMax = 4096;

constexpr std::size_t kOpenTold = 100;  // by a DrainAnswer
constexpr std::size_t kListDefault = 1'000;
constexpr std::size_t kListMax = 10'000;
constexpr std::uint64_t kAgeMsMax = 86'400'000ull * 365;  // a year: nobody's clock adds up to more

wire::Frame failure(std::uint64_t request, wire::FailureCode code, std::string text) {
  wire::Frame frame;
  frame.set_request(request);
  frame.mutable_failure()->set_code(code);
  frame.mutable_failure()->set_text(std::move(text));
  return frame;
}

}  // namespace

ClientServer::ClientServer(Driver& driver, ClientServerOptions options)
    : driver_(driver),
      options_(std::move(options)),
      fence_(options_.clients_remembered_max),
      listener_(
          driver.io(), options_.listen,
          [this](boost::asio::ip::tcp::socket socket) { accepted(std::move(socket)); },
          [](const Error& why) { spdlog::error("cannot accept a client: {}", why.message); }) {}

ClientServer::~ClientServer() {
  close();
}

void ClientServer::close() {
  if (std::exchange(closing_, true)) return;
  listener_.stop();
  // Clients that do not read are given one second, all together.
  const Time until = monotonic_now() + std::chrono::seconds{1};
  for (auto& [id, client] : clients_) {
    if (monotonic_now() < until) client.connection->flush_blocking();
    client.connection->replace_handlers({});
    client.connection->close({Fault::closed, "the coordinator ends"});
  }
  clients_.clear();
}

// ---- connections
// -----------------------------------------------------------------------------------

void ClientServer::accepted(boost::asio::ip::tcp::socket socket) {
  const std::uint64_t id = ++last_id_;
  Client& client = clients_[id];
  client.connection = Connection::make(std::move(socket), options_.connection);
  client.greeting.emplace(driver_.io(), options_.connection.handshake_max);
  client.greeting->async_wait([this, id](const boost::system::error_code& cancelled) {
    if (!cancelled) greeting_time_over(id);
  });
  Connection::Handlers handlers;
  handlers.on_frame = [this, id](wire::Frame& frame) { received(id, frame); };
  handlers.on_closed = [this, id](const Error& why) { closed(id, why); };
  handlers.fill_heartbeat = [this](wire::Heartbeat& beat) {
    to_wire(driver_.newest(), *beat.mutable_newest());
  };
  client.connection->start(std::move(handlers));
  if (clients_.size() > options_.connections_max) {
    end(client, wire::FAILURE_BUSY,
        std::to_string(options_.connections_max) +
            " clients are connected, the most this coordinator serves (connections_max): try "
            "later");
  }
}

void ClientServer::greeting_time_over(std::uint64_t id) {
  auto found = clients_.find(id);
  if (found == clients_.end() || found->second.refused) return;
  end(found->second, wire::FAILURE_HANDSHAKE, "no Hello came in time; send it first");
}

void ClientServer::closed(std::uint64_t id, const Error& why) {
  auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const Client& client = found->second;
  spdlog::debug("client {} at {}: connection closed: {}", client.name, client.connection->peer(),
                why.message);
  add(earlier_traffic_, client.connection->counters());
  if (client.client != 0) fence_.closed(client.client, id);
  clients_.erase(found);  // its open requests stay counted until the core has answered them
}

void ClientServer::end(Client& client, wire::FailureCode code, const std::string& text) {
  spdlog::warn("client {} at {}: connection ended: {}", client.name, client.connection->peer(),
               text);
  client.refused = true;
  client.greeting.reset();
  client.connection->fail(code, text);
}

// ---- requests
// --------------------------------------------------------------------------------------

void ClientServer::received(std::uint64_t id, wire::Frame& frame) {
  auto found = clients_.find(id);
  if (found == clients_.end() || found->second.refused) return;
  Client& client = found->second;
  if (!client.greeted) return greet(id, client, frame);
  if (frame.has_failure() && frame.request() == 0) return;  // the connection ends with its text
  switch (frame.body_case()) {
    case wire::Frame::kHeartbeat: return;
    case wire::Frame::kHello:
      return end(client, wire::FAILURE_HANDSHAKE, "a second Hello; open another connection for it");
    case wire::Frame::kSubmit:
    case wire::Frame::kAsk:
    case wire::Frame::kBegin:
    case wire::Frame::kEnlist:
    case wire::Frame::kFinish:
    case wire::Frame::kDrain:
    case wire::Frame::kList:
    case wire::Frame::kShow:
    case wire::Frame::kStats: break;
    default:
      return end(client, wire::FAILURE_UNKNOWN_MESSAGE,
                 "message " + std::to_string(frame.body_case()) +
                     " is nothing that a coordinator takes from a client");
  }
  const std::uint64_t request = frame.request();
  if (request == 0) {
    return end(client, wire::FAILURE_REQUEST,
               "a request without a number cannot be answered; number requests from 1");
  }
  switch (frame.body_case()) {
    case wire::Frame::kSubmit: return submit(id, client, request, *frame.mutable_submit());
    case wire::Frame::kAsk: return ask(id, client, request, *frame.mutable_ask());
    case wire::Frame::kBegin: return begin(id, client, request, frame.begin());
    case wire::Frame::kEnlist: return enlist(id, client, request, *frame.mutable_enlist());
    case wire::Frame::kFinish: return finish(id, client, request, *frame.mutable_finish());
    case wire::Frame::kDrain: return drain(id, client, request, frame.drain());
    case wire::Frame::kList: return list(client, request, frame.list());
    case wire::Frame::kShow: return show(client, request, frame.show());
    default: return stats(client, request);
  }
}

void ClientServer::greet(std::uint64_t id, Client& client, const wire::Frame& frame) {
  std::string text;
  if (wire::FailureCode code = check_hello(frame, text); code != wire::FAILURE_UNSPECIFIED) {
    return end(client, code, text);
  }
  const wire::Hello& hello = frame.hello();
  client.name = hello.name();
  if (!hello.expects().empty()) {
    return end(client, wire::FAILURE_NOT_HERE,
               "this is the coordinator " + options_.welcome.node() +
                   ", not the resource manager " + hello.expects() + ": correct the address");
  }
  if (hello.role() != wire::ROLE_CLIENT) {
    return end(client, wire::FAILURE_HANDSHAKE,
               "a coordinator serves clients only; correct the address or the role");
  }
  const auto silence = static_cast<std::uint64_t>(options_.connection.silence_max.count());
  if (hello.heartbeat_ms() >= silence) {
    return end(client, wire::FAILURE_HANDSHAKE,
               "heartbeats every " + std::to_string(hello.heartbeat_ms()) +
                   " ms are too rare: this side closes after " + std::to_string(silence) +
                   " ms of silence");
  }
  if (hello.client() != 0 && !fence(id, client, hello)) return;
  client.greeted = true;
  client.greeting.reset();
  client.connection->set_peer_limit(hello.frame_bytes_max());
  spdlog::debug("client {} at {}: connected as {}", client.name, client.connection->peer(), id);
  wire::Frame answer;
  *answer.mutable_welcome() = options_.welcome;
  to_wire(driver_.newest(), *answer.mutable_welcome()->mutable_newest());
  client.connection->send(answer);
}

bool ClientServer::fence(std::uint64_t id, Client& client, const wire::Hello& hello) {
  const auto admission = fence_.admit(hello.client(), hello.connection(), id);
  if (!admission.admitted) {
    end(client, wire::FAILURE_STALE,
        "connection " + std::to_string(hello.connection()) +
            " of this client is not newer than its connection " + std::to_string(admission.newest) +
            ": connect again with a higher counter");
    return false;
  }
  client.client = hello.client();
  const auto older = clients_.find(admission.fenced);
  if (older != clients_.end() && !older->second.refused) {
    end(older->second, wire::FAILURE_STALE,
        "fenced: connection " + std::to_string(hello.connection()) +
            " of the same client has taken over");
  }
  return true;
}

bool ClientServer::open(Client& client, std::uint64_t request, Open::Kind kind) {
  if (requests_open_ >= options_.requests_max) {
    refuse(
        client, request, wire::FAILURE_BUSY,
        std::to_string(requests_open_) +
            " requests are open, the most this coordinator keeps: nothing has happened, try later");
    return false;
  }
  if (!client.open.try_emplace(request, Open{monotonic_now(), kind}).second) {
    end(client, wire::FAILURE_REQUEST,
        "request " + std::to_string(request) +
            " is open already; give each request its own number");
    return false;
  }
  ++requests_open_;
  return true;
}

void ClientServer::submit(std::uint64_t id, Client& client, std::uint64_t request,
                          wire::Submit& submit) {
  if (submit.reply_at() != wire::REPLY_AT_DECISION && submit.reply_at() != wire::REPLY_AT_END) {
    return refuse(client, request, wire::FAILURE_REQUEST,
                  "a submission is answered at its decision or at its end: correct reply_at");
  }
  const bool at_end = submit.reply_at() == wire::REPLY_AT_END;
  if (!open(client, request, at_end ? Open::Kind::submit_at_end : Open::Kind::submit_at_decision)) {
    return;
  }
  Submit event;
  event.requester = {id, request};
  event.request_id = std::move(*submit.mutable_request_id());
  event.branches.reserve(static_cast<std::size_t>(submit.branches_size()));
  for (wire::SubmittedBranch& branch : *submit.mutable_branches()) {
    event.branches.push_back({std::move(*branch.mutable_rm()), std::move(*branch.mutable_work())});
  }
  event.timeout = std::chrono::milliseconds{submit.timeout_ms()};
  event.reply_at_end = at_end;
  event.known = from_wire(submit.known());
  event.age = std::chrono::milliseconds{std::min<std::uint64_t>(submit.age_ms(), kAgeMsMax)};
  driver_.post(std::move(event));
}

void ClientServer::ask(std::uint64_t id, Client& client, std::uint64_t request, wire::Ask& ask) {
  OutcomeAsked event;
  switch (ask.reply_at()) {
    case wire::REPLY_AT_DECISION: event.when = OutcomeAsked::When::at_decision; break;
    case wire::REPLY_AT_END: event.when = OutcomeAsked::When::at_end; break;
    case wire::REPLY_NOW: event.when = OutcomeAsked::When::now; break;
    default:
      return refuse(client, request, wire::FAILURE_REQUEST,
                    "it is not known when to answer: correct reply_at");
  }
  switch (ask.of_case()) {
    case wire::Ask::kRequestId: event.request_id = std::move(*ask.mutable_request_id()); break;
    case wire::Ask::kGtrid: event.gtrid = std::move(*ask.mutable_gtrid()); break;
    case wire::Ask::OF_NOT_SET: break;
  }
  if (event.request_id.empty() && event.gtrid.empty()) {
    return refuse(client, request, wire::FAILURE_REQUEST,
                  "whose outcome? give a request id or a gtrid");
  }
  if (!open(client, request, Open::Kind::ask)) return;
  event.requester = {id, request};
  event.known = from_wire(ask.known());
  driver_.post(std::move(event));
}

void ClientServer::begin(std::uint64_t id, Client& client, std::uint64_t request,
                         const wire::Begin& begin) {
  if (!open(client, request, Open::Kind::ask)) return;
  driver_.post(
      Begin{{id, request},
            std::chrono::milliseconds{begin.timeout_ms()},
            std::chrono::milliseconds{std::min<std::uint64_t>(begin.age_ms(), kAgeMsMax)}});
}

void ClientServer::enlist(std::uint64_t id, Client& client, std::uint64_t request,
                          wire::Enlist& enlist) {
  if (!open(client, request, Open::Kind::ask)) return;
  driver_.post(
      Enlist{{id, request}, std::move(*enlist.mutable_gtrid()), std::move(*enlist.mutable_rm())});
}

void ClientServer::finish(std::uint64_t id, Client& client, std::uint64_t request,
                          wire::Finish& finish) {
  if (finish.reply_at() != wire::REPLY_AT_DECISION && finish.reply_at() != wire::REPLY_AT_END) {
    return refuse(client, request, wire::FAILURE_REQUEST,
                  "a transaction's end is answered at its decision or when every branch has ended: "
                  "correct reply_at");
  }
  const bool at_end = finish.reply_at() == wire::REPLY_AT_END;
  if (!open(client, request, at_end ? Open::Kind::submit_at_end : Open::Kind::submit_at_decision)) {
    return;
  }
  std::string gtrid = std::move(*finish.mutable_gtrid());
  if (!finish.commit()) {
    return driver_.post(RollbackRequested{{id, request}, std::move(gtrid), at_end});
  }
  CommitRequested event{{id, request}, std::move(gtrid), {}, at_end};
  for (wire::Finish::Count& count : *finish.mutable_work()) {
    event.work.push_back({std::move(*count.mutable_rm()), count.work_items()});
  }
  driver_.post(std::move(event));
}

void ClientServer::drain(std::uint64_t id, Client& client, std::uint64_t request,
                         const wire::Drain& drain) {
  const auto rm = driver_.settled_core().find_participant(drain.rm());
  if (!rm) {
    return refuse(
        client, request, wire::FAILURE_REQUEST,
        "unknown resource manager \"" + drain.rm() + "\": see the coordinator's configuration");
  }
  if (!open(client, request, Open::Kind::ask)) return;
  const Drain::What what = drain.ask()      ? Drain::What::ask
                           : drain.cancel() ? Drain::What::cancel
                                            : Drain::What::begin;
  driver_.post(Drain{*rm, what, {id, request}});
}

void ClientServer::reply(DrainTold& effect, const ParticipantView& view) {
  if (requests_open_ > 0) --requests_open_;
  auto found = clients_.find(effect.requester.connection);
  if (found == clients_.end()) {
    ++replies_undeliverable_;
    return;
  }
  Client& client = found->second;
  client.open.erase(effect.requester.request);
  wire::Frame frame;
  frame.set_request(effect.requester.request);
  wire::DrainAnswer& told = *frame.mutable_drain_answer();
  told.set_state(std::string(name(view.state)));
  told.set_standing(std::string(name(view.standing)));
  for (std::size_t i = 0; i < std::min(view.open.size(), kOpenTold); ++i) {
    told.add_open(to_text(view.open[i]));
  }
  told.set_open_count(view.open.size());
  told.set_listed(view.listed);
  answer(client, frame, "raise the client's frame_bytes_max");
}

void ClientServer::list(Client& client, std::uint64_t request, const wire::List& list) {
  const std::size_t entries =
      list.entries_max() == 0 ? kListDefault : std::min<std::size_t>(list.entries_max(), kListMax);
  auto views = driver_.settled_core().list(list.all(), entries + 1);
  wire::Frame frame;
  frame.set_request(request);
  wire::ListAnswer& answered = *frame.mutable_list_answer();
  if (views.size() > entries) {
    answered.set_truncated(true);
    views.resize(entries);
  }
  const Time now = monotonic_now();
  for (const TransactionView& view : views) to_wire(view, wall_, now, *answered.add_transactions());
  answer(client, frame, "ask for fewer entries");
}

void ClientServer::show(Client& client, std::uint64_t request, const wire::Show& show) {
  std::optional<TransactionView> view;
  switch (show.of_case()) {
    case wire::Show::kId: view = driver_.settled_core().show(from_wire(show.id())); break;
    case wire::Show::kGtrid: view = driver_.settled_core().show_gtrid(show.gtrid()); break;
    case wire::Show::kRequestId:
      view = driver_.settled_core().show_request(show.request_id());
      break;
    case wire::Show::OF_NOT_SET:
      return refuse(client, request, wire::FAILURE_REQUEST,
                    "which transaction? give a request id, a gtrid or an id");
  }
  wire::Frame frame;
  frame.set_request(request);
  wire::ShowAnswer& shown = *frame.mutable_show_answer();
  shown.set_found(view.has_value());
  if (view) to_wire(*view, wall_, monotonic_now(), *shown.mutable_transaction());
  answer(client, frame, "raise the client's frame_bytes_max");
}

void ClientServer::stats(Client& client, std::uint64_t request) {
  driver_.settled_core();
  wire::Frame frame;
  frame.set_request(request);
  driver_.add_stats(*frame.mutable_stats_answer());
  answer(client, frame, "raise the client's frame_bytes_max");
}

// ---- answers
// ---------------------------------------------------------------------------------------

void ClientServer::reply(Reply& effect) {
  if (requests_open_ > 0) --requests_open_;
  auto found = clients_.find(effect.requester.connection);
  if (found == clients_.end()) {
    ++replies_undeliverable_;
    return;
  }
  Client& client = found->second;
  if (auto open = client.open.extract(effect.requester.request)) {
    const Open& asked = open.mapped();
    const auto us = static_cast<std::uint64_t>((monotonic_now() - asked.since).count());
    if (asked.kind == Open::Kind::submit_at_decision) reply_us_.record(us);
    if (asked.kind == Open::Kind::submit_at_end) reply_at_end_us_.record(us);
  }
  wire::Frame frame;
  frame.set_request(effect.requester.request);
  to_wire(effect.outcome, *frame.mutable_outcome());
  if (send(client, frame)) return;
  // What became of it must reach whoever asked (rule 5): without results, then without reasons.
  wire::Outcome& told = *frame.mutable_outcome();
  told.clear_results();
  told.set_detail(std::string(utf8_prefix(told.detail(), kDetailBytesMax)) +
                  " (shortened: the whole answer is larger than this client accepts)");
  if (send(client, frame)) return;
  told.clear_refusals();
  send(client, frame);
}

void ClientServer::reply(Enlisted& effect, const std::string& address) {
  if (requests_open_ > 0) --requests_open_;
  auto found = clients_.find(effect.requester.connection);
  if (found == clients_.end()) {
    ++replies_undeliverable_;
    return;
  }
  found->second.open.erase(effect.requester.request);
  wire::Frame frame;
  frame.set_request(effect.requester.request);
  to_wire(effect.xid, *frame.mutable_enlisted()->mutable_xid());
  frame.mutable_enlisted()->set_address(address);
  send(found->second, frame);
}

void ClientServer::answer(Client& client, const wire::Frame& frame, std::string_view advice) {
  if (!send(client, frame)) refuse_too_large(client, frame, std::string(advice));
}

bool ClientServer::send(Client& client, const wire::Frame& frame) {
  return client.connection->send(frame) || !client.connection->is_open();
}

void ClientServer::refuse_too_large(Client& client, const wire::Frame& frame,
                                    const std::string& advice) {
  refuse(client, frame.request(), wire::FAILURE_REQUEST,
         "the answer of " + std::to_string(frame.ByteSizeLong()) +
             " bytes is larger than this client accepts: " + advice);
}

void ClientServer::refuse(Client& client, std::uint64_t request, wire::FailureCode code,
                          std::string text) {
  client.connection->send(failure(request, code, std::move(text)));
}

void ClientServer::flush_blocking(std::uint64_t connection) {
  auto found = clients_.find(connection);
  if (found != clients_.end()) found->second.connection->flush_blocking();
}

void ClientServer::add_stats(wire::StatsAnswer& stats) const {
  Connection::Counters traffic = earlier_traffic_;
  for (const auto& [id, client] : clients_) add(traffic, client.connection->counters());
  add_number(stats, "connections", clients_.size());
  add_number(stats, "requests_open", requests_open_);
  add_number(stats, "replies_undeliverable", replies_undeliverable_);
  add_traffic(stats, "clients", traffic);
  add_histogram(stats, "reply_us", reply_us_);
  add_histogram(stats, "reply_at_end_us", reply_at_end_us_);
}

}  // namespace twofold::coordinator
