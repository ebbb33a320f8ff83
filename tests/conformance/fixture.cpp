#include "tests/conformance/fixture.h"

namespace twofold::conformance {
namespace {

std::string filled_in(std::string text, const std::string& placeholder, const std::string& value) {
  for (std::size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at + value.size())) {
    text.replace(at, placeholder.size(), value);
  }
  return text;
}

wire::Frame interactive_start(const Xid& xid, std::uint32_t remaining_ms) {
  wire::Frame frame = FakePeer::start(xid, {}, wire::THEN_NOTHING, remaining_ms);
  frame.mutable_start()->set_interactive(true);
  return frame;
}

}  // namespace

void ParticipantProcess::serve(const std::vector<std::string>& more) {
  std::vector<std::string> arguments;
  for (std::string argument : kind_.arguments) {
    argument = filled_in(std::move(argument), "{name}", kName);
    argument = filled_in(std::move(argument), "{listen}", "127.0.0.1:0");
    argument = filled_in(std::move(argument), "{data}", (directory_.path() / "data").string());
    arguments.push_back(std::move(argument));
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  program_ = std::make_unique<test::Program>(kind_.program, arguments);
  const std::string address = program_->address();
  if (address.empty()) {
    throw std::runtime_error(kind_.program + " did not serve: " + program_->end().first);
  }
  address_ = parse_address(address).value();
}

void ParticipantProcess::kill() {
  program_.reset();
}

int ParticipantProcess::ended() {
  const auto [output, status] = program_->end();
  program_.reset();
  return status;
}

std::unique_ptr<FakePeer> ParticipantProcess::session(std::uint64_t epoch,
                                                      const std::string& node) {
  auto peer = connect(coordinator_hello(++counter_, epoch, node));
  if (peer->refused()) throw std::runtime_error(peer->refused()->message);
  return peer;
}

std::unique_ptr<FakePeer> ParticipantProcess::client() {
  auto peer = connect(client_hello());
  if (peer->refused()) throw std::runtime_error(peer->refused()->message);
  return peer;
}

Xid ParticipantProcess::prepared(FakePeer& peer, const std::string& key, std::int64_t number) {
  Xid xid = next_xid();
  EXPECT_EQ(peer.code(FakePeer::start(xid, {write(key, number)})), Xa::ok);
  return xid;
}

Value ParticipantProcess::value_of(FakePeer& peer, const std::string& key) {
  const Xid xid = next_xid();
  const wire::Frame answer = peer.ask(FakePeer::start(xid, {read(key)}));
  EXPECT_EQ(code_of(answer), Xa::rdonly) << answer.branch_answer().text();
  const auto results = decode_results(answer.branch_answer().results());
  EXPECT_EQ(peer.code(FakePeer::release(xid)), Xa::ok);
  EXPECT_TRUE(results && results->size() == 1);
  return results && results->size() == 1 ? results->front() : Value{};
}

void ParticipantProcess::expect_free(FakePeer& peer, const std::string& key) {
  const Xid xid = next_xid();
  EXPECT_EQ(peer.code(FakePeer::start(xid, {write(key, -1)}, wire::THEN_NOTHING)), Xa::ok) << key;
  EXPECT_EQ(peer.code(FakePeer::rollback(xid)), Xa::ok);
}

void ParticipantProcess::expect_locked(FakePeer& peer, const std::string& key) {
  const Xid xid = next_xid();
  EXPECT_EQ(peer.code(FakePeer::start(xid, {write(key, -1)}, wire::THEN_NOTHING, 50)),
            Xa::rbtimeout)
      << key;
  const Xa code = peer.code(FakePeer::rollback(xid));
  EXPECT_TRUE(code == Xa::ok || code == Xa::er_nota) << name(code);
}

void Interactive::SetUp() {
  Participant::SetUp();
  main_ = session();
  const Xid probe = next_xid();
  const Xa code = main_->code(interactive_start(probe, 60'000));
  if (code == Xa::er_inval) GTEST_SKIP() << "it takes submitted work only";
  ASSERT_EQ(code, Xa::ok);
  EXPECT_EQ(main_->code(FakePeer::rollback(probe)), Xa::ok);
}

Xid Interactive::begin(std::uint32_t remaining_ms) {
  const Xid xid = next_xid();
  EXPECT_EQ(main_->code(interactive_start(xid, remaining_ms)), Xa::ok);
  return xid;
}

Xa Interactive::vote(const Xid& xid, std::uint64_t work_items) {
  return main_->code(FakePeer::prepare(xid, main_->welcome().incarnation(), work_items));
}

}  // namespace twofold::conformance
