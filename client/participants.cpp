#include "client/participants.h"

#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "protocol/convert.h"

namespace twofold::client {

namespace {

Worked worked(const std::string& rm, Result<wire::BranchAnswer>& answer) {
  Worked worked;
  if (!answer) {
    worked.code = Xa::er_rmfail;
    worked.text = answer.error().message;
    return worked;
  }
  worked.code = static_cast<Xa>(answer->code());
  worked.text = std::move(*answer->mutable_text());
  for (const wire::Refusal& refusal : answer->refusals()) {
    worked.refusals.push_back(from_wire(refusal));
    worked.refusals.back().rm = rm;
    if (!answer->text().empty()) continue;
    worked.text += (worked.text.empty() ? "" : "; ") + to_text(worked.refusals.back());
  }
  if (!worked.ok()) {
    if (worked.text.empty()) worked.text = rm + " gave no reason";
    return worked;
  }
  Result<Results> results = decode_results(answer->results());
  if (results) {
    worked.results = std::move(*results);
  } else {
    worked.code = Xa::er_rmerr;
    worked.text = "its results cannot be read: " + results.error().message;
  }
  return worked;
}

}  // namespace

Participant::Participant(boost::asio::io_context& io, std::string name, Address address,
                         ConnectionOptions options, std::string client)
    : io_(io),
      name_(std::move(name)),
      address_(std::move(address)),
      options_(options),
      client_(std::move(client)) {}

Participant::~Participant() {
  stop();
}

void Participant::stop() {
  const Error why{Fault::closed, "the client was ended before an answer came"};
  if (auto cancel = std::exchange(cancel_connect_, nullptr)) cancel();
  if (auto connection = std::exchange(connection_, nullptr)) {
    connection->replace_handlers({});
    connection->close(why);
  }
  waiting_.clear();
  for (auto& [request, done] : std::exchange(answers_, {})) done(why);
}

// Each work in a thread of control of its own, so that works of many threads of the application,
// and of many transactions, share the connection.
void Participant::execute(const Xid& xid, const Work& work, std::function<void(Worked)> done) {
  // What the first of the three that is not XA_OK said is the answer.
  struct Steps {
    std::optional<Result<wire::BranchAnswer>> answer;
    int open = 3;
  };
  auto steps = std::make_shared<Steps>();
  const auto step = [steps, rm = name_, done = std::move(done)](bool work_itself) {
    return [steps, rm, done, work_itself](Result<wire::BranchAnswer> told) {
      const bool bad = !told || told->code() != static_cast<std::int32_t>(Xa::ok);
      const bool had_bad =
          steps->answer &&
          (!*steps->answer || (*steps->answer)->code() != static_cast<std::int32_t>(Xa::ok));
      if ((bad || work_itself) && !had_bad) steps->answer = std::move(told);
      if (--steps->open == 0) done(worked(rm, *steps->answer));
    };
  };
  const std::uint64_t thread = ++last_thread_;
  wire::Frame join, execute, end;
  to_wire(xid, *join.mutable_join()->mutable_xid());
  join.mutable_join()->set_thread(thread);
  to_wire(xid, *execute.mutable_execute()->mutable_xid());
  execute.mutable_execute()->set_thread(thread);
  execute.mutable_execute()->set_work(encode_work(work));
  to_wire(xid, *end.mutable_end()->mutable_xid());
  end.mutable_end()->set_thread(thread);
  send(join, step(false));
  send(execute, step(true));
  send(end, step(false));
  if (!connection_ && !cancel_connect_) connect();
}

void Participant::send(wire::Frame& frame, std::function<void(Result<wire::BranchAnswer>)> done) {
  frame.set_request(++last_request_);
  const auto at = answers_.emplace(last_request_, std::move(done)).first;
  if (!connection_) return waiting_.push_back(std::move(frame));
  if (connection_->send(frame) || !connection_->is_open()) return;
  boost::asio::post(io_, [self = shared_from_this(), request = at->first] {
    auto answer = self->answers_.extract(request);
    if (answer)
      answer.mapped()(
          Error{Fault::invalid, "the work is larger than " + self->name_ + " accepts: split it"});
  });
}

void Participant::connect() {
  wire::Hello hello;
  hello.set_role(wire::ROLE_CLIENT);
  hello.set_name(client_);
  hello.set_expects(name_);
  cancel_connect_ = connect_and_greet(
      io_, address_, std::move(hello), options_,
      [weak = weak_from_this()](
          Result<std::pair<std::shared_ptr<Connection>, wire::Welcome>> greeted) {
        auto self = weak.lock();
        if (!self) return;
        self->cancel_connect_ = nullptr;
        if (!greeted) return self->lost(greeted.error());
        self->connection_ = std::move(greeted->first);
        const auto from = [weak, which = self->connection_.get()] {
          auto one = weak.lock();
          return one && one->connection_.get() == which ? one : nullptr;
        };
        Connection::Handlers handlers;
        handlers.on_frame = [from](wire::Frame& frame) {
          if (auto one = from()) one->on_frame(frame);
        };
        handlers.on_closed = [from](const Error& why) {
          if (auto one = from()) one->lost(why);
        };
        self->connection_->replace_handlers(std::move(handlers));
        for (wire::Frame& frame : std::exchange(self->waiting_, {})) {
          if (self->connection_->send(frame) || !self->connection_->is_open()) continue;
          auto answer = self->answers_.extract(frame.request());
          answer.mapped()(Error{Fault::invalid,
                                "the work is larger than " + self->name_ + " accepts: split it"});
        }
      });
}

void Participant::on_frame(wire::Frame& frame) {
  auto answer = answers_.extract(frame.request());
  if (!answer) return;  // a heartbeat, or a Failure that ends the connection
  if (frame.has_failure()) return answer.mapped()(to_error(frame.failure()));
  if (!frame.has_branch_answer()) {
    return answer.mapped()(Error{Fault::invalid, name_ + " answered with another message"});
  }
  answer.mapped()(std::move(*frame.mutable_branch_answer()));
}

void Participant::lost(const Error& why) {
  const auto self = shared_from_this();  // an answer may end the client
  connection_.reset();
  waiting_.clear();
  for (auto& [request, done] : std::exchange(answers_, {})) done(why);
}

Participants::Participants(boost::asio::io_context& io, ConnectionOptions options,
                           std::string client)
    : io_(io), options_(options), client_(std::move(client)) {}

void Participants::stop() {
  for (auto& [where, participant] : known_) participant->stop();
}

Participant& Participants::at(const std::string& name, const Address& address) {
  auto& participant = known_[{name, to_text(address)}];
  if (!participant) {
    participant = std::make_shared<Participant>(io_, name, address, options_, client_);
  }
  return *participant;
}

}  // namespace twofold::client
