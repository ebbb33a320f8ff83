#include "tests/coordinator/core_text.h"

#include <algorithm>
#include <array>

#include "protocol/check.h"

namespace twofold::coordinator::test {

// ---- log ----------------------------------------------------------------------------------------

FakeLog::FakeLog(const Options& options, bool seen) {
  if (!seen) return;
  for (const std::string& name : options.resource_managers) {
    participants_.push_back({name, 500 + participants_.size(), Participant::State::active});
  }
}

void FakeLog::apply(const LogRecord& record) {
  std::visit(
      [this](const auto& one) {
        using Kind = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Kind, DroppedRecord>) {
          rows_.erase(one.id);
        } else if constexpr (std::is_same_v<Kind, HeuristicRecord>) {
          heuristics_[one.xid] = one;
        } else if constexpr (std::is_same_v<Kind, HeuristicForgottenRecord>) {
          heuristics_.erase(one.xid);
        } else if constexpr (std::is_same_v<Kind, PurgeRecord>) {
          for (const TxnId id : one.ids) rows_.erase(id);
          floor_ = one.floor;
        } else if constexpr (std::is_same_v<Kind, ParticipantsRecord>) {
          participants_ = one.all;
        } else {
          rows_[one.id] = one;
        }
      },
      record);
}

Recovered FakeLog::replay() const {
  Recovered found;
  for (const auto& [id, row] : rows_) {
    if (const auto* intent = std::get_if<IntentRecord>(&row)) found.intents.push_back(*intent);
    if (const auto* commit = std::get_if<CommitRecord>(&row)) found.commits.push_back(*commit);
    if (const auto* refusal = std::get_if<RefusalRecord>(&row)) found.refusals.push_back(*refusal);
    if (const auto* end = std::get_if<EndRecord>(&row)) found.ends.push_back(*end);
  }
  for (const auto& [xid, record] : heuristics_) found.heuristics.push_back(record);
  found.floor = floor_;
  found.participants = participants_;
  return found;
}

// ---- bench --------------------------------------------------------------------------------------

Bench::Bench(Options options, bool seen) : options_(std::move(options)), log_(options_, seen) {
  epoch_ = {"node", LogId{77}, {1, nonce(1)}, {}};
  log_since_[1] = epoch_.log_id;
  core_.emplace(options_, epoch_, log_.replay(), now_);
}

std::vector<Effect> Bench::step(Event event) {
  std::vector<Effect> effects;
  core_->step(std::move(event), now_, effects);
  for (const Effect& effect : effects) {
    if (const auto* record = std::get_if<Persist>(&effect)) waiting_[record->ticket] = *record;
  }
  return effects;
}

std::vector<Effect> Bench::durable(std::uint64_t ticket) {
  const auto found = waiting_.find(ticket);
  if (found != waiting_.end()) {
    log_.apply(found->second.record);
    waiting_.erase(found);
  }
  return step(Durable{ticket});
}

std::vector<Effect> Bench::durable() {
  std::vector<Effect> all;
  while (!waiting_.empty()) {
    for (Effect& effect : durable(waiting_.begin()->first)) all.push_back(std::move(effect));
  }
  return all;
}

std::vector<Effect> Bench::refused(std::uint64_t ticket) {
  waiting_.erase(ticket);
  return step(Refused{ticket});
}

std::vector<Effect> Bench::advance(Duration duration) {
  const Time until = now_ + duration;
  std::vector<Effect> all;
  while (const auto due = core_->next_deadline()) {
    if (*due > until) break;
    now_ = std::max(now_, *due);
    for (Effect& effect : step(Tick{})) all.push_back(std::move(effect));
  }
  now_ = until;
  return all;
}

void Bench::crash() {
  waiting_.clear();
  epoch_.earlier.push_back(epoch_.current);
  ++epoch_.current.number;
  epoch_.current.nonce = nonce(epoch_.current.number);
  core_.emplace(options_, epoch_, log_.replay(), now_);
}

void Bench::restore(std::uint64_t certain_below) {
  epoch_.former.push_back({epoch_.log_id, certain_below});
  ++epoch_.log_id.value;
  log_since_[epoch_.current.number + 1] = epoch_.log_id;
  crash();
}

void Bench::link_all() {
  for (RmId rm = 0; rm < options_.resource_managers.size(); ++rm) {
    step(LinkUp{rm, 10 + rm, 500 + rm});
    step(InDoubtListed{rm, true, {}});
  }
}

RmId Bench::rm(std::string_view name) const {
  const auto& names = options_.resource_managers;
  const auto found = std::find(names.begin(), names.end(), name);
  TWOFOLD_CHECK(found != names.end());
  return static_cast<RmId>(found - names.begin());
}

std::string Bench::gtrid(TxnId id) const {
  const LogId log_id =
      std::prev(log_since_.upper_bound(std::max<std::uint64_t>(id.epoch, 1)))->second;
  return Gtrid{log_id, id.epoch, nonce(id.epoch), id.sequence, epoch_.node}.encode();
}

Xid Bench::xid(BranchKey branch, std::string_view rm) const {
  return {kFormatId, gtrid(branch.id), Bqual{branch.index, std::string(rm)}.encode()};
}

Phase Bench::phase(TxnId id) const {
  const auto view = core_->show_gtrid(gtrid(id));
  return view ? view->phase : Phase::ended;
}

// ---- text ---------------------------------------------------------------------------------------

namespace {

struct CodeName {
  Xa code;
  std::string_view name;
};
constexpr std::array kCodes{
    CodeName{Xa::ok, "ok"},
    CodeName{Xa::rdonly, "rdonly"},
    CodeName{Xa::retry, "retry"},
    CodeName{Xa::heurmix, "heurmix"},
    CodeName{Xa::heurrb, "heurrb"},
    CodeName{Xa::heurcom, "heurcom"},
    CodeName{Xa::heurhaz, "heurhaz"},
    CodeName{Xa::rbrollback, "rbrollback"},
    CodeName{Xa::rbdeadlock, "rbdeadlock"},
    CodeName{Xa::rbintegrity, "rbintegrity"},
    CodeName{Xa::rbtimeout, "rbtimeout"},
    CodeName{Xa::rbother, "rbother"},
    CodeName{Xa::er_rmerr, "er_rmerr"},
    CodeName{Xa::er_nota, "er_nota"},
    CodeName{Xa::er_proto, "er_proto"},
    CodeName{Xa::er_rmfail, "er_rmfail"},
};

// The branch that an xid names: "1.7/2".
std::string branch_text(const Xid& xid) {
  const auto gtrid = Gtrid::decode(xid.gtrid);
  const auto bqual = Bqual::decode(xid.bqual);
  if (!gtrid || !bqual) return to_text(xid);
  return to_text(gtrid->txn_id()) + "/" + std::to_string(bqual->index);
}

struct EffectText {
  const Options& options;

  std::string rm(RmId id) const { return options.resource_managers.at(id); }
  // A key of {0,0} marks a branch of no live transaction.
  template <class Verb>
  std::string verb(std::string_view name, const Verb& effect) const {
    const bool orphan = effect.branch == BranchKey{};
    return std::string(name) + " " + rm(effect.rm) + " " + branch_text(effect.xid) +
           (orphan ? " orphan" : "");
  }

  std::string operator()(const Start& effect) const {
    constexpr std::string_view kThen[] = {"work", "prepare", "commit_one_phase"};
    return verb("Start", effect) + " " + std::string(kThen[static_cast<int>(effect.then)]);
  }
  std::string operator()(const Prepare& effect) const {
    const bool one = effect.work_items == 1;
    return verb("Prepare", effect) +
           (one ? "" : " " + std::to_string(effect.work_items) + " works");
  }
  std::string operator()(const Persist& effect) const {
    return "Persist #" + std::to_string(effect.ticket) + " " + text(effect.record) +
           (effect.forced ? " (forced)" : " (unforced)");
  }
  std::string operator()(const Commit& effect) const {
    std::string line = verb("Commit", effect) + (effect.awaited ? " awaited" : "");
    if (effect.one_phase) line += " one_phase " + std::to_string(effect.work_items) + " works";
    return line;
  }
  std::string operator()(const Rollback& effect) const { return verb("Rollback", effect); }
  std::string operator()(const Release& effect) const { return verb("Release", effect); }
  std::string operator()(const Forget& effect) const { return verb("Forget", effect); }
  std::string operator()(const ListInDoubt& effect) const { return "ListInDoubt " + rm(effect.rm); }
  std::string operator()(const AskOutcome& effect) const { return verb("AskOutcome", effect); }
  std::string operator()(const SendMark& effect) const {
    return "SendMark " + rm(effect.rm) + " " + to_text(effect.low_water);
  }
  std::string operator()(const Reply& effect) const {
    const Outcome& outcome = effect.outcome;
    std::string line = "Reply to " + std::to_string(effect.requester.request) + ": " +
                       std::string(name(outcome.verdict));
    if (outcome.reason != Reason::none) line += " " + std::string(name(outcome.reason));
    if (!outcome.gtrid.empty()) {
      line += " " + to_text(Gtrid::decode(outcome.gtrid)->txn_id());
    }
    for (const Refusal& refusal : outcome.refusals) {
      line += " [" + refusal.rm + " " + refusal.check + " " + refusal.key + "]";
    }
    for (const BranchResult& result : outcome.results) {
      line += " " + result.rm + "=" + result.results;
    }
    if (outcome.ended) line += " ended";
    if (outcome.heuristic) line += " heuristic";
    return line;
  }
  std::string operator()(const Enlisted& effect) const {
    return "Enlisted for " + std::to_string(effect.requester.request) + ": " + rm(effect.rm) + " " +
           branch_text(effect.xid);
  }
  std::string operator()(const DrainTold& effect) const {
    return "DrainTold to " + std::to_string(effect.requester.request) + ": " + rm(effect.rm);
  }
  std::string operator()(const Alarm& effect) const {
    std::string line = "Alarm " + effect.text;  // without the xids, which nobody can read
    for (auto at = line.find("1415008070."); at != std::string::npos;
         at = line.find("1415008070.")) {
      const auto end = line.find_first_of(" ;:,", at);
      line.replace(at, end - at, branch_text(parse_xid(line.substr(at, end - at)).value()));
    }
    return line;
  }
};

struct RecordText {
  static std::string rms(const std::vector<std::string>& bquals) {
    std::string line;
    for (const std::string& bqual : bquals) line += " " + Bqual::decode(bqual)->rm;
    return line;
  }
  static std::string rms(const std::vector<BranchRecord>& branches) {
    std::string line;
    for (const auto& branch : branches) line += " " + Bqual::decode(branch.xid.bqual)->rm;
    return line;
  }

  std::string operator()(const IntentRecord& record) const {
    return "Intent " + to_text(record.id) + rms(std::vector{record.branch});
  }
  std::string operator()(const CommitRecord& record) const {
    return "Commit " + to_text(record.id) + rms(record.branches);
  }
  std::string operator()(const RefusalRecord& record) const {
    return "Refusal " + to_text(record.id);
  }
  std::string operator()(const EndRecord& record) const {
    return "End " + to_text(record.id) + rms(record.bquals);
  }
  std::string operator()(const DroppedRecord& record) const {
    return "Dropped " + to_text(record.id);
  }
  std::string operator()(const HeuristicRecord& record) const {
    return "Heuristic " + branch_text(record.xid) + " " + std::string(short_name(record.code)) +
           (record.decided_commit ? " decided commit" : " decided rollback");
  }
  std::string operator()(const HeuristicForgottenRecord& record) const {
    return "HeuristicForgotten " + branch_text(record.xid);
  }
  std::string operator()(const PurgeRecord& record) const {
    std::string line = "Purge floor " + to_text(record.floor) + ":";
    for (const TxnId id : record.ids) line += " " + to_text(id);
    return line;
  }
  std::string operator()(const ParticipantsRecord& record) const {
    std::string line = "Participants";
    for (const Participant& one : record.all) {
      line += " " + one.name + "=" + std::to_string(one.store_id) + ":" +
              std::string(twofold::name(one.state));
    }
    return line;
  }
};

}  // namespace

std::string text(const Options& options, const Effect& effect) {
  return std::visit(EffectText{options}, effect);
}
std::string text(const LogRecord& record) {
  return std::visit(RecordText{}, record);
}

std::optional<Xa> parse_xa(std::string_view word) {
  for (const CodeName& code : kCodes) {
    if (code.name == word) return code.code;
  }
  return std::nullopt;
}

std::string_view short_name(Xa code) {
  for (const CodeName& one : kCodes) {
    if (one.code == code) return one.name;
  }
  return "?";
}

Refusal refusal(std::string key) {
  Refusal refusal;
  refusal.op = "add";
  refusal.check = "min";
  refusal.key = std::move(key);
  refusal.value = "1";
  refusal.limit = "0";
  return refusal;
}

}  // namespace twofold::coordinator::test
