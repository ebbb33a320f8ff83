// What a peer sends inside a frame: parsed, turned into our plain types and back into messages.
//
// Input: a frame's payload.
#include "protocol/convert.h"
#include "protocol/frame.h"
#include "protocol/operation.h"
#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

void check(const wire::Xid& message) {
  const Result<Xid> xid = from_wire(message);
  if (!xid) return require_sentence(xid.error());
  require(xid->format_id == message.format_id() && xid->gtrid == message.gtrid() &&
              xid->bqual == message.bqual(),
          "an xid says what its message says");
  wire::Xid again;
  to_wire(*xid, again);
  const Result<Xid> back = from_wire(again);
  require(back && *back == *xid, "an xid comes back from its message");
}

void check(const wire::TxnId& message) {
  const TxnId id = from_wire(message);
  wire::TxnId again;
  to_wire(id, again);
  require(again.epoch() == message.epoch() && again.sequence() == message.sequence(),
          "a transaction's id comes back");
}

void check(const wire::Refusal& message) {
  const Refusal refusal = from_wire(message);
  wire::Refusal again;
  to_wire(refusal, again);
  require(from_wire(again) == refusal, "a refusal comes back from its message");
  require(!to_text(refusal).empty() && is_utf8(to_text(refusal)), "a refusal has a text");
}

void check(const wire::Failure& message) {
  const Error error = to_error(message);
  require(!error.message.empty() && is_utf8(error.message), "a failure has a text");
  require(error.fault == fault_of(message.code()), "a failure has its code's fault");
}

// Its values as people read them, on one line.
void check_text(const Value& value) {
  const std::string text = to_text(value);
  require(!text.empty() && is_utf8(text), "a value has a text", text);
  require(
      std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }),
      "the text of a value has no control characters", text);
}

// NaN is not equal to itself: what came back is compared by its bytes.
void check_work(std::string_view bytes) {
  const Result<Work> work = decode_work(bytes);
  if (!work) return require_sentence(work.error());
  require(find_not_utf8(*work).empty(), "decoded work is UTF-8");
  for (const Operation& operation : *work) {
    require(!operation.name.empty(), "a decoded operation has a name");
    require(operation.arguments.size() <= kArgumentsMax, "a decoded operation is within limits");
    for (const auto& [name, value] : operation.arguments) {
      require(!name.empty() && operation.find(name) == &value, "an argument is there once");
      check_text(value);
    }
  }
  const std::string encoded = encode_work(*work);
  const Result<Work> back = decode_work(encoded);
  require(back && encode_work(*back) == encoded, "work comes back from its bytes");
}

void check_results(std::string_view bytes) {
  const Result<Results> results = decode_results(bytes);
  if (!results) return require_sentence(results.error());
  for (const Value& value : *results) check_text(value);
  const std::string encoded = encode_results(*results);
  const Result<Results> back = decode_results(encoded);
  require(back && encode_results(*back) == encoded, "results come back from their bytes");
}

void check(const wire::Outcome& message) {
  const Outcome outcome = from_wire(message);
  require(name(outcome.verdict) != "?" && !name(outcome.verdict).empty(), "a verdict has a name");
  require(!name(outcome.reason).empty(), "a reason has a name");
  wire::Outcome once, twice;
  to_wire(outcome, once);
  to_wire(from_wire(once), twice);
  require(once.SerializeAsString() == twice.SerializeAsString(), "an outcome comes back");
  require(once.detail() == message.detail() && once.gtrid() == message.gtrid() &&
              once.refusals_size() == message.refusals_size() &&
              once.results_size() == message.results_size() && once.ended() == message.ended() &&
              once.heuristic() == message.heuristic(),
          "an outcome says what its message says");
  for (const wire::Refusal& refusal : message.refusals()) check(refusal);
  for (const wire::BranchResult& branch : message.results()) check_results(branch.results());
}

void check(const wire::TransactionView& view) {
  check(view.outcome());
  for (const wire::BranchView& branch : view.branches()) check(branch.xid());
}

void check(const wire::LockEntry& entry) {
  for (const wire::LockHolder& holder : entry.holders()) check(holder.xid());
  for (const wire::LockHolder& waiter : entry.waiters()) check(waiter.xid());
}

void check_branch_message(const wire::Frame& frame) {
  switch (frame.body_case()) {
    case wire::Frame::kStart: check(frame.start().xid()); return check_work(frame.start().work());
    case wire::Frame::kPrepare: return check(frame.prepare().xid());
    case wire::Frame::kCommit: return check(frame.commit().xid());
    case wire::Frame::kRollback: return check(frame.rollback().xid());
    case wire::Frame::kRelease: return check(frame.release().xid());
    case wire::Frame::kForget: return check(frame.forget().xid());
    case wire::Frame::kAskOutcome: return check(frame.ask_outcome().xid());
    case wire::Frame::kMark: return check(frame.mark().low_water());
    case wire::Frame::kJoin: return check(frame.join().xid());
    case wire::Frame::kExecute:
      check(frame.execute().xid());
      return check_work(frame.execute().work());
    case wire::Frame::kEnd: return check(frame.end().xid());
    case wire::Frame::kBranchAnswer:
      for (const wire::Refusal& refusal : frame.branch_answer().refusals()) check(refusal);
      return check_results(frame.branch_answer().results());
    case wire::Frame::kRecoverAnswer:
      for (const auto& branch : frame.recover_answer().branches()) check(branch.xid());
      return;
    case wire::Frame::kWaits:
      for (const auto& wait : frame.waits().waits()) check(wait.waiter()), check(wait.holder());
      return;
    default: return;
  }
}

void check_other_message(const wire::Frame& frame) {
  switch (frame.body_case()) {
    case wire::Frame::kWelcome: return check(frame.welcome().newest());
    case wire::Frame::kHeartbeat: return check(frame.heartbeat().newest());
    case wire::Frame::kFailure: return check(frame.failure());
    case wire::Frame::kLocksAnswer:
      for (const wire::LockEntry& entry : frame.locks_answer().entries()) check(entry);
      return;
    case wire::Frame::kInDoubtAnswer:
      for (const auto& branch : frame.in_doubt_answer().branches()) check(branch.xid());
      return;
    case wire::Frame::kSubmit:
      for (const auto& branch : frame.submit().branches()) check_work(branch.work());
      return check(frame.submit().known());
    case wire::Frame::kAsk: return check(frame.ask().known());
    case wire::Frame::kOutcome: return check(frame.outcome());
    case wire::Frame::kListAnswer:
      for (const auto& view : frame.list_answer().transactions()) check(view);
      return;
    case wire::Frame::kShow: return check(frame.show().id());
    case wire::Frame::kShowAnswer: return check(frame.show_answer().transaction());
    case wire::Frame::kEnlisted: return check(frame.enlisted().xid());
    default: return;
  }
}

// A message that was taken can be sent on, and arrives as it was.
void check_sending(const wire::Frame& frame) {
  require(has_valid_texts(frame), "a message that was taken has valid texts");
  const std::string sent = frame.SerializeAsString();
  std::string stream;
  append_frame(frame, stream);
  FrameReader reader(sent.size());
  reader.append(stream);
  std::string_view payload;
  require(reader.next(payload) && payload == sent, "a frame arrives as it was sent");
  wire::Frame again;
  require(parse_message(payload, again), "a message that was sent is taken");
  require(again.SerializeAsString() == sent, "a message arrives as it was sent");
  require(again.body_case() == frame.body_case(), "a message keeps its kind");
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace twofold;
  wire::Frame frame;
  if (!parse_message(fuzz::Input(data, size).rest(), frame)) return 0;
  fuzz::check_sending(frame);
  fuzz::check_branch_message(frame);
  fuzz::check_other_message(frame);
  return 0;
}
