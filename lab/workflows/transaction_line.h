// One line of a transactions file, as `twofold submit` reads it:
//
//   {"request_id": "r-7", "timeout_ms": 5000, "branches": [
//     {"rm": "payments", "work": [{"op": "add", "key": "customer/c-1", "by": -2350, "min": 0}]}]}
//
// request_id and timeout_ms may be missing. Of an operation, "op" is its name and every other
// member a named argument, in the order given. Numbers are 64-bit integers; bytes are
// {"base64": "AP8="}. A member that is not known is an error, since a misspelt one must not be
// ignored, and so is one given twice, and work that no participant could read
// (protocol/operation.h's limits). Pure.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "client/transaction.h"
#include "protocol/result.h"

namespace twofold::lab {

inline constexpr std::size_t kRequestIdBytesMax = 128;
inline constexpr std::size_t kLineBytesMax = 16u << 20;

// Fault::invalid: what is wrong, and where in the line: "branches[0].work[2].by: …".
Result<client::Transaction> parse_transaction_line(std::string_view line);

// Work alone: an operation as above, or an array of them.
Result<Work> parse_work_text(std::string_view text);

// A line as a JSON object; invalid: as parse_json_text(), not an object, too long.
Result<boost::json::object> parse_json_line(std::string_view line);

bool is_blank(std::string_view line);

}  // namespace twofold::lab
