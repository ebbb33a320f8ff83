#include "cli/session.h"

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "cli/output.h"
#include "cli/progress.h"

namespace twofold::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrawEvery{200};
constexpr std::chrono::seconds kEndingNotice{3};  // nothing but ends are waited for so long: say so
constexpr std::size_t kExamplesMax = 5;  // failed lines shown where nobody asked for --output

client::Options client_options(const SessionOptions& options, const Address& coordinator) {
  client::Options client;
  client.coordinator = coordinator;
  client.name = "twofold";
  client.retries = options.retries;
  client.give_up = std::chrono::seconds(options.give_up_s);
  return client;
}

json::object result_line(const lab::LineResult& result, const Told& told) {
  json::object line{
      {"line", result.line},
      {"request_id", result.request_id},
      {"outcome", json::string_view(told.outcome.data(), told.outcome.size())},
      {"class", json::string_view(told.result_class.data(), told.result_class.size())},
      {"reason", lab::reason_text(result.outcome)}};
  if (!result.outcome.gtrid.empty()) {
    line["id"] = id_text(result.outcome.gtrid);
    line["gtrid"] = gtrid_text(result.outcome.gtrid);
  }
  if (result.attempts > 1) line["attempts"] = result.attempts;
  if (result.outcome.heuristic) line["heuristic"] = true;
  return line;
}

// Passing, and yet they may last until somebody does something.
bool may_last(Reason reason) {
  return reason == Reason::unavailable || reason == Reason::space || reason == Reason::overload;
}

}  // namespace

// Result lines, in completion order. Standard output is not closed.
class Output {
 public:
  static Result<Output> open(const std::string& path) {
    if (path.empty()) return Output(nullptr);
    if (path == "-") return Output(stdout);
    auto* file = std::fopen(path.c_str(), "we");
    if (!file) {
      return Error{Fault::io, "cannot write " + path + ": " + std::strerror(errno)};
    }
    return Output(file);
  }
  Output(Output&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  Output& operator=(Output&&) = delete;
  ~Output() {
    if (file_ && file_ != stdout) std::fclose(file_);
  }
  bool wanted() const { return file_ != nullptr; }
  void write(const json::object& line) {
    const auto text = json_text(line) + "\n";
    std::fwrite(text.data(), 1, text.size(), file_);
  }
  // False: not all of it could be written.
  bool flush() { return !file_ || (std::fflush(file_) == 0 && !std::ferror(file_)); }

 private:
  explicit Output(std::FILE* file) : file_(file) {}
  std::FILE* file_;
};

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_target(command, options.target, Finds::both);
  command.add_option("FILE", options.file, "One JSON object a line; - is standard input")
      ->required();
  command
      .add_option("--output", options.output,
                  "Write one result line each, in completion order; - is standard output")
      ->type_name("FILE");
  command.add_option("--concurrency", options.concurrency, "How many are in flight at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command
      .add_option("--retries", options.retries,
                  "How often a transaction is tried again that aborted for a passing reason")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command
      .add_option("--give-up", options.give_up_s,
                  "Seconds without a decision after which an outcome is told as unknown")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  // An empty one (an unset variable of a script) must not begin a new run: it would submit again.
  command
      .add_option("--run", options.run,
                  "Go on with an earlier run that was cut short, by the id that it printed")
      ->check(
          [](const std::string& id) { return std::string(id.empty() ? "the id is empty" : ""); });
  command.add_flag("--no-wait", options.no_wait,
                   "End at the decisions; do not wait until every branch has finished");
  command.add_flag("--json", options.json, "End with a JSON object on standard output");
}

class Session::Impl {
 public:
  explicit Impl(SessionOptions options) : options_(std::move(options)), signals_(io_) {}

  Result<void> connect() {
    auto address = coordinator_address(options_.target);
    if (!address) return address.error();
    std::optional<lab::Run> resumed;
    if (!options_.run.empty()) {
      auto parsed = lab::Run::parse(options_.run);
      if (!parsed) return parsed.error();
      resumed = std::move(*parsed);
    }
    if (auto done = open_files(); !done) return done.error();
    client_.emplace(io_, client_options(options_, *address));
    if (auto done = await_greeting(*address); !done) return done.error();
    run_ = resumed ? std::move(*resumed) : lab::Run::make(client_->known());
    return {};
  }

  std::vector<client::Answered> submit_all(std::vector<client::Transaction> transactions) {
    std::vector<client::Answered> answers(transactions.size());
    std::size_t left = transactions.size();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      client_->submit(std::move(transactions[i]), [&, i](client::Answered answered) {
        answers[i] = std::move(answered);
        --left;
      });
    }
    while (left > 0) turn();
    return answers;
  }

  Outcome ask(std::string request_id) {
    std::optional<Outcome> answer;
    client_->ask_request(std::move(request_id), wire::REPLY_AT_DECISION, run_.known,
                         [&](Outcome outcome) { answer = std::move(outcome); });
    while (!answer) turn();
    return std::move(*answer);
  }

  const lab::Run& run() const { return run_; }
  Result<SessionResult> run_file(Parse parse, Tell tell);

 private:
  // Before anything is sent or said.
  Result<void> open_files() {
    auto reader = lab::LineReader::open(io_, options_.file);
    if (!reader) return reader.error();
    reader_ = std::move(*reader);
    auto output = Output::open(options_.output);
    if (!output) return output.error();
    output_.emplace(std::move(*output));
    return {};
  }

  void turn() {
    if (io_.run_one() == 0) io_.restart();
  }

  Result<void> await_greeting(const Address& address) {
    const auto end = Clock::now() + std::chrono::seconds(options_.give_up_s);
    std::string why = "it does not answer";
    bool told = false;
    // Answered at once, also where nothing but another address can help.
    wire::Frame question;
    question.mutable_stats();
    client_->call(std::move(question), [&](Result<wire::Frame> answer) {
      if (!answer && answer.error().fault == Fault::invalid) hopeless_ = answer.error();
    });
    client_->on_connection([&](bool connected, const std::string& text) {
      if (connected || told) return;
      told = true;
      why = text;
      note("waiting for the coordinator at " + to_text(address) + ": " + text);
    });
    while (!client_->connected() && !hopeless_ && Clock::now() < end) io_.run_one_until(end);
    client_->on_connection(nullptr);
    if (hopeless_) return *hopeless_;
    if (client_->connected()) return {};
    return Error{Fault::closed,
                 "no coordinator at " + to_text(address) + " within " +
                     std::to_string(options_.give_up_s) + " s: " + why +
                     (why.ends_with('?') ? " " : ". ") +
                     "Start it (twofold start coordinator --data DIR) and try again"};
  }

  void on_signal(lab::Runner& runner, Progress& progress) {
    signals_.async_wait([&](const boost::system::error_code& failed, int) {
      if (failed) return;
      if (interrupted_) std::_Exit(130);
      interrupted_ = true;
      if (const auto in_flight = runner.counts().in_flight; in_flight > 0) {
        progress.notice("stopping: waiting for the decisions on " +
                        plural(in_flight, "transaction") +
                        " in flight (press Ctrl-C again to leave them)");
      }
      on_signal(runner, progress);
      runner.stop();
    });
  }

  void draw_soon(const lab::Runner& runner, Progress& progress, Output& output) {
    timer_->expires_after(kDrawEvery);
    timer_->async_wait([&](const boost::system::error_code& failed) {
      if (failed) return;
      const auto& counts = runner.counts();
      progress.draw({counts.told, counts.ending, words(), client_->connected()});
      tell_ending(counts, progress);
      output.flush();
      draw_soon(runner, progress, output);
    });
  }

  void tell_ending(const lab::RunnerCounts& counts, Progress& progress) {
    if (counts.told != told_before_ || counts.in_flight > 0 || counts.ending == 0) {
      told_before_ = counts.told;
      quiet_since_ = Clock::now();
    } else if (!ending_told_ && Clock::now() - quiet_since_ > kEndingNotice) {
      ending_told_ = true;
      progress.notice(
          "all are decided; " + plural(counts.ending, "transaction") +
          (counts.ending == 1 ? " waits" : " wait") +
          " for a participant to finish (twofold list shows which; Ctrl-C or --no-wait does not "
          "wait)");
    }
  }

  std::string words() const {
    std::string text;
    for (const auto& [word, count] : outcomes_) {
      text += (text.empty() ? "" : "  ") + word + " " + grouped(static_cast<std::int64_t>(count));
    }
    return text;
  }

  void on_result(const lab::LineResult& result, const Told& told, Progress& progress,
                 Output& output) {
    ++outcomes_[std::string(told.outcome)];
    if (result.outcome.heuristic) heuristic_told_ = result.line;
    if (output.wanted()) {
      output.write(result_line(result, told));
    } else if (told.outcome != "committed" && ++failed_ <= kExamplesMax && !options_.json) {
      const auto reason = lab::reason_text(result.outcome);
      const auto why = reason.empty() ? std::string(told.result_class) : reason;
      progress.notice("line " + std::to_string(result.line) + ": " + std::string(told.outcome) +
                      ": " + why +
                      (failed_ == kExamplesMax ? "\n(further ones: see --output)" : ""));
    }
  }

  // A transaction has ended, and a branch otherwise. Its result was told before, if that came to
  // light only now: then it is told again.
  void on_heuristic(const lab::LineResult& result, Progress& progress, Output& output) {
    if (output.wanted() && heuristic_told_ != result.line) {
      const bool committed = result.outcome.verdict == Verdict::committed;
      output.write(result_line(result, {lab::outcome_word(result.outcome),
                                        committed ? "" : name(result.outcome.reason)}));
    }
    if (++heuristics_ > kExamplesMax) return;
    progress.notice(
        "line " + std::to_string(result.line) + ": " + id_text(result.outcome.gtrid) + " " +
        heuristic_text(result.outcome) +
        (heuristics_ == kExamplesMax ? "\n(further ones: see twofold list --all)" : ""));
  }

  // Each reason once: with many retries it would go on for minutes without a word.
  void on_retry(const Outcome& aborted, Progress& progress) {
    if (!may_last(aborted.reason) || retries_told_.size() >= kExamplesMax) return;
    const std::string why = lab::reason_text(aborted);
    if (!retries_told_.insert(why).second) return;
    progress.notice("trying again, at most " + std::to_string(options_.retries) +
                    " times each: " + why);
  }

  SessionOptions options_;
  boost::asio::io_context io_{1};
  std::unique_ptr<lab::LineReader> reader_;
  std::optional<Output> output_;
  boost::asio::signal_set signals_;
  std::optional<boost::asio::steady_timer> timer_;
  std::optional<Error> hopeless_;  // no waiting makes this peer a coordinator
  std::optional<client::AsyncClient> client_;
  lab::Run run_;
  std::map<std::string, std::uint64_t> outcomes_;
  std::set<std::string> retries_told_;
  std::uint64_t failed_ = 0;
  std::uint64_t heuristics_ = 0;
  std::uint64_t heuristic_told_ = 0;  // the last line whose result told it
  std::uint64_t told_before_ = 0;
  Clock::time_point quiet_since_ = Clock::now();
  bool ending_told_ = false;
  bool interrupted_ = false;
};

Result<SessionResult> Session::Impl::run_file(Parse parse, Tell tell) {
  Output& output = *output_;
  Progress progress(is_terminal(2) ? lab::LineReader::count_lines(options_.file) : 0);
  bool ended = false;
  lab::Runner runner(
      io_, *client_, *reader_, run_, {options_.concurrency, !options_.no_wait},
      {std::move(parse),
       [&](const lab::LineResult& result) { on_result(result, tell(result), progress, output); },
       [&] { ended = true; },
       [&](const lab::LineResult& result) { on_heuristic(result, progress, output); }});
  signals_.add(SIGINT);
  signals_.add(SIGTERM);
  timer_.emplace(io_);
  client_->on_connection([&](bool connected, const std::string& why) {
    progress.notice(connected ? "the coordinator is back"
                              : "lost the coordinator (" + why + "): going on when it is back");
  });
  client_->on_retry([&](const Outcome& aborted) { on_retry(aborted, progress); });
  on_signal(runner, progress);
  draw_soon(runner, progress, output);
  const auto begin = Clock::now();
  runner.start();
  while (!ended) turn();
  const std::chrono::duration<double> took = Clock::now() - begin;
  client_->on_connection(nullptr);
  client_->on_retry(nullptr);
  signals_.cancel();
  timer_.reset();
  io_.poll();
  if (!output.flush()) {
    return Error{Fault::io, "not all results could be written to " + options_.output +
                                ": make room, and run again with --run " + run_.id};
  }
  return SessionResult{runner.counts(), took.count(), interrupted_};
}

Session::Session(SessionOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Session::~Session() = default;
Result<void> Session::connect() {
  return impl_->connect();
}
const lab::Run& Session::run() const {
  return impl_->run();
}
std::vector<client::Answered> Session::submit_all(std::vector<client::Transaction> transactions) {
  return impl_->submit_all(std::move(transactions));
}
Outcome Session::ask(std::string request_id) {
  return impl_->ask(std::move(request_id));
}
Result<SessionResult> Session::run_file(Parse parse, Tell tell) {
  return impl_->run_file(std::move(parse), std::move(tell));
}

int finish(const SessionOptions& options, const lab::Run& run, const SessionResult& result,
           std::uint64_t unknown) {
  const auto& counts = result.counts;
  const auto resume = "go on with --run " + run.id;
  if (result.interrupted && !counts.whole) note("stopped before the end: " + resume);
  if (unknown > 0) {
    note("of " + plural(unknown, "transaction") + " it is not known whether " +
         (unknown == 1 ? "it" : "they") + " committed: when the coordinator is back, " + resume);
  }
  if (counts.unfinished > 0) {
    note(plural(counts.unfinished, "transaction") + (counts.unfinished == 1 ? " is" : " are") +
         " decided and may not have ended everywhere: nothing is lost, see twofold list and "
         "twofold in-doubt");
  }
  if (counts.heuristic > 0) {
    note(plural(counts.heuristic, "transaction") + (counts.heuristic == 1 ? " has" : " have") +
         " ended heuristically, a branch otherwise than its transaction: compare the participants' "
         "data. twofold list --all marks them HEURISTIC, twofold show ID names the branch");
  } else if (counts.unfinished > 0 || (options.no_wait && counts.told > 0)) {
    note(
        "should a branch end otherwise than its transaction, twofold list --all will mark it "
        "HEURISTIC");
  }
  if (result.interrupted) return 130;
  return unknown + counts.unfinished + counts.heuristic > 0 ? 1 : 0;
}

}  // namespace twofold::cli
