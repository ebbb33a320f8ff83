// One submission or question under way, and what an answer means for it. Pure: no I/O, no clock.
//
// The state behind "it runs at most once, and nobody is told what is not so": a submission that was
// sent and not answered may run, so from then on only a decision, or give_up with Verdict::unknown,
// ends it. A decision that a later connection tells is final for the sendings of earlier ones too:
// the coordinator takes nothing from them once it has welcomed the later one (client/link.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "client/client.h"
#include "protocol/wire.pb.h"

namespace twofold::client {

class Request {
 public:
  enum class Next : std::uint8_t {
    finish,      // outcome() is what the caller is told
    send_again,  // after a pause: a retry, or the answer did not settle it
  };

  Request() = default;
  static Request submission(Transaction transaction, unsigned retries);
  static Request question(wire::Ask ask);
  // The end of an interactive transaction. Sent again it is a question for its outcome.
  static Request end(wire::Finish finish);

  // To be called before each sending; brings the frame up to date. `known` and `log_id` are what
  // the coordinator of this connection said last, `since_first` the time since the first sending.
  // False: the transaction may have run in another log, and must not be sent to this one (rule 8).
  bool make_ready(TxnId known, LogId log_id, std::chrono::milliseconds since_first);
  void sent();
  Next answered(Outcome outcome);

  // What is true to say when no (further) answer will come. `reason` is for people.
  Outcome without_answer(const std::string& reason) const;

  wire::Frame& frame() { return frame_; }
  Outcome take_outcome() { return std::move(outcome_); }  // after Next::finish
  Answered told(Outcome outcome) const;
  bool is_submission() const { return submission_; }
  bool ever_sent() const { return ever_sent_; }
  // After Next::send_again: the abort that is tried again; null: it is sent again for another
  // reason.
  const Outcome* retried() const { return retrying_ ? &outcome_ : nullptr; }

 private:
  Next answered_submission(Outcome outcome);
  Next answered_question(Outcome outcome);
  Next answered_end(Outcome outcome);
  Next decided(Outcome outcome);

  wire::Frame frame_;
  std::string request_id_;
  bool submission_ = false;
  bool commit_ = false;  // of an interactive transaction
  bool wait_for_end_ = false;
  bool asking_for_end_ = false;  // decided; the frame has become a question by gtrid (rule 9)
  bool known_given_ = false;
  bool ever_sent_ = false;
  LogId log_id_;       // that it was last sent to
  unsigned open_ = 0;  // sendings of the submission that may still have an effect
  unsigned retries_left_ = 0;
  unsigned decided_ = 0;
  bool retrying_ = false;     // the last answer was an abort that is tried again
  bool has_outcome_ = false;  // outcome_ is true now: decided, and nothing open
  Outcome outcome_;
  std::string inconclusive_;  // what the coordinator said when it could not decide
};

}  // namespace twofold::client
