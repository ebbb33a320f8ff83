#include <sys/random.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/link.h"
#include "client/participants.h"
#include "client/request.h"
#include "protocol/check.h"
#include "protocol/convert.h"
#include "protocol/utf8.h"
#include "runtime/backoff.h"

namespace twofold::client {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kRequestIdBytesMax = 128;

// 128 random bits, from the system: unique among all clients that ever were.
std::string new_request_id() {
  char bytes[16];
  TWOFOLD_CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  return base64url_encode({bytes, sizeof bytes});
}

Outcome rejected(std::string detail) {
  Outcome outcome;
  outcome.verdict = Verdict::rejected;
  outcome.reason = Reason::invalid;
  outcome.detail = std::move(detail);
  return outcome;
}

Error not_utf8() {
  return {Fault::invalid, "a text in this request is not UTF-8, so it names nothing: correct it"};
}

// Empty: nothing.
std::string what_is_wrong(const Transaction& transaction) {
  if (transaction.request_id.size() > kRequestIdBytesMax) {
    return "the request id has " + std::to_string(transaction.request_id.size()) +
           " bytes; at most " + std::to_string(kRequestIdBytesMax) + " are allowed";
  }
  if (!is_utf8(transaction.request_id)) return "the request id is not UTF-8";
  for (const Branch& branch : transaction.branches) {
    if (!is_utf8(branch.rm)) return "the name of a resource manager is not UTF-8";
    if (const std::string text = find_not_utf8(branch.work); !text.empty()) {
      return branch.rm + ": " + text + " is not UTF-8; pass what is no text as bytes";
    }
  }
  return {};
}

Options bounded(Options options) {
  constexpr std::chrono::hours kGiveUpMax{24 * 365};  // so that no sum with a time overflows
  options.give_up = std::clamp<milliseconds>(options.give_up, milliseconds{0}, kGiveUpMax);
  return options;
}

// The coordinator's answer to a submission or question.
Outcome read_answer(const wire::Frame& frame, bool submission) {
  if (frame.has_outcome()) return from_wire(frame.outcome());
  Outcome outcome;
  if (!frame.has_failure()) {
    outcome.detail = "the coordinator answered with a message that this client does not know";
    return outcome;
  }
  const wire::Failure& failure = frame.failure();
  outcome = rejected(failure.text());
  if (!submission) outcome.verdict = Verdict::unknown;
  if (failure.code() == wire::FAILURE_BUSY) outcome.reason = Reason::overload;
  if (failure.code() == wire::FAILURE_SHUTDOWN) outcome.reason = Reason::shutdown;
  return outcome;
}

}  // namespace

class AsyncClient::Impl : public std::enable_shared_from_this<AsyncClient::Impl> {
 public:
  Impl(boost::asio::io_context& io, Options options)
      : io_(io),
        options_(bounded(std::move(options))),
        link_(std::make_shared<Link>(io, options_.coordinator, options_.name, options_.connection)),
        participants_(io, options_.connection, options_.name),
        give_up_timer_(io) {}

  void start();
  void stop();
  void submit(Transaction transaction, std::function<void(Answered)> done);
  void ask(wire::Ask ask, std::function<void(Outcome)> done);
  void call(wire::Frame request, std::function<void(Result<wire::Frame>)> done);
  void finish(wire::Finish finish, std::function<void(Outcome)> done);
  Participant& participant(const std::string& rm, const Address& address) {
    return participants_.at(rm, address);
  }

  const Link& link() const { return *link_; }
  std::size_t in_flight() const { return waiting_.size() + calls_.size(); }
  void on_connection(std::function<void(bool, const std::string&)> handler) {
    on_connection_ = std::move(handler);
    if (!on_connection_ || told_connected_ != 0) return;
    boost::asio::post(io_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->told_connected_ != 0) return;
      if (const auto current = self->on_connection_) current(false, self->trouble_);
    });
  }
  void on_retry(std::function<void(const Outcome&)> handler) { on_retry_ = std::move(handler); }

 private:
  using Id = std::uint64_t;  // of a request on the wire; ascending, so the oldest comes first
  struct Waiting {
    Request request;
    std::function<void(Answered)> done;
    Clock::time_point called;
    Clock::time_point first_sent;
    std::optional<Backoff> backoff;                    // from the first pause on
    std::unique_ptr<boost::asio::steady_timer> pause;  // set until it may be sent again
    bool on_wire = false;                              // sent on the present connection
  };
  struct Call {
    wire::Frame frame;
    std::function<void(Result<wire::Frame>)> done;
    Clock::time_point called;
  };
  // What the caller is told, taken out of the tables: callbacks may submit, or end the client.
  using Told = std::vector<std::function<void()>>;

  void add(Request request, std::function<void(Answered)> done);
  bool send(Waiting& waiting, Told& told);
  bool send(Call& call, Told& told);
  void finish(Waiting& waiting, Outcome outcome, Told& told);
  void on_up();
  void on_down(const Error& why, bool final);
  void on_frame(wire::Frame& frame);
  void on_answer(std::map<Id, Waiting>::iterator at, const wire::Frame& frame);
  void send_later(std::map<Id, Waiting>::iterator at);
  void tell_retry(const Outcome& aborted);
  void end_all(const Error& why, Told& told);
  void watch_give_up();
  void give_up();
  void tell_connection(bool connected, const std::string& why);
  std::string too_large(const wire::Frame& frame) const;
  Error gave_up() const;

  boost::asio::io_context& io_;
  const Options options_;
  std::shared_ptr<Link> link_;
  Participants participants_;
  boost::asio::steady_timer give_up_timer_;
  bool watching_ = false;  // the timer runs
  bool stopped_ = false;
  Id next_id_ = 1;
  std::map<Id, Waiting> waiting_;  // submissions and questions: until answered
  std::map<Id, Call> calls_;       // sent once
  std::string trouble_;            // why there is no connection
  int told_connected_ = -1;        // what on_connection_ was told last; -1: nothing yet
  std::function<void(bool, const std::string&)> on_connection_;
  std::function<void(const Outcome&)> on_retry_;
};

void AsyncClient::Impl::start() {
  Link::Handlers handlers;
  const auto weak = weak_from_this();
  handlers.on_up = [weak] {
    if (auto self = weak.lock()) self->on_up();
  };
  handlers.on_down = [weak](const Error& why, bool final) {
    if (auto self = weak.lock()) self->on_down(why, final);
  };
  handlers.on_frame = [weak](wire::Frame& frame) {
    if (auto self = weak.lock()) self->on_frame(frame);
  };
  link_->start(std::move(handlers));
}

void AsyncClient::Impl::stop() {
  stopped_ = true;
  on_connection_ = nullptr;
  on_retry_ = nullptr;
  link_->stop();
  give_up_timer_.cancel();
  participants_.stop();
  Told told;
  end_all({Fault::closed, "the client was ended before an answer came"}, told);
  for (auto& tell : told) tell();
}

// ---- requests -------------------------------------------------------------------------------

void AsyncClient::Impl::submit(Transaction transaction, std::function<void(Answered)> done) {
  if (std::string wrong = what_is_wrong(transaction); !wrong.empty()) {
    Answered answered;
    answered.outcome = rejected(std::move(wrong));
    answered.request_id = std::move(transaction.request_id);
    return boost::asio::post(io_,
                             [done = std::move(done), answered = std::move(answered)]() mutable {
                               done(std::move(answered));
                             });
  }
  if (transaction.request_id.empty()) transaction.request_id = new_request_id();
  add(Request::submission(std::move(transaction), options_.retries), std::move(done));
}

void AsyncClient::Impl::ask(wire::Ask ask, std::function<void(Outcome)> done) {
  if (!is_utf8(ask.request_id())) {
    return boost::asio::post(io_, [done = std::move(done)] { done(rejected(not_utf8().message)); });
  }
  add(Request::question(std::move(ask)),
      [done = std::move(done)](Answered answered) { done(std::move(answered.outcome)); });
}

void AsyncClient::Impl::finish(wire::Finish finish, std::function<void(Outcome)> done) {
  add(Request::end(std::move(finish)),
      [done = std::move(done)](Answered answered) { done(std::move(answered.outcome)); });
}

void AsyncClient::Impl::add(Request request, std::function<void(Answered)> done) {
  const Id id = next_id_++;
  request.frame().set_request(id);
  const auto at = waiting_.try_emplace(id).first;
  at->second.request = std::move(request);
  at->second.done = std::move(done);
  at->second.called = Clock::now();
  Told told;
  if (stopped_) {
    end_all({Fault::closed, "the client was ended"}, told);
  } else {
    watch_give_up();
    link_->want();
    if (!send(at->second, told)) waiting_.erase(at);
  }
  for (auto& tell : told) boost::asio::post(io_, std::move(tell));
}

void AsyncClient::Impl::call(wire::Frame request, std::function<void(Result<wire::Frame>)> done) {
  if (!has_valid_texts(request)) {
    return boost::asio::post(io_, [done = std::move(done)] { done(not_utf8()); });
  }
  const Id id = next_id_++;
  request.set_request(id);
  const auto at =
      calls_.try_emplace(id, Call{std::move(request), std::move(done), Clock::now()}).first;
  Told told;
  if (stopped_) {
    end_all({Fault::closed, "the client was ended"}, told);
  } else {
    watch_give_up();
    link_->want();
    if (!send(at->second, told)) calls_.erase(at);
  }
  for (auto& tell : told) boost::asio::post(io_, std::move(tell));
}

// False: it has been finished with what `told` says, and is to be erased.
bool AsyncClient::Impl::send(Waiting& waiting, Told& told) {
  if (!link_->connected() || waiting.on_wire || waiting.pause) return true;
  Request& request = waiting.request;
  const auto now = Clock::now();
  const auto age = request.ever_sent() ? now - waiting.first_sent : Clock::duration{0};
  if (!request.make_ready(link_->known(), link_->log_id(), duration_cast<milliseconds>(age))) {
    finish(waiting,
           request.without_answer("the coordinator at " + to_text(link_->address()) +
                                  " has another log than the one this was sent to"),
           told);
    return false;
  }
  switch (link_->send(request.frame())) {
    case Link::Sent::yes:
      if (!request.ever_sent()) waiting.first_sent = now;
      request.sent();
      waiting.on_wire = true;
      return true;
    case Link::Sent::not_connected: return true;  // on_down is on its way
    case Link::Sent::too_large: {
      std::string why = too_large(request.frame());
      finish(waiting, request.ever_sent() ? request.without_answer(why) : rejected(std::move(why)),
             told);
      return false;
    }
  }
  return true;
}

bool AsyncClient::Impl::send(Call& call, Told& told) {
  if (!link_->connected()) return true;
  Error error{Fault::closed, "the connection to " + to_text(link_->address()) + " was lost"};
  switch (link_->send(call.frame)) {
    case Link::Sent::yes:
    case Link::Sent::not_connected: return true;  // of the latter, on_down will tell
    case Link::Sent::too_large: error = {Fault::invalid, too_large(call.frame)}; break;
  }
  told.push_back([done = std::move(call.done), error] { done(error); });
  return false;
}

std::string AsyncClient::Impl::too_large(const wire::Frame& frame) const {
  return "this request has " + std::to_string(frame.ByteSizeLong()) +
         " bytes, and the coordinator at " + to_text(link_->address()) + " accepts at most " +
         std::to_string(link_->frame_bytes_max()) +
         "; send less at once, or raise its frame_bytes_max";
}

void AsyncClient::Impl::finish(Waiting& waiting, Outcome outcome, Told& told) {
  told.push_back([done = std::move(waiting.done),
                  answered = waiting.request.told(std::move(outcome))]() mutable {
    done(std::move(answered));
  });
}

// ---- what the link tells --------------------------------------------------------------------

// Everything unanswered goes out again, oldest first. A submission joins its first attempt, or is
// answered with what became of it, or runs anew (rule 7).
void AsyncClient::Impl::on_up() {
  Told told;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    at = send(at->second, told) ? std::next(at) : waiting_.erase(at);
  }
  for (auto at = calls_.begin(); at != calls_.end();) {
    at = send(at->second, told) ? std::next(at) : calls_.erase(at);
  }
  trouble_.clear();
  tell_connection(true, "");
  for (auto& tell : told) tell();
}

void AsyncClient::Impl::on_down(const Error& why, bool final) {
  trouble_ = why.message;
  Told told;
  for (auto& [id, waiting] : waiting_) waiting.on_wire = false;
  for (auto& [id, call] : calls_) {
    told.push_back([done = std::move(call.done), why] { done(why); });
  }
  calls_.clear();
  if (final) end_all(why, told);
  tell_connection(false, why.message);
  for (auto& tell : told) tell();
}

void AsyncClient::Impl::on_frame(wire::Frame& frame) {
  if (const auto at = waiting_.find(frame.request()); at != waiting_.end()) {
    return on_answer(at, frame);
  }
  const auto at = calls_.find(frame.request());
  if (at == calls_.end()) return;  // it came after give_up
  const auto done = std::move(at->second.done);
  calls_.erase(at);
  if (frame.has_failure()) return done(to_error(frame.failure()));
  done(std::move(frame));
}

void AsyncClient::Impl::on_answer(std::map<Id, Waiting>::iterator at, const wire::Frame& frame) {
  Waiting& waiting = at->second;
  waiting.on_wire = false;
  if (waiting.pause) return;  // a second answer to the same sending
  Request& request = waiting.request;
  if (request.answered(read_answer(frame, request.is_submission())) == Request::Next::send_again) {
    send_later(at);
    if (const Outcome* aborted = request.retried()) tell_retry(*aborted);
    return;
  }
  const auto done = std::move(waiting.done);
  Answered answered = request.told(request.take_outcome());
  waiting_.erase(at);
  done(std::move(answered));
}

void AsyncClient::Impl::send_later(std::map<Id, Waiting>::iterator at) {
  Waiting& waiting = at->second;
  if (!waiting.backoff) waiting.backoff.emplace(options_.retry_first, options_.retry_max);
  waiting.pause = std::make_unique<boost::asio::steady_timer>(io_, waiting.backoff->next());
  waiting.pause->async_wait([weak = weak_from_this(), id = at->first](const auto& cancelled) {
    const auto self = weak.lock();
    if (!self || cancelled) return;
    const auto due = self->waiting_.find(id);
    if (due == self->waiting_.end()) return;
    due->second.pause.reset();
    Told told;
    if (!self->send(due->second, told)) self->waiting_.erase(due);
    for (auto& tell : told) tell();
  });
}

// A copy of both: the handler may submit, end the client, or set another one.
void AsyncClient::Impl::tell_retry(const Outcome& aborted) {
  if (const auto handler = on_retry_) handler(Outcome(aborted));
}

void AsyncClient::Impl::end_all(const Error& why, Told& told) {
  for (auto& [id, waiting] : waiting_) {
    finish(waiting, waiting.request.without_answer(why.message), told);
  }
  waiting_.clear();
  for (auto& [id, call] : calls_) {
    told.push_back([done = std::move(call.done), why] { done(why); });
  }
  calls_.clear();
}

void AsyncClient::Impl::tell_connection(bool connected, const std::string& why) {
  if (told_connected_ == static_cast<int>(connected)) return;
  told_connected_ = static_cast<int>(connected);
  if (const auto handler = on_connection_) handler(connected, why);
}

// ---- give_up --------------------------------------------------------------------------------

// All requests have the same patience and ids ascend, so the first one in each table is due first:
// one timer is enough, and an answer need not touch it.
void AsyncClient::Impl::watch_give_up() {
  if (watching_ || stopped_) return;
  auto first = Clock::time_point::max();
  if (!waiting_.empty()) first = waiting_.begin()->second.called;
  if (!calls_.empty()) first = std::min(first, calls_.begin()->second.called);
  if (first == Clock::time_point::max()) return;
  watching_ = true;
  give_up_timer_.expires_at(first + options_.give_up);
  give_up_timer_.async_wait([weak = weak_from_this()](const auto& cancelled) {
    const auto self = weak.lock();
    if (!self || cancelled) return;
    self->watching_ = false;
    self->give_up();
  });
}

Error AsyncClient::Impl::gave_up() const {
  const std::string after = "no answer from the coordinator at " + to_text(link_->address()) +
                            " within " + std::to_string(options_.give_up.count()) + " ms";
  if (link_->connected()) return {Fault::timeout, after};
  return {Fault::timeout, after + " (" + (trouble_.empty() ? "not connected yet" : trouble_) +
                              "); start it, or give the right address"};
}

void AsyncClient::Impl::give_up() {
  const auto due = Clock::now() - options_.give_up;
  const Error why = gave_up();
  Told told;
  while (!waiting_.empty() && waiting_.begin()->second.called <= due) {
    Waiting& waiting = waiting_.begin()->second;
    finish(waiting, waiting.request.without_answer(why.message), told);
    waiting_.erase(waiting_.begin());
  }
  while (!calls_.empty() && calls_.begin()->second.called <= due) {
    told.push_back([done = std::move(calls_.begin()->second.done), why] { done(why); });
    calls_.erase(calls_.begin());
  }
  watch_give_up();
  for (auto& tell : told) tell();
}

// ---- the public face ------------------------------------------------------------------------

AsyncClient::AsyncClient(boost::asio::io_context& io, Options options)
    : impl_(std::make_shared<Impl>(io, std::move(options))) {
  impl_->start();
}

AsyncClient::~AsyncClient() {
  impl_->stop();
}

void AsyncClient::submit(Transaction transaction, std::function<void(Answered)> done) {
  impl_->submit(std::move(transaction), std::move(done));
}

void AsyncClient::ask_request(std::string request_id, wire::ReplyAt at, TxnId known,
                              std::function<void(Outcome)> done) {
  wire::Ask ask;
  ask.set_request_id(std::move(request_id));
  ask.set_reply_at(at);
  to_wire(known, *ask.mutable_known());
  impl_->ask(std::move(ask), std::move(done));
}

void AsyncClient::ask_gtrid(std::string gtrid, wire::ReplyAt at,
                            std::function<void(Outcome)> done) {
  wire::Ask ask;
  ask.set_gtrid(std::move(gtrid));
  ask.set_reply_at(at);
  impl_->ask(std::move(ask), std::move(done));
}

void AsyncClient::call(wire::Frame request, std::function<void(Result<wire::Frame>)> done) {
  impl_->call(std::move(request), std::move(done));
}

void AsyncClient::finish(wire::Finish finish, std::function<void(Outcome)> done) {
  impl_->finish(std::move(finish), std::move(done));
}

Participant& AsyncClient::participant(const std::string& rm, const Address& address) {
  return impl_->participant(rm, address);
}

TxnId AsyncClient::known() const {
  return impl_->link().known();
}
bool AsyncClient::connected() const {
  return impl_->link().connected();
}
std::size_t AsyncClient::in_flight() const {
  return impl_->in_flight();
}
void AsyncClient::on_connection(
    std::function<void(bool connected, const std::string& why)> handler) {
  impl_->on_connection(std::move(handler));
}
void AsyncClient::on_retry(std::function<void(const Outcome& aborted)> handler) {
  impl_->on_retry(std::move(handler));
}

}  // namespace twofold::client
