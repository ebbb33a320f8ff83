// Texts as people see them. Names, keys and values come from anybody, and a terminal obeys some
// characters in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace twofold {

// Has it characters that are not shown but act: C0 and C1 controls, DEL, line and paragraph
// separators, and those that reorder the text around them (U+061C, U+200E and F, U+202A to E,
// U+2066 to 2069 and their like)?
bool has_controls(std::string_view text);

// With those as \x1b or \u202e, and bytes that are not UTF-8 as \xff. In one of several lines '\n'
// stays.
std::string printable(std::string_view text, bool lines = false);
// The same of what somebody gave, for an error that quotes it: at most 200 bytes of it, then "…".
std::string shown(std::string_view given);

// RFC 4648, section 4, with padding: as the command base64 writes it.
std::string base64_encode(std::string_view bytes);
// Either alphabet, with padding or without. None: not base64.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace twofold
