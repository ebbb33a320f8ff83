// Plays a conversation script (tests/scripts/README.md) and gives the conversation that really
// happened.
#pragma once

#include <string>
#include <string_view>

namespace twofold::coordinator::test {

// The script with the lines of effects replaced by the actual ones. A line that cannot be
// understood is answered by "! why".
std::string play(std::string_view script);

}  // namespace twofold::coordinator::test
