#include "client/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "protocol/convert.h"

namespace twofold::client {
namespace {

std::uint32_t wire_ms(std::chrono::milliseconds value) {
  constexpr std::int64_t kMax = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value.count(), 0, kMax));
}

// The coordinator could not say, but another try can: it was shutting down, for example.
bool passing(const Outcome& outcome) {
  return outcome.verdict == Verdict::unknown && retryable(outcome.reason);
}

}  // namespace

Request Request::submission(Transaction transaction, unsigned retries) {
  Request request;
  request.submission_ = true;
  request.wait_for_end_ = transaction.wait_for_end;
  request.known_given_ = transaction.known != TxnId{};
  request.retries_left_ = retries;
  request.request_id_ = transaction.request_id;
  wire::Submit& submit = *request.frame_.mutable_submit();
  submit.set_request_id(std::move(transaction.request_id));
  for (Branch& branch : transaction.branches) {
    wire::SubmittedBranch& out = *submit.add_branches();
    out.set_rm(std::move(branch.rm));
    out.set_work(encode_work(branch.work));
  }
  submit.set_timeout_ms(wire_ms(transaction.timeout));
  submit.set_reply_at(transaction.wait_for_end ? wire::REPLY_AT_END : wire::REPLY_AT_DECISION);
  if (request.known_given_) to_wire(transaction.known, *submit.mutable_known());
  return request;
}

Request Request::question(wire::Ask ask) {
  Request request;
  request.request_id_ = ask.request_id();
  *request.frame_.mutable_ask() = std::move(ask);
  return request;
}

Request Request::end(wire::Finish finish) {
  Request request;
  request.commit_ = finish.commit();
  *request.frame_.mutable_finish() = std::move(finish);
  return request;
}

bool Request::make_ready(TxnId known, LogId log_id, std::chrono::milliseconds since_first) {
  if (!frame_.has_submit()) return true;
  if (ever_sent_ && log_id != log_id_ && open_ > 0) return false;
  wire::Submit& submit = *frame_.mutable_submit();
  // Rule 7: what was known at the first sending, so that a resent one is never taken for a new one.
  if (!ever_sent_ ? !known_given_ : log_id != log_id_) to_wire(known, *submit.mutable_known());
  submit.set_age_ms(static_cast<std::uint64_t>(since_first.count()));
  log_id_ = log_id;
  return true;
}

void Request::sent() {
  ever_sent_ = true;
  if (!frame_.has_submit()) return;
  ++open_;
  has_outcome_ = false;
}

Request::Next Request::answered(Outcome outcome) {
  retrying_ = false;
  if (!submission_) return answered_question(std::move(outcome));
  if (asking_for_end_) return answered_end(std::move(outcome));
  return answered_submission(std::move(outcome));
}

Request::Next Request::answered_submission(Outcome outcome) {
  switch (outcome.verdict) {
    case Verdict::pending:
    case Verdict::unknown: inconclusive_ = std::move(outcome.detail); return Next::send_again;
    case Verdict::rejected:
      // Nothing has happened by this sending; an earlier one without an answer may still run.
      if (open_ > 0) --open_;
      if (open_ > 0 && retryable(outcome.reason)) {
        inconclusive_ = std::move(outcome.detail);
        return Next::send_again;
      }
      break;
    case Verdict::committed:
    case Verdict::aborted:
    case Verdict::expired:
    case Verdict::not_found: break;
  }
  return decided(std::move(outcome));
}

Request::Next Request::decided(Outcome outcome) {
  open_ = 0;
  ++decided_;
  outcome_ = std::move(outcome);
  has_outcome_ = true;
  const bool undone = outcome_.verdict == Verdict::aborted || outcome_.verdict == Verdict::rejected;
  // Where a branch has ended otherwise, another attempt might do its work twice.
  if (undone && !outcome_.heuristic && retryable(outcome_.reason) && retries_left_ > 0) {
    --retries_left_;
    retrying_ = true;
    return Next::send_again;
  }
  if (outcome_.verdict == Verdict::committed && wait_for_end_ && !outcome_.ended &&
      !outcome_.gtrid.empty()) {
    asking_for_end_ = true;
    frame_.mutable_ask()->set_gtrid(outcome_.gtrid);
    frame_.mutable_ask()->set_reply_at(wire::REPLY_AT_END);
    return Next::send_again;
  }
  return Next::finish;
}

Request::Next Request::answered_end(Outcome outcome) {
  if (outcome.verdict == Verdict::pending || passing(outcome)) return Next::send_again;
  if (outcome.verdict != Verdict::committed) {
    // Kept outcomes are purged only after the end (rule 6).
    outcome_.ended = outcome.verdict == Verdict::expired;
    return Next::finish;
  }
  outcome_.ended = outcome.ended;
  outcome_.heuristic = outcome_.heuristic || outcome.heuristic;
  return outcome_.ended ? Next::finish : Next::send_again;
}

Request::Next Request::answered_question(Outcome outcome) {
  if (passing(outcome)) return Next::send_again;
  outcome_ = std::move(outcome);
  has_outcome_ = true;
  return Next::finish;
}

Answered Request::told(Outcome outcome) const {
  Answered answered;
  answered.outcome = std::move(outcome);
  answered.request_id = request_id_;
  answered.attempts = std::max(decided_, 1u);
  return answered;
}

Outcome Request::without_answer(const std::string& reason) const {
  if (open_ == 0 && has_outcome_) return outcome_;
  const std::string why =
      inconclusive_.empty() ? reason : reason + "; the coordinator said: " + inconclusive_;
  Outcome outcome;
  if (commit_ && ever_sent_) {
    outcome.detail = why + "; the transaction may have committed: ask for its gtrid later";
  } else if (!submission_) {
    outcome.detail = why + "; the outcome stays what it is: ask again later";
  } else if (open_ > 0) {
    outcome.detail = why + "; the transaction may have committed: ask for request id " +
                     request_id_ + " later, or submit it again with the same request id";
  } else {
    outcome.verdict = Verdict::rejected;
    outcome.reason = Reason::unavailable;
    outcome.detail = why + "; nothing has been sent, so nothing has happened";
  }
  return outcome;
}

}  // namespace twofold::client
