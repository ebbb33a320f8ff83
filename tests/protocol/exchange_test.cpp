// docs/protocol.md shows one exchange byte by byte. This test makes the same messages with the
// encoder and compares, so that the document cannot lie.
#include <gtest/gtest.h>

#include <fstream>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "protocol/convert.h"
#include "protocol/endpoint.h"
#include "protocol/frame.h"
#include "protocol/operation.h"
#include "protocol/wire.pb.h"
#include "protocol/xa.h"
#include "protocol/xid.h"

namespace twofold {
namespace {

constexpr std::uint64_t kLogId = 0x1122334455667788;
constexpr std::uint64_t kNonce = 0x0102030405060708;
constexpr std::uint64_t kIncarnation = 0xa1a2a3a4a5a6a7a8;
constexpr std::uint64_t kStoreId = 0xb1b2b3b4b5b6b7b8;

Xid example_xid() {
  const Gtrid gtrid{{kLogId}, 3, kNonce, 17, "main"};
  return {kFormatId, gtrid.encode(), Bqual{1, "payments"}.encode()};
}

wire::Frame hello() {
  wire::Frame frame;
  auto& hello = *frame.mutable_hello();
  hello.set_version(kProtocolVersion);
  hello.set_role(wire::ROLE_COORDINATOR);
  hello.set_name("main");
  hello.set_node("main");
  hello.set_log_id(kLogId);
  hello.set_epoch(3);
  hello.set_nonce(kNonce);
  hello.set_session(1);
  hello.set_expects("payments");
  hello.set_heartbeat_ms(1000);
  hello.set_frame_bytes_max(kFrameBytesMaxDefault);
  hello.add_earlier(0x9b9c9d9e9fa0a1a2);
  hello.add_earlier(0x8b8c8d8e8f909192);
  return frame;
}

wire::Frame welcome() {
  wire::Frame frame;
  auto& welcome = *frame.mutable_welcome();
  welcome.set_version(kProtocolVersion);
  welcome.set_role(wire::ROLE_RESOURCE_MANAGER);
  welcome.set_name("payments");
  welcome.set_incarnation(kIncarnation);
  welcome.set_store_id(kStoreId);
  welcome.set_heartbeat_ms(1000);
  welcome.set_frame_bytes_max(kFrameBytesMaxDefault);
  return frame;
}

wire::Frame mark() {
  wire::Frame frame;
  to_wire(TxnId{3, 17}, *frame.mutable_mark()->mutable_low_water());
  return frame;
}

wire::Frame recover() {
  wire::Frame frame;
  frame.set_request(1);
  frame.mutable_recover()->set_start(true);
  frame.mutable_recover()->set_batch(1000);
  return frame;
}

wire::Frame recover_answer() {
  wire::Frame frame;
  frame.set_request(1);
  frame.mutable_recover_answer()->set_end(true);
  return frame;
}

wire::Frame start() {
  wire::Frame frame;
  frame.set_request(2);
  auto& start = *frame.mutable_start();
  to_wire(example_xid(), *start.mutable_xid());
  start.set_remaining_ms(5000);
  start.set_work(encode_work({{"add",
                               {{"key", {std::string("customer/c-1")}},
                                {"by", {std::int64_t{-2350}}},
                                {"min", {std::int64_t{0}}}}}}));
  start.set_then(wire::THEN_PREPARE);
  start.set_read_only_vote(true);
  return frame;
}

wire::Frame voted() {
  wire::Frame frame;
  frame.set_request(2);
  auto& answer = *frame.mutable_branch_answer();
  answer.set_code(static_cast<std::int32_t>(Xa::ok));
  answer.set_results(encode_results({{std::int64_t{7650}}}));
  return frame;
}

wire::Frame commit() {
  wire::Frame frame;
  frame.set_request(3);
  to_wire(example_xid(), *frame.mutable_commit()->mutable_xid());
  return frame;
}

wire::Frame committed() {
  wire::Frame frame;
  frame.set_request(3);
  frame.mutable_branch_answer()->set_code(static_cast<std::int32_t>(Xa::ok));
  return frame;
}

wire::Frame refused() {
  wire::Frame frame;
  frame.set_request(2);
  auto& answer = *frame.mutable_branch_answer();
  answer.set_code(static_cast<std::int32_t>(Xa::rbintegrity));
  to_wire(Refusal{"", 0, "add", "min", "customer/c-1", "100", "0"}, *answer.add_refusals());
  return frame;
}

wire::Frame not_there() {
  wire::Frame frame;
  frame.set_request(4);
  auto& answer = *frame.mutable_branch_answer();
  answer.set_code(static_cast<std::int32_t>(Xa::er_nota));
  answer.set_text("no such branch here");
  return frame;
}

std::string hex(std::string_view bytes) {
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  for (const char byte : bytes) {
    out << std::setw(2) << static_cast<int>(static_cast<unsigned char>(byte));
  }
  return out.str();
}

// The document's blocks that are fenced as "hex", each without blanks and without what follows a
// '#'.
std::vector<std::string> documented() {
  std::ifstream file(TWOFOLD_SOURCE_DIR "/docs/protocol.md");
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```hex";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      for (const char c : line.substr(0, line.find('#'))) {
        if (c != ' ') blocks.back().push_back(c);
      }
    }
  }
  return blocks;
}

TEST(Exchange, TheDocumentShowsWhatTheEncoderMakes) {
  const std::pair<const char*, wire::Frame> frames[] = {{"Hello", hello()},
                                                        {"Welcome", welcome()},
                                                        {"Mark", mark()},
                                                        {"Recover", recover()},
                                                        {"RecoverAnswer", recover_answer()},
                                                        {"Start", start()},
                                                        {"BranchAnswer to Start", voted()},
                                                        {"Commit", commit()},
                                                        {"BranchAnswer to Commit", committed()},
                                                        {"BranchAnswer of a refusal", refused()},
                                                        {"BranchAnswer XAER_NOTA", not_there()}};
  const std::vector<std::string> blocks = documented();
  EXPECT_EQ(blocks.size(), std::size(frames));
  for (std::size_t i = 0; i < std::size(frames); ++i) {
    std::string bytes;
    append_frame(frames[i].second, bytes);
    EXPECT_EQ(i < blocks.size() ? blocks[i] : "", hex(bytes)) << frames[i].first;
  }
}

}  // namespace
}  // namespace twofold
