#include "protocol/convert.h"

#include <gtest/gtest.h>

namespace twofold {
namespace {

TEST(Convert, XidComesBack) {
  const Xid xid{kFormatId, std::string("\0g\xff", 3), std::string(64, '\0')};
  wire::Xid message;
  to_wire(xid, message);
  const auto back = from_wire(message);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, xid);
}

TEST(Convert, RefusesAnXidBeyondTheLimits) {
  wire::Xid message;
  EXPECT_EQ(from_wire(message).error().fault, Fault::invalid);  // no gtrid
  message.set_gtrid(std::string(64, 'g'));
  EXPECT_TRUE(from_wire(message));
  message.set_bqual(std::string(65, 'b'));
  EXPECT_NE(from_wire(message).error().message.find("65 of bqual"), std::string::npos);
  message.set_bqual("b");
  message.set_format_id(-1);  // C193: the null xid
  EXPECT_FALSE(from_wire(message));
}

TEST(Convert, TxnIdComesBack) {
  wire::TxnId message;
  to_wire(TxnId{3, ~0ull}, message);
  EXPECT_EQ(from_wire(message), (TxnId{3, ~0ull}));
}

TEST(Convert, OutcomeComesBack) {
  Outcome outcome;
  outcome.verdict = Verdict::aborted;
  outcome.reason = Reason::refused;
  outcome.detail = "payments said no";
  outcome.gtrid = std::string("\0g", 2);
  outcome.refusals = {{"payments", 3, "add", "min", "customer/c", "1", "0"}, {}};
  outcome.results = {{"orders", std::string("\x0a\0", 2)}};
  outcome.ended = true;
  outcome.heuristic = true;
  outcome.timeout_ms = 600;
  wire::Outcome message;
  to_wire(outcome, message);
  to_wire(outcome, message);  // replaces, does not add
  const Outcome back = from_wire(message);
  EXPECT_EQ(back.verdict, outcome.verdict);
  EXPECT_EQ(back.reason, outcome.reason);
  EXPECT_EQ(back.detail, outcome.detail);
  EXPECT_EQ(back.gtrid, outcome.gtrid);
  EXPECT_EQ(back.refusals, outcome.refusals);
  ASSERT_EQ(back.results.size(), 1u);
  EXPECT_EQ(back.results[0].rm, "orders");
  EXPECT_EQ(back.results[0].results, outcome.results[0].results);
  EXPECT_TRUE(back.ended);
  EXPECT_TRUE(back.heuristic);
  EXPECT_EQ(back.timeout_ms, 600u);
}

TEST(Convert, ANumberThatIsNotKnownClaimsNothing) {
  for (const std::uint32_t verdict : {0u, 8u, 257u, ~0u}) {
    wire::Outcome message;
    message.set_verdict(verdict);
    message.set_reason(4711);
    EXPECT_EQ(from_wire(message).verdict, Verdict::unknown);
    EXPECT_EQ(from_wire(message).reason, Reason::none);
  }
}

TEST(Convert, EveryFailureBecomesAFault) {
  const std::pair<wire::FailureCode, Fault> faults[] = {
      {wire::FAILURE_VERSION, Fault::unsupported},
      {wire::FAILURE_TOO_LARGE, Fault::invalid},
      {wire::FAILURE_CORRUPT, Fault::damaged},
      {wire::FAILURE_UNKNOWN_MESSAGE, Fault::unsupported},
      {wire::FAILURE_HANDSHAKE, Fault::invalid},
      {wire::FAILURE_STALE, Fault::exists},
      {wire::FAILURE_WRONG_LOG, Fault::invalid},
      {wire::FAILURE_OUTDATED, Fault::outdated},
      {wire::FAILURE_NOT_HERE, Fault::not_found},
      {wire::FAILURE_BUSY, Fault::busy},
      {wire::FAILURE_SHUTDOWN, Fault::closed},
      {wire::FAILURE_REQUEST, Fault::invalid},
      {wire::FAILURE_UNSPECIFIED, Fault::io},
      {static_cast<wire::FailureCode>(99), Fault::io}};
  for (const auto& [code, fault] : faults) {
    wire::Failure failure;
    failure.set_code(code);
    failure.set_text("why");
    EXPECT_EQ(to_error(failure).fault, fault) << code;
    EXPECT_EQ(to_error(failure).message, "why");
  }
  EXPECT_FALSE(to_error(wire::Failure()).message.empty());
}

}  // namespace
}  // namespace twofold
