// The two-phase commit core: decides, and does nothing else. No I/O, no clock, no randomness, no
// logging.
//
// Presumed abort after Mohan, Lindsay, Obermarck 1986, section 3; the verbs are X/Open's (XA C193).
// The numbered rules are in docs/rules.md.
//
// How to drive it: see coordinator/core/events.h. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/events.h"

namespace twofold::coordinator {

struct Options {
  std::vector<std::string> resource_managers;  // names; an RmId is an index into it
  // Those whose recorded store is lost, as the operator says: the first other one that answers is
  // taken for it, and what the lost one held ends as rule 16 says.
  std::vector<std::string> accept_stores{};
  std::size_t transactions_max = 100'000;  // live at once; beyond: rejected, reason overload
  std::size_t branches_max = 64;           // of one transaction
  std::size_t outcomes_max = 100'000;      // kept after the end (rule 6)
  std::size_t traces_max = 1'000;          // recently ended transactions kept for show()
  // Branches at one resource manager reported one by one (rule 14); of more, one alarm says so.
  std::size_t listed_alarms_max = 1'000;
  Duration timeout_default = std::chrono::seconds{10};
  Duration timeout_max = std::chrono::minutes{10};
  Duration scan_period = std::chrono::seconds{5};
  Duration mark_period = std::chrono::milliseconds{500};
  // How long a transaction may hold the mark back before it is alarmed (rule 18).
  Duration mark_alarm = std::chrono::minutes{5};
  // The pause before a verb is sent again; doubles up to retry_max.
  Duration retry_first = std::chrono::milliseconds{50};
  Duration retry_max = std::chrono::seconds{2};
  bool read_only_votes = true;
  bool one_phase = true;
  bool early_prepare = true;
};

enum class Phase : std::uint8_t {
  active,      // interactive: its client enlists and works
  intending,   // the intent of a one-phase commit is being written; nothing has been sent
  working,     // early prepare off: work is under way
  preparing,   // waiting for votes
  releasing,   // all have voted, and some only read: do these still hold their locks (rule 11)?
  deciding,    // the commit record is being written: no way back (rule 4)
  refusing,    // a business refusal is being written; rollbacks are on their way
  one_phase,   // the one-phase commit has been sent
  resolving,   // it is not known what became of it: the resource manager is asked (rule 5)
  committing,  // decided commit; phase two
  aborting,    // decided abort; rollbacks are on their way
  ended,
};
std::string_view name(Phase phase);

enum class BranchState : std::uint8_t {
  idle,       // nothing has been sent
  started,    // its work is under way
  worked,     // work done, not asked to prepare
  preparing,  // asked for its vote
  prepared,   // voted yes
  read_only,  // voted XA_RDONLY
  refused,    // voted no
  ending,     // Commit, Rollback or Release sent
  unsure,     // not sent, answer lost, XAER_NOTA or XA_RETRY: a scan or a retry will tell
  asking,     // a complete scan lacks it: its evidence is asked for (rule 16)
  done,
};
std::string_view name(BranchState state);

struct BranchView {
  std::string rm;
  Xid xid;
  BranchState state = BranchState::idle;
  std::optional<Xa> vote;
};
struct TransactionView {
  TxnId id;
  std::string gtrid;
  std::string request_id;
  Phase phase = Phase::ended;
  Outcome outcome;
  std::vector<BranchView> branches;
  // In order of entry; empty for what an earlier epoch did.
  std::vector<std::pair<Phase, Time>> phases;
  Time started{};  // not known: {}
};

struct ParticipantView {
  enum class Standing : std::uint8_t {
    away,       // no session
    recording,  // a session, which waits until the log has its store
    barred,     // a session, to another store than the one that may hold branches
    serving,
  };
  Standing standing = Standing::away;
  Participant::State state = Participant::State::active;  // drained: as the log has it
  std::vector<TxnId> open;  // live transactions with a branch there, oldest first
  std::size_t listed = 0;   // of our branches, in doubt, by its last scan
};
std::string_view name(ParticipantView::Standing standing);

struct Counts {
  std::uint64_t submitted = 0, committed = 0, aborted = 0, refused = 0, rejected = 0;
  std::uint64_t live = 0, outcomes = 0, heuristics = 0, alarms = 0, recovered = 0;
  std::uint64_t one_phase = 0, read_only = 0, orphans_rolled_back = 0, deadlocks = 0;
};

class Coordinator {
 public:
  // `recovered` is what replay found; the records become live transactions or kept outcomes, and
  // recovery goes on as ordinary phase two once links are up. `now` is the time of the start.
  Coordinator(Options options, Epoch epoch, Recovered recovered, Time now);
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;

  // Appends to `effects`. Any event may come in any phase: one that no longer matters changes
  // nothing.
  void step(Event event, Time now, std::vector<Effect>& effects);
  std::optional<Time> next_deadline() const;  // when to step(Tick); none: not before the next event

  TxnId newest() const;     // the newest issued id (rule 7): clients are told
  TxnId low_water() const;  // the oldest transaction that is not durably ended (rule 18)
  TxnId floor() const;      // the highest id ever purged
  Counts counts() const;

  // Oldest first.
  std::vector<TransactionView> list(bool with_ended, std::size_t entries_max) const;
  std::optional<TransactionView> show(TxnId id) const;
  std::optional<TransactionView> show_gtrid(std::string_view gtrid) const;
  std::optional<TransactionView> show_request(std::string_view request_id) const;
  ParticipantView participant(RmId rm, bool with_open = true) const;  // `open` takes a walk
  std::optional<RmId> find_participant(std::string_view name) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Why a coordinator of these resource managers must not start on what replay found: it would leave
// out one that was not drained. The text lists what is known to be open there, and says what to do.
std::optional<std::string> left_out(const Recovered& recovered,
                                    const std::vector<std::string>& resource_managers);

// Of a submission: names and work of all branches, in order (rule 7).
std::uint64_t payload_hash(const std::vector<SubmittedBranch>& branches);

}  // namespace twofold::coordinator
