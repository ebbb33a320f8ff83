#include "client/interactive.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "client/participants.h"
#include "protocol/convert.h"
#include "protocol/utf8.h"

namespace twofold::client {

namespace {

Worked failed(Xa code, std::string text) {
  Worked worked;
  worked.code = code;
  worked.text = std::move(text);
  return worked;
}

// What an outcome that the coordinator told in place of an answer means for the work.
Worked not_taken(const Outcome& outcome) {
  Worked wrong = failed(Xa::er_rmfail, outcome.detail);
  switch (outcome.verdict) {
    case Verdict::aborted:
      wrong.code = Xa::rbrollback;
      if (outcome.reason == Reason::deadlock) wrong.code = Xa::rbdeadlock;
      if (outcome.reason == Reason::timeout) wrong.code = Xa::rbtimeout;
      break;
    case Verdict::rejected:
      if (outcome.reason == Reason::invalid) wrong.code = Xa::er_inval;
      break;
    case Verdict::committed:
      return failed(Xa::er_proto, "the transaction has committed: begin another one for more work");
    case Verdict::pending:
      return failed(Xa::er_proto,
                    "the transaction's end has been asked for: begin another one for more work");
    case Verdict::expired:
    case Verdict::not_found:
    case Verdict::unknown: wrong.code = Xa::er_nota; break;
  }
  if (wrong.text.empty()) wrong.text = "the transaction is " + std::string(name(outcome.verdict));
  return wrong;
}

}  // namespace

class AsyncTransaction::Impl : public std::enable_shared_from_this<AsyncTransaction::Impl> {
 public:
  Impl(AsyncClient& client, boost::asio::io_context& io, std::string gtrid,
       std::chrono::milliseconds timeout = {})
      : client_(client), io_(io), gtrid_(std::move(gtrid)), timeout_(timeout) {}

  const std::string& gtrid() const { return gtrid_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  bool ended() const { return ended_; }
  void resume(const Works& works) {
    for (const auto& [rm, items] : works.answered) branches_[rm].items = items;
    broken_ = works.failed;
  }
  Works leave() {
    ended_ = true;
    Works works;
    for (const auto& [rm, branch] : branches_) works.answered[rm] = branch.items;
    works.failed = not_done();
    return works;
  }

  void work(std::string rm, Work work, std::function<void(Worked)> done);
  void finish(bool commit, bool wait_for_end, std::function<void(Outcome)> done);

 private:
  struct Enlisted {
    std::optional<Xid> xid;  // none: being enlisted, or was elsewhere
    bool asked = false;      // to be enlisted
    Address address;
    std::uint64_t items = 0;  // works that were answered XA_OK (rule 10)
    std::vector<std::function<void(const Worked*)>> waiting;  // what went wrong, or null
  };

  std::string not_done() const;  // why a commit would leave something out, or empty
  void enlist(const std::string& rm);
  void enlisted(const std::string& rm, Result<wire::Frame> answer);
  void execute(const std::string& rm, Enlisted& branch, const Work& work,
               std::function<void(Worked)> done);
  void explain(Worked worked, std::function<void(Worked)> done);

  AsyncClient& client_;
  boost::asio::io_context& io_;
  const std::string gtrid_;
  const std::chrono::milliseconds timeout_;  // 0: not known
  bool ended_ = false;
  std::string broken_;  // the first work of which it is not known whether it was done, or why not
  std::multiset<std::string> under_way_;  // resource managers that owe an answer
  std::map<std::string, Enlisted> branches_;
};

void AsyncTransaction::begin(AsyncClient& client, boost::asio::io_context& io, BeginOptions options,
                             Begun done) {
  wire::Frame frame;
  frame.mutable_begin()->set_timeout_ms(
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(options.timeout.count(), 0, UINT32_MAX)));
  frame.mutable_begin()->set_age_ms(
      static_cast<std::uint64_t>(std::max<std::int64_t>(options.age.count(), 0)));
  client.call(std::move(frame), [&client, &io, done = std::move(done)](Result<wire::Frame> told) {
    if (!told) return done(told.error());
    if (!told->has_outcome())
      return done(Error{Fault::invalid, "Begin was not answered by Outcome"});
    Outcome outcome = from_wire(told->outcome());
    if (outcome.verdict != Verdict::pending) {
      return done(Error{Fault::busy, outcome.detail});
    }
    done(AsyncTransaction(std::make_shared<Impl>(client, io, std::move(outcome.gtrid),
                                                 std::chrono::milliseconds{outcome.timeout_ms})));
  });
}

void AsyncTransaction::Impl::work(std::string rm, Work work,
                                  std::function<void(Worked)> asked_for) {
  under_way_.insert(rm);
  const auto done = [self = shared_from_this(), rm,
                     asked_for = std::move(asked_for)](Worked worked) {
    self->under_way_.extract(rm);
    if (!worked.ok() && !is_rollback(worked.code) && self->broken_.empty()) {
      self->broken_ = rm + ": " + std::string(name(worked.code)) + " " + worked.text;
    }
    asked_for(std::move(worked));
  };
  const auto fail = [&](Xa code, std::string text) {
    boost::asio::post(
        io_, [done, worked = failed(code, std::move(text))]() mutable { done(std::move(worked)); });
  };
  if (ended_) return fail(Xa::er_proto, "the transaction's end has been asked for already");
  if (!is_utf8(rm)) return fail(Xa::er_inval, "the name of a resource manager is not UTF-8");
  if (const std::string text = find_not_utf8(work); !text.empty()) {
    return fail(Xa::er_inval, rm + ": " + text + " is not UTF-8; pass what is no text as bytes");
  }
  Enlisted& branch = branches_[rm];
  if (branch.xid) return execute(rm, branch, work, std::move(done));
  branch.waiting.push_back([self = shared_from_this(), rm, work = std::move(work),
                            done = std::move(done)](const Worked* wrong) {
    if (wrong) return done(*wrong);
    self->execute(rm, self->branches_.at(rm), work, done);
  });
  if (!std::exchange(branch.asked, true)) enlist(rm);
}

std::string AsyncTransaction::Impl::not_done() const {
  if (!broken_.empty() || under_way_.empty()) return broken_;
  return *under_way_.begin() + ": a work there has not been answered";
}

void AsyncTransaction::Impl::enlist(const std::string& rm) {
  wire::Frame frame;
  frame.mutable_enlist()->set_gtrid(gtrid_);
  frame.mutable_enlist()->set_rm(rm);
  client_.call(std::move(frame), [self = shared_from_this(), rm](Result<wire::Frame> told) {
    self->enlisted(rm, std::move(told));
  });
}

void AsyncTransaction::Impl::enlisted(const std::string& rm, Result<wire::Frame> told) {
  const auto at = branches_.find(rm);
  Worked wrong = failed(Xa::er_rmfail, {});
  if (!told) {
    wrong.text = told.error().message;
  } else if (told->has_enlisted()) {
    Result<Xid> xid = from_wire(told->enlisted().xid());
    Result<Address> address = parse_address(told->enlisted().address());
    if (xid && address) {
      at->second.xid = std::move(*xid);
      at->second.address = std::move(*address);
      for (auto& go_on : std::exchange(at->second.waiting, {})) go_on(nullptr);
      return;
    }
    wrong.text = xid ? address.error().message : xid.error().message;
  } else if (told->has_outcome()) {
    wrong = not_taken(from_wire(told->outcome()));
  } else {
    wrong.text = "the coordinator answered with a message that this client does not know";
  }
  const auto waiting = std::exchange(at->second.waiting, {});
  at->second.asked = false;  // the next work there tries again
  if (at->second.items == 0) branches_.erase(at);
  for (const auto& go_on : waiting) go_on(&wrong);
}

void AsyncTransaction::Impl::execute(const std::string& rm, Enlisted& branch, const Work& work,
                                     std::function<void(Worked)> done) {
  client_.participant(rm, branch.address)
      .execute(*branch.xid, work,
               [self = shared_from_this(), rm, done = std::move(done)](Worked worked) {
                 if (worked.ok()) ++self->branches_.at(rm).items;
                 self->explain(std::move(worked), done);
               });
}

// A resource manager that was told to roll back does not know why, and soon knows nothing of the
// branch. Asked once: no answer is no reason to keep the caller waiting.
void AsyncTransaction::Impl::explain(Worked worked, std::function<void(Worked)> done) {
  if (worked.code != Xa::rbrollback && worked.code != Xa::er_nota) return done(std::move(worked));
  wire::Frame frame;
  frame.mutable_ask()->set_gtrid(gtrid_);
  frame.mutable_ask()->set_reply_at(wire::REPLY_NOW);
  client_.call(std::move(frame), [worked = std::move(worked),
                                  done = std::move(done)](Result<wire::Frame> told) mutable {
    if (told && told->has_outcome()) {
      const Outcome outcome = from_wire(told->outcome());
      if (outcome.verdict == Verdict::aborted || outcome.verdict == Verdict::committed) {
        worked = not_taken(outcome);
      }
    }
    done(std::move(worked));
  });
}

void AsyncTransaction::Impl::finish(bool commit, bool wait_for_end,
                                    std::function<void(Outcome)> done) {
  ended_ = true;
  if (std::string why = not_done(); commit && !why.empty()) {
    commit = false;
    done = [done = std::move(done), why = std::move(why)](Outcome outcome) {
      if (outcome.verdict == Verdict::aborted && outcome.reason == Reason::rolled_back) {
        outcome.reason = Reason::lost;
        outcome.detail = "rolled back, since a work failed: " + why;
      }
      done(std::move(outcome));
    };
  }
  wire::Finish finish;
  finish.set_gtrid(gtrid_);
  finish.set_commit(commit);
  finish.set_reply_at(wait_for_end ? wire::REPLY_AT_END : wire::REPLY_AT_DECISION);
  for (const auto& [rm, branch] : branches_) {
    if (!branch.xid && branch.items == 0) continue;
    wire::Finish::Count& count = *finish.add_work();
    count.set_rm(rm);
    count.set_work_items(branch.items);
  }
  client_.finish(std::move(finish), std::move(done));
}

AsyncTransaction::AsyncTransaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
AsyncTransaction::AsyncTransaction(AsyncTransaction&&) noexcept = default;

AsyncTransaction& AsyncTransaction::operator=(AsyncTransaction&& other) noexcept {
  AsyncTransaction old(std::move(*this));  // rolls back
  impl_ = std::move(other.impl_);
  return *this;
}

AsyncTransaction::~AsyncTransaction() {
  if (impl_ && !impl_->ended()) impl_->finish(false, false, [](const Outcome&) {});
}

AsyncTransaction AsyncTransaction::resume(AsyncClient& client, boost::asio::io_context& io,
                                          std::string gtrid, Works works) {
  AsyncTransaction transaction(std::make_shared<Impl>(client, io, std::move(gtrid)));
  transaction.impl_->resume(works);
  return transaction;
}

Works AsyncTransaction::leave() {
  return impl_->leave();
}

const std::string& AsyncTransaction::gtrid() const {
  return impl_->gtrid();
}
std::chrono::milliseconds AsyncTransaction::timeout() const {
  return impl_->timeout();
}
void AsyncTransaction::work(std::string rm, Work work, std::function<void(Worked)> done) {
  impl_->work(std::move(rm), std::move(work), std::move(done));
}
void AsyncTransaction::commit(bool wait_for_end, std::function<void(Outcome)> done) {
  impl_->finish(true, wait_for_end, std::move(done));
}
void AsyncTransaction::rollback(std::function<void(Outcome)> done) {
  impl_->finish(false, false, std::move(done));
}

}  // namespace twofold::client
