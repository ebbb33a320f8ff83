// Texts as they travel: every name, key and text on the wire is UTF-8, or protobuf refuses the
// whole frame in which one is not. Bytes are not bound to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace twofold {

bool is_utf8(std::string_view text);
// At most `bytes_max` of it, not cut inside a character.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max);

}  // namespace twofold
