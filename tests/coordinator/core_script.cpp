#include "tests/coordinator/core_script.h"

#include <charconv>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "tests/coordinator/core_text.h"

namespace twofold::coordinator::test {

namespace {

// The words of one line, taken one after the other.
class Words {
 public:
  explicit Words(const std::string& line) : in_(line) {}
  std::string next(const char* what) {
    std::string word;
    if (!(in_ >> word)) throw std::runtime_error(std::string("missing: ") + what);
    return word;
  }
  std::optional<std::string> maybe() {
    std::string word;
    if (in_ >> word) return word;
    return std::nullopt;
  }

 private:
  std::istringstream in_;
};

std::uint64_t number(std::string_view word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) {
    throw std::runtime_error("not a number: " + std::string(word));
  }
  return value;
}

Duration duration(std::string word) {
  const auto unit = word.find_first_not_of("0123456789");
  const std::uint64_t value = number(word.substr(0, unit));
  const std::string name = unit == std::string::npos ? "" : word.substr(unit);
  if (name == "ms") return std::chrono::milliseconds(value);
  if (name == "s") return std::chrono::seconds(value);
  throw std::runtime_error("not a time (20ms, 5s): " + word);
}

TxnId txn_id(const std::string& word) {
  const auto id = parse_txn_id(word);
  if (!id) throw std::runtime_error("not a transaction (1.7): " + word);
  return *id;
}

BranchKey branch_key(const std::string& word) {
  const auto slash = word.find('/');
  if (slash == std::string::npos) throw std::runtime_error("not a branch (1.7/0): " + word);
  return {txn_id(word.substr(0, slash)),
          static_cast<std::uint16_t>(number(std::string_view(word).substr(slash + 1)))};
}

// "key=value"; the value, if the word has this key.
std::optional<std::string> value_of(const std::string& word, std::string_view key) {
  if (!word.starts_with(std::string(key) + "=")) return std::nullopt;
  return word.substr(key.size() + 1);
}

OutcomeAsked::When when(const std::string& word) {
  if (word == "now") return OutcomeAsked::When::now;
  if (word == "at_decision") return OutcomeAsked::When::at_decision;
  if (word == "at_end") return OutcomeAsked::When::at_end;
  throw std::runtime_error("not now, at_decision or at_end: " + word);
}

class Player {
 public:
  std::string play(std::string_view script) {
    std::istringstream in{std::string(script)};
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("<") || line.starts_with("!")) continue;
      out_ += line + "\n";
      try {
        perform(line);
      } catch (const std::exception& fault) {
        out_ += std::string("! ") + fault.what() + "\n";
      }
    }
    return out_;
  }

 private:
  void perform(const std::string& line) {
    if (line.empty() || line.starts_with("#")) return;
    if (line.starts_with("@")) return advance(duration(line.substr(1)));
    if (line.starts_with("> ")) return event(line.substr(2));
    Words words(line);
    const std::string word = words.next("a word");
    if (word == "resource_managers") {
      options_.resource_managers.clear();
      while (auto name = words.maybe()) options_.resource_managers.push_back(*name);
    } else if (word == "options") {
      while (auto option = words.maybe()) set(*option);
    } else if (word == "unseen") {
      seen_ = false;
    } else if (word == "linked") {
      bench().link_all();
    } else {
      throw std::runtime_error("not understood: " + word);
    }
  }

  void set(const std::string& option) {
    const auto flag = [&](std::string_view name, bool& target) {
      if (const auto value = value_of(option, name)) target = *value == "on";
      return value_of(option, name).has_value();
    };
    const auto list = [&](std::string_view name, std::vector<std::string>& target) {
      if (const auto value = value_of(option, name)) target.push_back(*value);
      return value_of(option, name).has_value();
    };
    const auto count = [&](std::string_view name, std::size_t& target) {
      if (const auto value = value_of(option, name)) target = number(*value);
      return value_of(option, name).has_value();
    };
    const bool known = flag("early_prepare", options_.early_prepare) ||
                       flag("one_phase", options_.one_phase) ||
                       flag("read_only_votes", options_.read_only_votes) ||
                       list("accept_stores", options_.accept_stores) ||
                       count("outcomes_max", options_.outcomes_max) ||
                       count("listed_alarms_max", options_.listed_alarms_max) ||
                       count("transactions_max", options_.transactions_max) ||
                       count("branches_max", options_.branches_max);
    if (!known) throw std::runtime_error("unknown option: " + option);
  }

  Bench& bench() {
    if (!bench_) bench_.emplace(options_, seen_);
    return *bench_;
  }

  void show(const std::vector<Effect>& effects) {
    for (const Effect& effect : effects) out_ += "< " + text(options_, effect) + "\n";
  }

  void advance(Duration since_start) {
    const Duration passed = bench().now() - Time{std::chrono::seconds{1}};
    if (since_start < passed) throw std::runtime_error("time does not go back");
    show(bench().advance(since_start - passed));
  }

  void event(const std::string& line) {
    Words words(line);
    const std::string kind = words.next("an event");
    if (kind == "Crash") return bench().crash();
    if (kind == "Restored") return bench().restore(number(words.next("an epoch")));
    if (kind == "Durable") return show(bench().durable(number(words.next("a ticket"))));
    if (kind == "Refused") return show(bench().refused(number(words.next("a ticket"))));
    show(bench().step(parse(kind, words)));
  }

  Event parse(const std::string& kind, Words& words) {
    if (kind == "Submit") return submit(words);
    if (kind == "Begin") return begin(words);
    if (kind == "Enlist") return enlist(words);
    if (kind == "CommitRequested") return commit_requested(words);
    if (kind == "RollbackRequested") {
      const std::string gtrid = bench().gtrid(txn_id(words.next("a transaction")));
      return RollbackRequested{{1, ++request_}, gtrid, words.maybe() == "at_end"};
    }
    if (kind == "WaitsReported") return waits(words);
    if (kind == "WorkDone") return answer<WorkDone>(words);
    if (kind == "Voted") return answer<Voted>(words);
    if (kind == "Acknowledged") return acknowledged(words);
    if (kind == "InDoubtListed") return listed(words);
    if (kind == "OutcomeTold") return told(words);
    if (kind == "OutcomeAsked") return asked(words);
    if (kind == "LinkUp") {
      const RmId id = rm(words);
      const auto store = words.maybe();
      const auto named = store ? value_of(*store, "store") : std::nullopt;
      return LinkUp{id, 10 + id, named ? number(*named) : 500 + id};
    }
    if (kind == "Drain") {
      const RmId id = rm(words);
      const auto what = words.maybe();
      return Drain{id,
                   what == "cancel" ? Drain::What::cancel
                   : what == "ask"  ? Drain::What::ask
                                    : Drain::What::begin,
                   {1, ++request_}};
    }
    if (kind == "LinkDown") return LinkDown{rm(words)};
    if (kind == "SpaceChanged") return SpaceChanged{words.next("room or none") == "room"};
    if (kind == "Tick") return Tick{};
    if (kind == "Shutdown") return Shutdown{words.maybe() == "final"};
    throw std::runtime_error("unknown event: " + kind);
  }

  RmId rm(Words& words) { return bench().rm(words.next("a resource manager")); }

  Begin begin(Words& words) {
    Begin begin;
    begin.requester = {1, ++request_};
    while (auto word = words.maybe()) {
      if (auto timeout = value_of(*word, "timeout")) begin.timeout = duration(*timeout);
      if (auto age = value_of(*word, "age")) begin.age = duration(*age);
    }
    return begin;
  }

  Enlist enlist(Words& words) {
    const std::string gtrid = bench().gtrid(txn_id(words.next("a transaction")));
    return {{1, ++request_}, gtrid, words.next("a resource manager")};
  }

  // ID [NAME=WORKS…] [at_end]
  CommitRequested commit_requested(Words& words) {
    CommitRequested request;
    request.requester = {1, ++request_};
    request.gtrid = bench().gtrid(txn_id(words.next("a transaction")));
    while (auto word = words.maybe()) {
      const auto equals = word->find('=');
      if (*word == "at_end") {
        request.reply_at_end = true;
      } else {
        request.work.push_back({word->substr(0, equals), number(word->substr(equals + 1))});
      }
    }
    return request;
  }

  // RM [WAITER>HOLDER…]
  WaitsReported waits(Words& words) {
    WaitsReported reported;
    reported.rm = rm(words);
    while (auto word = words.maybe()) {
      const auto arrow = word->find('>');
      reported.waits.push_back({txn_id(word->substr(0, arrow)), txn_id(word->substr(arrow + 1))});
    }
    return reported;
  }

  Submit submit(Words& words) {
    Submit submit;
    submit.requester = {1, ++request_};
    submit.request_id = words.next("a request id, or -");
    if (submit.request_id == "-") submit.request_id.clear();
    while (auto word = words.maybe()) {
      if (auto timeout = value_of(*word, "timeout")) {
        submit.timeout = duration(*timeout);
      } else if (auto known = value_of(*word, "known")) {
        submit.known = txn_id(*known);
      } else if (*word == "at_end") {
        submit.reply_at_end = true;
      } else {
        const auto colon = word->find(':');  // NAME or NAME:WORK
        submit.branches.push_back({word->substr(0, colon),
                                   colon == std::string::npos ? "work" : word->substr(colon + 1)});
      }
    }
    return submit;
  }

  // CODE, or "refused KEY…"; then results=…, no_room.
  template <class Answer>
  void verdict(Words& words, Answer& answer) {
    const std::string word = words.next("a code");
    const auto code = parse_xa(word);
    if (!code && word != "refused") throw std::runtime_error("unknown code: " + word);
    answer.code = code.value_or(Xa::rbintegrity);
    while (auto more = words.maybe()) {
      if (const auto results = value_of(*more, "results")) {
        answer.results = *results;
      } else if (*more == "no_room") {
        answer.no_room = true;
      } else {
        answer.refusals.push_back(refusal(*more));
        answer.refusals.back().operation = static_cast<std::uint32_t>(answer.refusals.size() - 1);
      }
    }
  }

  template <class Answer>
  Answer answer(Words& words) {
    Answer answer;
    answer.rm = rm(words);
    answer.branch = branch_key(words.next("a branch"));
    verdict(words, answer);
    return answer;
  }

  Acknowledged acknowledged(Words& words) {
    Acknowledged answer;
    const std::string verb = words.next("a verb");
    using Verb = Acknowledged::Verb;
    if (verb == "commit")
      answer.verb = Verb::commit;
    else if (verb == "commit_one_phase")
      answer.verb = Verb::commit_one_phase;
    else if (verb == "rollback")
      answer.verb = Verb::rollback;
    else if (verb == "release")
      answer.verb = Verb::release;
    else if (verb == "forget")
      answer.verb = Verb::forget;
    else
      throw std::runtime_error("unknown verb: " + verb);
    const std::string name = words.next("a resource manager");
    answer.rm = bench().rm(name);
    std::string branch = words.next("a branch");
    const bool orphan = branch.ends_with("!");
    if (orphan) branch.pop_back();
    answer.xid = bench().xid(branch_key(branch), name);
    if (!orphan) answer.branch = branch_key(branch);
    verdict(words, answer);
    return answer;
  }

  InDoubtListed listed(Words& words) {
    InDoubtListed listed;
    const std::string name = words.next("a resource manager");
    listed.rm = bench().rm(name);
    const std::string how = words.next("complete or failed");
    if (how != "complete" && how != "failed")
      throw std::runtime_error("not complete or failed: " + how);
    listed.complete = how == "complete";
    while (auto word = words.maybe()) listed.branches.push_back(listed_branch(*word, name));
    return listed;
  }

  ListedBranch listed_branch(std::string word, const std::string& name) {
    ListedBranch listed;
    if (word.ends_with(":busy")) {
      listed.busy = true;
      word.resize(word.size() - 5);
    }
    if (const auto heuristic = word.find(":heur"); heuristic != std::string::npos) {
      listed.heuristic = parse_xa(word.substr(heuristic + 1)).value();
      word.resize(heuristic);
    }
    if (word == "foreign") {
      listed.xid = {42, "theirs", "branch"};
      return listed;
    }
    const bool other_log = word.starts_with("other_log:");
    const bool other_node = word.starts_with("other_node:");
    const bool other_nonce = word.starts_with("other_nonce:");
    const bool other_format = word.starts_with("other_format:");
    if (other_log || other_node || other_nonce || other_format) {
      word = word.substr(word.find(':') + 1);
    }
    listed.xid = bench().xid(branch_key(word), name);
    auto gtrid = *Gtrid::decode(listed.xid.gtrid);
    if (other_log) gtrid.log_id.value = 78;
    if (other_node) gtrid.node = "node-2";
    if (other_nonce) gtrid.nonce = 1;
    listed.xid.gtrid = gtrid.encode();
    if (other_format) listed.xid.format_id = 42;
    return listed;
  }

  OutcomeTold told(Words& words) {
    using Evidence = OutcomeTold::Evidence;
    OutcomeTold told;
    told.rm = rm(words);
    told.branch = branch_key(words.next("a branch"));
    const std::string word = words.next("the evidence");
    if (word == "committed")
      told.evidence = Evidence::committed;
    else if (word == "none")
      told.evidence = Evidence::none;
    else if (word == "impossible")
      told.evidence = Evidence::impossible;
    else if (word == "prepared")
      told.evidence = Evidence::prepared;
    else if (word == "busy")
      told.evidence = Evidence::busy;
    else
      throw std::runtime_error("unknown evidence: " + word);
    return told;
  }

  // A request id, or "gtrid=1.7".
  OutcomeAsked asked(Words& words) {
    OutcomeAsked asked;
    asked.requester = {1, ++request_};
    asked.request_id = words.next("a request id or gtrid=");
    if (const auto id = value_of(asked.request_id, "gtrid")) {
      asked.gtrid = bench().gtrid(txn_id(*id));
      asked.request_id.clear();
    }
    asked.when = when(words.next("when"));
    if (const auto word = words.maybe()) asked.known = txn_id(value_of(*word, "known").value());
    return asked;
  }

  Options options_{.resource_managers = {"orders", "payments"}};
  bool seen_ = true;
  std::optional<Bench> bench_;
  std::uint64_t request_ = 0;
  std::string out_;
};

}  // namespace

std::string play(std::string_view script) {
  return Player{}.play(script);
}

}  // namespace twofold::coordinator::test
