#include "lab/workflows/runner.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <random>
#include <utility>

#include "lab/workflows/transaction_line.h"
#include "protocol/utf8.h"

namespace twofold::lab {
namespace {

constexpr std::chrono::milliseconds kAskAgain{200};
constexpr std::chrono::seconds kOwnWordMax{
    10};  // an unknown that comes sooner is the coordinator's
constexpr std::size_t kRunBytesMax = kRequestIdBytesMax - 28;

bool decided(const Outcome& outcome) {
  return outcome.verdict == Verdict::committed || outcome.verdict == Verdict::aborted;
}

}  // namespace

std::string_view outcome_word(const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::committed: return "committed";
    case Verdict::aborted:
    case Verdict::not_found: return "aborted";
    case Verdict::rejected: return retryable(outcome.reason) ? "aborted" : "invalid";
    case Verdict::pending:
    case Verdict::expired:
    case Verdict::unknown: break;
  }
  return "unknown";
}

std::string reason_text(const Outcome& outcome) {
  if (outcome.refusals.empty()) return outcome.detail;
  std::string text;
  for (const auto& refusal : outcome.refusals) {
    if (!text.empty()) text += "; ";
    text += to_text(refusal);
  }
  return text;
}

Run Run::make(TxnId known) {
  std::random_device random;
  std::string bytes;
  for (int i = 0; i < 9; ++i) bytes.push_back(static_cast<char>(random()));
  return {to_text(known) + "-" + base64url_encode(bytes), known};
}

Result<Run> Run::parse(std::string_view text) {
  if (text.empty() || text.size() > kRunBytesMax || !is_utf8(text)) {
    return Error{Fault::invalid,
                 "--run takes the run id that the earlier command printed, at most " +
                     std::to_string(kRunBytesMax) + " bytes of UTF-8"};
  }
  // A run that was not made here may be as old as the log.
  TxnId known{0, 1};
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    if (auto id = parse_txn_id(text.substr(0, dash)); id && *id != TxnId{}) known = *id;
  }
  return Run{std::string(text), known};
}

class Runner::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(boost::asio::io_context& io, client::AsyncClient& client, LineReader& reader, Run run,
       RunnerOptions options, Handlers handlers)
      : io_(io),
        client_(client),
        reader_(reader),
        run_(std::move(run)),
        options_(options),
        handlers_(std::move(handlers)) {}

  void start() {
    reader_.on_ready([self = weak_from_this()] {
      if (auto impl = self.lock()) impl->pump();
    });
    pump();
  }

  void stop() {
    if (stopped_) return;
    stopped_ = true;
    counts_.unfinished += std::exchange(counts_.ending, 0);
    reader_.stop();
    pump();
  }

  void leave() {
    handlers_ = {};
    ended_ = true;
  }

  const RunnerCounts& counts() const { return counts_; }

 private:
  void pump() {
    if (pumping_) return;  // a callback came from inside submit(): the loop below goes on
    pumping_ = true;
    while (!at_end_ && !ended_ && counts_.in_flight < options_.concurrency) {
      std::uint64_t number = 0;
      const auto got = reader_.next(number, line_);
      if (got == LineReader::Got::nothing_yet) break;
      at_end_ = got == LineReader::Got::end;
      counts_.whole = at_end_ && !stopped_;
      if (!at_end_) take(number, line_);
    }
    pumping_ = false;
    if (!at_end_ || ended_ || counts_.in_flight + counts_.ending > 0) return;
    ended_ = true;
    if (handlers_.on_end) boost::asio::post(io_, handlers_.on_end);
  }

  void take(std::uint64_t number, std::string_view line) {
    auto transaction = handlers_.parse(line);
    if (!transaction) {
      LineResult result{number, {}, {}, 0};
      result.outcome.verdict = Verdict::rejected;
      result.outcome.reason = Reason::invalid;
      result.outcome.detail = transaction.error().message;
      tell(std::move(result));
      return;
    }
    if (transaction->request_id.empty()) {
      transaction->request_id = run_.request_id(std::to_string(number));
      transaction->known = run_.known;
    }
    ++counts_.in_flight;
    client_.submit(std::move(*transaction),
                   [self = shared_from_this(), number](client::Answered answered) {
                     --self->counts_.in_flight;
                     self->tell({number, std::move(answered.request_id),
                                 std::move(answered.outcome), answered.attempts});
                     self->pump();
                   });
  }

  void tell(LineResult result) {
    ++counts_.told;
    if (handlers_.on_result) handlers_.on_result(result);
    if (result.outcome.heuristic) tell_heuristic(result);
    const auto& outcome = result.outcome;
    if (!options_.wait_for_end || !decided(outcome) || outcome.ended || outcome.gtrid.empty())
      return;
    if (stopped_) {
      ++counts_.unfinished;
      return;
    }
    ++counts_.ending;
    result.outcome.results.clear();
    ask_for_end(std::make_shared<LineResult>(std::move(result)));
  }

  void tell_heuristic(const LineResult& result) {
    ++counts_.heuristic;
    if (handlers_.on_heuristic) handlers_.on_heuristic(result);
  }

  void ask_for_end(const std::shared_ptr<LineResult>& result) {
    if (ended_ || stopped_) return;
    const auto asked = std::chrono::steady_clock::now();
    client_.ask_gtrid(result->outcome.gtrid, wire::REPLY_AT_END,
                      [self = shared_from_this(), result, asked](Outcome outcome) {
                        self->on_end_told(result, outcome,
                                          std::chrono::steady_clock::now() - asked);
                      });
  }

  // A participant may be away for long: that is waited for as long as the coordinator answers. Only
  // if nobody can tell any more is the transaction left unfinished.
  void on_end_told(const std::shared_ptr<LineResult>& result, const Outcome& outcome,
                   std::chrono::steady_clock::duration took) {
    if (outcome.heuristic && !std::exchange(result->outcome.heuristic, true)) {
      tell_heuristic(*result);
    }
    if (stopped_) return;  // counted as unfinished
    const bool told = decided(outcome) || outcome.verdict == Verdict::expired ||
                      outcome.verdict == Verdict::not_found;
    const bool own_word = outcome.verdict == Verdict::unknown && took < kOwnWordMax;
    if (told || own_word || !client_.connected()) {
      --counts_.ending;
      if (!told) ++counts_.unfinished;
      pump();
      return;
    }
    auto timer = std::make_shared<boost::asio::steady_timer>(io_, kAskAgain);
    timer->async_wait([self = shared_from_this(), timer, result](const boost::system::error_code&) {
      self->ask_for_end(result);
    });
  }

  boost::asio::io_context& io_;
  client::AsyncClient& client_;
  LineReader& reader_;
  const Run run_;
  const RunnerOptions options_;
  Handlers handlers_;
  RunnerCounts counts_;
  std::string line_;
  bool at_end_ = false;
  bool ended_ = false;
  bool stopped_ = false;
  bool pumping_ = false;
};

Runner::Runner(boost::asio::io_context& io, client::AsyncClient& client, LineReader& reader,
               Run run, RunnerOptions options, Handlers handlers)
    : impl_(std::make_shared<Impl>(io, client, reader, std::move(run), options,
                                   std::move(handlers))) {}
Runner::~Runner() {
  impl_->leave();
}
void Runner::start() {
  impl_->start();
}
void Runner::stop() {
  impl_->stop();
}
const RunnerCounts& Runner::counts() const {
  return impl_->counts();
}

}  // namespace twofold::lab
