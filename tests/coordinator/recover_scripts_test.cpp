// A participant whose answers to Recover are scripted: foreign and malformed xids, scans that never
// end, scans that end half way. A commit is decided and on its way when the link is lost; only the
// scans of the next session tell what is to be done. The table is
// tests/scripts/participant/recover.txt; TWOFOLD_REWRITE=1 writes it anew, to be reviewed like
// code.
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "log/inspect.h"
#include "tests/coordinator/engine_fixture.h"
#include "tests/coordinator/scripted.h"

namespace twofold::test {
namespace {

using Act = FakeParticipant::Act;

// What is listed beside what is there, made of the branch that is.
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
wire::RecoveredBranch beside(const std::string& word, const Xid& own) {
  if (word == "foreign") return listed({1, "somebody", "else"});
  if (word == "other_node") return listed(changed(own, [](Gtrid& g) { g.node = "other"; }));
  if (word == "other_log") return listed(changed(own, [](Gtrid& g) { ++g.log_id.value; }));
  if (word == "unknown_epoch") return listed(changed(own, [](Gtrid& g) { ++g.nonce; }));
  if (word == "never_begun") return listed(changed(own, [](Gtrid& g) { g.sequence += 1'000; }));
  if (word == "aborted") return listed(changed(own, [](Gtrid& g) { g.sequence = 1; }));
  if (word == "not_ours") return listed({kFormatId, "twofold has made no such", "gtrid"});
  if (word == "wrong_bqual") return listed({kFormatId, own.gtrid, "x"});
  if (word == "twice") return listed(own);
  wire::RecoveredBranch branch = listed(own);
  if (word == "no_gtrid") branch.mutable_xid()->clear_gtrid();
  if (word == "long_gtrid") branch.mutable_xid()->set_gtrid(std::string(65, 'g'));
  if (word == "long_bqual") branch.mutable_xid()->set_bqual(std::string(65, 'b'));
  if (word == "no_xid") branch.clear_xid();
  return branch;
}

Xid own_of(const FakeParticipant& self) {
  return from_wire(self.prepared.begin()->second).value();
}

Act batch(std::vector<wire::RecoveredBranch> branches, bool end) {
  return [branches = std::move(branches), end](FakeParticipant& self, const wire::Frame& request) {
    wire::Frame frame;
    for (const auto& branch : branches) *frame.mutable_recover_answer()->add_branches() = branch;
    frame.mutable_recover_answer()->set_end(end);
    self.answer(request, std::move(frame));
  };
}

// Batches without an end, each with `entries` foreign branches, until another scan begins.
Act endless(int entries, std::shared_ptr<bool> begun = std::make_shared<bool>(false)) {
  return [=](FakeParticipant& self, const wire::Frame& request) {
    if (request.recover().start() && std::exchange(*begun, true)) {
      return self.answer_rightly(request);
    }
    std::vector<wire::RecoveredBranch> branches(static_cast<std::size_t>(entries),
                                                beside("foreign", {}));
    batch(std::move(branches), false)(self, request);
    self.script(wire::Frame::kRecover, endless(entries, begun));
  };
}

Act scan_act(const std::string& word) {
  if (word == "right") {
    return [](FakeParticipant& self, const wire::Frame& r) { self.answer_rightly(r); };
  }
  if (word == "empty") return batch({}, true);
  if (word == "more") {  // an empty batch, not the last
    return [](FakeParticipant& self, const wire::Frame& request) {
      self.batch_max = 0;
      self.answer_rightly(request);
      self.batch_max = 1'000;
    };
  }
  if (word == "half") {
    return [](FakeParticipant& self, const wire::Frame& request) {
      batch({listed(own_of(self))}, false)(self, request);
    };
  }
  if (word == "busy") {
    return [](FakeParticipant& self, const wire::Frame& request) {
      wire::RecoveredBranch branch = listed(own_of(self));
      branch.set_busy(true);
      batch({branch}, true)(self, request);
    };
  }
  if (word == "hang") return FakeParticipant::hang();
  if (word == "lost") return FakeParticipant::lose_the_link();
  if (word == "failure") return FakeParticipant::fail("it cannot be listed");
  if (word == "XAER_RMFAIL") return FakeParticipant::code(Xa::er_rmfail);  // it has no code
  if (word == "endless") return endless(0);
  if (word == "endless_full") return endless(1'000);
  return [word](FakeParticipant& self, const wire::Frame& request) {
    self.listed_too = {beside(word, own_of(self))};
    self.answer_rightly(request);
    self.listed_too.clear();
  };
}

const char* const kScripts[] = {"right",
                                "empty",
                                "foreign",
                                "other_node",
                                "other_log",
                                "unknown_epoch",
                                "never_begun",
                                "aborted",
                                "not_ours",
                                "wrong_bqual",
                                "twice",
                                "no_xid",
                                "no_gtrid",
                                "long_gtrid",
                                "long_bqual",
                                "more",
                                "more,more",
                                "busy",
                                "failure",
                                "failure,failure,failure",
                                "XAER_RMFAIL",
                                "lost",
                                "lost,lost",
                                "hang",
                                "half,failure",
                                "half,lost",
                                "half,hang",
                                "half,half",
                                "more,failure",
                                "more,lost",
                                "more,hang",
                                "failure,empty",
                                "more,failure,empty",
                                "endless",
                                "endless_full"};

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
    payments.script(wire::Frame::kCommit, [&](FakeParticipant& self, const wire::Frame&) {
      std::stringstream words(script);
      for (std::string word; std::getline(words, word, ',');) {
        self.script(wire::Frame::kRecover, scan_act(word));
      }
      self.disconnect();
    });
    const Outcome told = outcome(client, submission("recover=" + script));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{15};
    while (number(client, "live") > 0 || payments.scripted(wire::Frame::kRecover) > 0) {
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << script << " does not end";
        break;
      }
    }
    // The other participant served all the while.
    EXPECT_EQ(outcome(client, submission("beside recover=" + script, {"orders"})).verdict,
              Verdict::committed);
    payments.prepared.clear();  // what it said was not there
    ScriptedRow row{"recover=" + script, told.gtrid};
    row.text.resize(std::max<std::size_t>(row.text.size() + 1, 34), ' ');
    row.text +=
        std::string(name(told.verdict)) + "; payments:" + calls_text(payments.calls(), before);
    row.alarms = number(client, "alarms") - alarms;
    return row;
  }
};

TEST_F(RecoverScripts, EveryAnswer) {
  options.scan_period_ms = 300;
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
    for (const char* script : kScripts) {
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
