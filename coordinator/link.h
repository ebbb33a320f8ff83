// The link to one resource manager: it keeps one session open (rule 15), turns effects into frames
// and answers into events, and connects again for as long as the coordinator runs.
//
// What it owes the core (coordinator/core/events.h):
//   - Everything that a session answered is posted before its LinkDown, and nothing after it.
//   - No effect reaches a later session than the one it was meant for: the next connection is not
//   even
//     tried before resume(), which the engine calls when the core has stepped the LinkDown. An
//     effect that comes between a loss and its LinkDown is dropped; the LinkDown tells the core so.
//   - A frame that the resource manager would not accept for its size is answered at once with
//     XA_RBOTHER, never left without an answer.
//   - A listing of branches in doubt ends: at kScanEntriesMax entries or after scan_time_max it is
//     reported as incomplete.
//
// A resource manager that refuses the session (rule 2) is logged once for each new reason, and
// asked again at the slow end of the backoff: an operator may put it right at any time. One that
// knows of a newer copy of the log ends the coordinator: Driver::outdated().
//
// It may be destroyed while the event loop goes on.
//
// Threads: the engine's.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/core/events.h"
#include "coordinator/driver.h"
#include "protocol/connection.h"
#include "runtime/backoff.h"
#include "runtime/histogram.h"

namespace twofold::coordinator {

inline constexpr std::size_t kScanEntriesMax = 1'000'000;
inline constexpr std::uint32_t kScanBatch = 1'000;
inline constexpr std::uint32_t kListedBytesMax = 256;  // of one branch in a batch
// A resource manager that announces less takes this much all the same (protocol/connection.h), so
// the verbs of phase two always fit.
inline constexpr std::size_t kPeerFrameBytesMin = 64u << 10;

struct LinkOptions {
  RmId id = 0;
  std::string name;
  Address address;
  wire::Hello hello;  // all of it but the session's counter
  ConnectionOptions connection;
  std::chrono::milliseconds reconnect_first{50};
  std::chrono::milliseconds reconnect_max{2000};
  std::chrono::milliseconds scan_time_max{60'000};
};

class Link {
 public:
  Link(Driver& driver, LinkOptions options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void connect();  // begins, and goes on for ever
  void resume();   // the core has stepped the LinkDown: connect again
  void close();    // for good; posts nothing more

  void send(Start& effect);
  void send(Prepare& effect);
  void send(Commit& effect);
  void send(Rollback& effect);
  void send(Release& effect);
  void send(Forget& effect);
  void send(ListInDoubt& effect);
  void send(AskOutcome& effect);
  void send(SendMark& effect);

  void flush_blocking();  // for crash points
  const std::string& name() const { return options_.name; }
  bool is_up() const { return connection_ != nullptr; }
  std::uint64_t branch_frames() const {
    return branch_frames_;
  }                                      // to and from branches, no heartbeats
  Connection::Counters traffic() const;  // of all sessions
  void add_stats(wire::StatsAnswer& stats) const;

 private:
  enum class Verb : std::uint8_t {
    work,
    vote,
    commit_one_phase,
    commit,
    rollback,
    release,
    forget,
    list,
    evidence,
  };
  struct Asked {
    Verb verb = Verb::work;
    BranchKey branch;
    Xid xid;
    Time sent;
  };
  struct Scan {
    std::uint64_t request = 0;  // of the batch that is awaited; 0: no scan runs
    bool whole = true;          // every entry so far could be read
    std::vector<ListedBranch> branches;
  };
  using Greeted = Result<std::pair<std::shared_ptr<Connection>, wire::Welcome>>;

  // The session's life.
  void greeted(Greeted result);
  std::string unacceptable(const wire::Welcome& welcome) const;
  void up(std::shared_ptr<Connection> connection, const wire::Welcome& welcome);
  void lost(const Error& why);
  void unreachable(const Error& why);
  void refused(const std::string& text);
  void connect_after(std::chrono::milliseconds pause);
  bool is_news(const std::string& text);

  // For what the event loop calls later: does nothing once this link is gone.
  template <class Function>
  auto while_alive(Function function) {
    return [alive = std::weak_ptr(alive_), function = std::move(function)](auto&&... arguments) {
      if (!alive.expired()) function(std::forward<decltype(arguments)>(arguments)...);
    };
  }

  // Asking.
  static Verb verb_of(Then then);
  bool ask(wire::Frame& frame, Verb verb, const BranchKey& branch, Xid xid);
  void refuse_too_large(const Start& effect, std::size_t bytes);
  void ask_batch(bool start);

  // Answers.
  void on_frame(wire::Frame& frame);
  void on_answer(wire::Frame& frame);
  void on_failure(wire::Frame& frame);
  void on_branch_answer(Asked asked, wire::BranchAnswer& answer);
  void on_recover_answer(std::uint64_t request, wire::RecoverAnswer& answer);
  void on_waits(const wire::Waits& waits);
  void on_evidence(const Asked& asked, const wire::Evidence& evidence);
  void end_scan(bool complete);
  void broken(const std::string& what);  // the peer does not keep to the protocol

  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // ends with this link
  Driver& driver_;
  LinkOptions options_;
  Backoff backoff_;
  boost::asio::steady_timer reconnect_timer_;
  boost::asio::steady_timer scan_timer_;
  std::function<void()> cancel_connect_;
  std::shared_ptr<Connection> connection_;
  std::unordered_map<std::uint64_t, Asked> asked_;
  Scan scan_;
  std::uint64_t session_ = 0;
  std::uint64_t last_request_ = 0;
  std::size_t peer_frame_bytes_max_ = 0;
  Time up_since_;
  bool closed_ = false;
  bool malformed_told_ = false;
  std::string state_ = "not connected yet";  // for people
  std::string last_told_;                    // the last trouble that was logged

  Histogram vote_us_;
  Histogram commit_us_;
  std::uint64_t branch_frames_ = 0;
  Connection::Counters earlier_traffic_{};
};

}  // namespace twofold::coordinator
