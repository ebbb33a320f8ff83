// Names of transactions and branches, as text and as bytes. Every text form is the only one of its
// value: what parses prints as it was written.
//
// Input: taken as a text of each form, and as bytes of each kind.
#include "protocol/xid.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

constexpr std::size_t kTextBytesMax = 184;

void check_as_xid_text(std::string_view text) {
  const Result<Xid> xid = parse_xid(text);
  if (!xid) return require_sentence(xid.error());
  require(valid(*xid), "a parsed xid is valid");
  require(to_text(*xid) == text, "an xid prints as it was written", text);
  require(text.size() <= kTextBytesMax, "the text of an xid fits", text);
}

void check_as_other_texts(std::string_view text) {
  const Result<std::string> gtrid = parse_gtrid_text(text);
  if (gtrid) {
    require(!gtrid->empty() && gtrid->size() <= kXidPartBytesMax, "a parsed gtrid has its size");
    require(gtrid_text(*gtrid) == text, "a gtrid prints as it was written", text);
  } else {
    require_sentence(gtrid.error());
  }
  const Result<TxnId> id = parse_txn_id(text);
  if (id) {
    require(to_text(*id) == text, "a transaction's id prints as it was written", text);
  } else {
    require_sentence(id.error());
  }
  if (const auto bytes = base64url_decode(text)) {
    require(base64url_encode(*bytes) == text, "base64url prints as it was written", text);
  }
}

void check_as_parts(std::string_view bytes) {
  require(base64url_decode(base64url_encode(bytes)) == bytes, "bytes come back from base64url");
  if (const auto gtrid = Gtrid::decode(bytes)) {
    require(gtrid->encode() == bytes, "a gtrid of ours comes back");
    require(parse_txn_id(to_text(gtrid->txn_id())).value() == gtrid->txn_id(),
            "the id of a gtrid comes back");
  }
  if (const auto bqual = Bqual::decode(bytes)) {
    require(bqual->encode() == bytes, "a bqual of ours comes back");
  }
}

void check_as_xid_bytes(Input input) {
  Xid xid;
  xid.format_id = 0;
  for (int i = 0; i < 4; ++i) {
    xid.format_id =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(xid.format_id) << 8 | input.byte());
  }
  xid.gtrid = input.take(input.byte());
  xid.bqual = input.rest();
  const std::string text = to_text(xid);
  const Result<Xid> back = parse_xid(text);
  require(back.has_value() == valid(xid), "exactly the valid xids have a text that parses", text);
  if (back) require(*back == xid, "an xid comes back from its text", text);
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace twofold::fuzz;
  const std::string_view input = Input(data, size).rest();
  check_as_xid_text(input);
  check_as_other_texts(input);
  check_as_parts(input);
  check_as_xid_bytes(Input(data, size));
  return 0;
}
