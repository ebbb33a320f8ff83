// A participant whose answers to Recover are scripted (tests/scripts/README.md has the words):
// foreign and malformed xids, scans that never end, scans that end half way. A commit is decided
// and on its way when the link is lost; only the scans of the next session tell what is to be done.
// The table is tests/scripts/participant/recover.txt; TWOFOLD_REWRITE=1 writes it anew, to be
// reviewed like code.
#include <functional>
#include <sstream>
#include <utility>

#include "tests/coordinator/engine_fixture.h"
#include "tests/coordinator/scripted.h"

namespace twofold::test {
namespace {

using Act = FakeParticipant::Act;

wire::RecoveredBranch listed(Xid xid) {
  wire::RecoveredBranch branch;
  to_wire(xid, *branch.mutable_xid());
  return branch;
}
Xid changed(Xid own, const std::function<void(Gtrid&)>& change) {
  Gtrid gtrid = Gtrid::decode(own.gtrid).value();
  change(gtrid);
  own.gtrid = gtrid.encode();
  return own;
}

// By its word, an entry of a list; `own` is the branch that is there.
wire::RecoveredBranch entry(const std::string& word, const Xid& own) {
  const auto aborted = [&] { return changed(own, [](Gtrid& g) { g.sequence = 1; }); };
  if (word == "own") return listed(own);
  if (word == "foreign") return listed({1, "somebody", "else"});
  if (word == "other_node") return listed(changed(own, [](Gtrid& g) { g.node = "other"; }));
  if (word == "other_log") return listed(changed(own, [](Gtrid& g) { ++g.log_id.value; }));
  if (word == "unknown_epoch") return listed(changed(own, [](Gtrid& g) { ++g.nonce; }));
  if (word == "never_begun") return listed(changed(own, [](Gtrid& g) { g.sequence += 1'000'000; }));
  if (word == "aborted") return listed(aborted());
  if (word == "other_format") return listed({kFormatId + 1, aborted().gtrid, own.bqual});
  if (word == "not_ours") return listed({kFormatId, "twofold has made no such", "gtrid"});
  if (word == "cut_gtrid") return listed({kFormatId, own.gtrid.substr(1), own.bqual});
  if (word == "wrong_bqual") return listed({kFormatId, own.gtrid, "x"});
  if (word == "no_bqual") return listed({kFormatId, own.gtrid, ""});
  wire::RecoveredBranch branch = listed(own);
  if (word == "busy") {
    branch.set_busy(true);
  } else if (word == "null_xid") {
    branch.mutable_xid()->set_format_id(-1);
  } else if (word == "no_gtrid") {
    branch.mutable_xid()->clear_gtrid();
  } else if (word == "long_gtrid") {
    branch.mutable_xid()->set_gtrid(std::string(65, 'g'));
  } else if (word == "long_bqual") {
    branch.mutable_xid()->set_bqual(std::string(65, 'b'));
  } else if (word == "no_xid") {
    branch.clear_xid();
  } else {
    ADD_FAILURE() << "no such entry: " << word;
  }
  return branch;
}

// "own+foreign"; "": none.
std::vector<wire::RecoveredBranch> entries(const std::string& words, const Xid& own) {
  std::vector<wire::RecoveredBranch> branches;
  std::stringstream text(words);
  for (std::string word; std::getline(text, word, '+');) branches.push_back(entry(word, own));
  return branches;
}

Act batch(std::vector<wire::RecoveredBranch> branches, bool end) {
  return [branches = std::move(branches), end](FakeParticipant& self, const wire::Frame& request) {
    wire::Frame frame;
    for (const auto& branch : branches) *frame.mutable_recover_answer()->add_branches() = branch;
    frame.mutable_recover_answer()->set_end(end);
    self.answer(request, std::move(frame));
  };
}

// Batches without an end, each with `size` foreign branches, until another scan begins, which the
// next script answers.
Act endless(std::size_t size, bool begun = false) {
  return [=](FakeParticipant& self, const wire::Frame& request) {
    if (request.recover().start() && begun) return self.answer_by_script(request);
    batch(std::vector<wire::RecoveredBranch>(size, entry("foreign", {})), false)(self, request);
    self.script_first(wire::Frame::kRecover, endless(size, true));
  };
}

// `more`: an empty batch, not the last; what is there comes behind it.
void more(FakeParticipant& self, const wire::Frame& request) {
  const std::uint32_t usual = std::exchange(self.batch_max, 0);
  self.answer_rightly(request);
  self.batch_max = usual;
}

// `stale`: the scan that hangs is told, too late, that nothing is there; then the new one the
// truth.
void stale(FakeParticipant& self, const wire::Frame& request) {
  EXPECT_EQ(self.hanging(), 1u);
  self.answer_hanging(batch({}, true));
  self.answer_rightly(request);
}

Act fail_with(wire::FailureCode code, bool request_named) {
  return [=](FakeParticipant& self, const wire::Frame& request) {
    wire::Frame frame;
    frame.mutable_failure()->set_code(code);
    frame.mutable_failure()->set_text("scripted");
    if (request_named) return self.answer(request, std::move(frame));
    self.send(frame);
  };
}

void answer_with_evidence(FakeParticipant& self, const wire::Frame& request) {
  wire::Frame frame;
  frame.mutable_evidence()->set_kind(wire::Evidence::NONE);
  self.answer(request, std::move(frame));
}

void answer_another_request(FakeParticipant& self, const wire::Frame& request) {
  wire::Frame other = request;
  other.set_request(request.request() + 1'000);
  batch({}, true)(self, other);
}

Act scan_act(const std::string& word, const Xid& own) {
  const auto colon = word.find(':');
  const std::string kind = word.substr(0, colon);
  if (kind == "only" || kind == "half") {
    const std::string words = colon == std::string::npos ? "own" : word.substr(colon + 1);
    return batch(entries(words, own), kind == "only");
  }
  if (word == "right") {
    return [](FakeParticipant& self, const wire::Frame& r) { self.answer_rightly(r); };
  }
  if (word == "empty") return batch({}, true);
  if (word == "more") return more;
  if (word == "hang") return FakeParticipant::hang();
  if (word == "stale") return stale;
  if (word == "lost") return FakeParticipant::lose_the_link();
  if (word == "failure") return FakeParticipant::fail("it cannot be listed");
  if (word == "evidence") return answer_with_evidence;
  if (word == "another_request") return answer_another_request;
  if (word == "endless") return endless(0);
  if (word == "endless_full") return endless(1'000);
  wire::FailureCode failure;
  if (wire::FailureCode_Parse(kind, &failure)) return fail_with(failure, kind == word);
  for (const Xa code : all_codes()) {
    if (word == code_text(code)) return FakeParticipant::code(code);
  }
  return [=](FakeParticipant& self, const wire::Frame& request) {  // beside what is there
    self.listed_too = entries(word, own);
    self.answer_rightly(request);
    self.listed_too.clear();
  };
}

// In the order of the table.
std::vector<std::string> scripts() {
  std::vector<std::string> all = {
      // what is there, and more
      "right", "empty", "foreign", "other_format", "other_node", "other_log", "unknown_epoch",
      "never_begun", "aborted", "not_ours", "cut_gtrid", "wrong_bqual", "no_bqual", "null_xid",
      "no_xid", "no_gtrid", "long_gtrid", "long_bqual", "own", "own+foreign+long_gtrid",
      // reported once for as long as it is listed
      "unknown_epoch,unknown_epoch", "unknown_epoch,failure,unknown_epoch",
      "half:unknown_epoch,failure,unknown_epoch", "unknown_epoch,right,unknown_epoch",
      "other_log+unknown_epoch+other_log",
      // without what is there
      "only:foreign", "only:other_node", "only:not_ours", "only:unknown_epoch", "only:busy",
      "only:null_xid", "only:no_xid", "only:no_gtrid", "only:long_gtrid", "only:long_bqual",
      "only:long_gtrid,empty",
      // in batches
      "more", "more,more", "half", "half,half", "half:own+foreign",
      // that end half way
      "half,failure", "half,lost", "half,hang", "half,failure,empty", "half,hang,empty",
      "half,lost,empty", "half:aborted,failure", "more,failure", "more,lost", "more,hang",
      "more,failure,empty", "more,hang,empty", "more,lost,empty",
      // that do not end
      "hang", "hang,hang", "hang,stale", "hang,empty", "endless", "endless_full", "endless,empty",
      "endless_full,endless,empty",
      // that fail
      "failure", "failure,failure,failure", "failure,empty", "lost", "lost,lost", "lost,empty",
      "evidence", "another_request"};
  for (const Xa code : all_codes()) all.push_back(code_text(code));
  all.push_back("XAER_RMFAIL,empty");
  all.push_back("half,XAER_RMFAIL");
  all.push_back("half,XAER_RMERR,empty");
  for (int i = wire::FailureCode_MIN; i <= wire::FailureCode_MAX; ++i) {
    all.push_back(wire::FailureCode_Name(i));
  }
  all.push_back("FAILURE_SHUTDOWN:all");
  return all;
}

class RecoverScripts : public EngineTest {
 protected:
  std::int64_t number(TestClient& client, const std::string& name) {
    wire::Frame frame;
    frame.mutable_stats();
    const wire::Frame answer = call(client, frame);
    for (const auto& one : answer.stats_answer().numbers()) {
      if (one.name() == name) return one.value();
    }
    ADD_FAILURE() << "no such statistic";
    return 0;
  }

  ScriptedRow play(TestClient& client, const std::string& script) {
    const std::size_t before = payments.calls().size();
    const std::int64_t alarms = number(client, "alarms");
    payments.script(wire::Frame::kCommit, [&](FakeParticipant& self, const wire::Frame& request) {
      const Xid own = from_wire(request.commit().xid()).value();
      std::stringstream words(script);
      for (std::string word; std::getline(words, word, ',');) {
        self.script(wire::Frame::kRecover, scan_act(word, own));
      }
      self.disconnect();
    });
    const Outcome told = outcome(client, submission("recover=" + script));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{15};
    do {  // the other participant is served all the while
      const std::string beside = script + " beside " + std::to_string(++beside_);
      EXPECT_EQ(outcome(client, submission(beside, {"orders"})).verdict, Verdict::committed);
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << script << " does not end";
        break;
      }
    } while (number(client, "live") > 0 || payments.scripted(wire::Frame::kRecover) > 0);
    // One scan is open at a time: when the second from now is asked for, the first has been dealt
    // with, and so has whatever was listed before.
    const std::size_t scans = payments.count("recover");
    until([&] { return payments.count("recover") > scans + 1; });
    payments.prepared.clear();  // what it said was not there
    ScriptedRow row{"recover=" + script, told.gtrid};
    row.text.resize(std::max<std::size_t>(row.text.size() + 1, 50), ' ');
    row.text +=
        std::string(name(told.verdict)) + "; payments:" + calls_text(payments.calls(), before);
    row.alarms = number(client, "alarms") - alarms;
    return row;
  }

  int beside_ = 0;
};

TEST_F(RecoverScripts, EveryAnswer) {
  options.scan_period_ms = 50;
  options.scan_time_max_ms = 200;
  options.reconnect_first_ms = 1;
  options.reconnect_max_ms = 5;
  start_and_link();
  std::vector<ScriptedRow> rows;
  {
    TestClient client;
    connect(client);
    orders.script(wire::Frame::kStart, FakeParticipant::code(Xa::rbrollback));
    EXPECT_EQ(outcome(client, submission("first", {"orders"})).verdict, Verdict::aborted);
    for (const std::string& script : scripts()) {
      rows.push_back(play(client, script));
      if (HasFailure()) break;
    }
  }
  crash();
  const auto kept = kept_in(log());
  std::string actual =
      "# What payments answers to Recover, after a link was lost with a commit on its way | what "
      "the\n"
      "# client is told; what payments is asked; what the log keeps; alarms. After the answers "
      "named\n"
      "# here payments gives the right ones.\n";
  for (const ScriptedRow& row : rows) {
    const auto found = kept.find(row.gtrid);
    actual += row.text + "; log:" + (found == kept.end() ? " -" : found->second);
    if (row.alarms > 0) actual += "; alarms: " + std::to_string(row.alarms);
    actual += "\n";
  }
  expect_table("recover", actual);
}

}  // namespace
}  // namespace twofold::test
