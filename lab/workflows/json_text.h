// JSON as a person writes it for us. A key that is given twice in one object is an error: of two
// amounts it would be luck which one counts. Pure.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "protocol/result.h"

namespace twofold::lab {

// Fault::invalid: not JSON, not UTF-8, nested too deep, or a key twice; the message names it.
Result<boost::json::value> parse_json_text(std::string_view text);

}  // namespace twofold::lab
