#include "protocol/text.h"

#include <algorithm>
#include <cstdint>

#include "protocol/utf8.h"
#include "protocol/xid.h"

namespace twofold {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t size = 1;
  bool valid = true;
};

Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (size > text.size() || !is_utf8(text.substr(0, size))) return {lead, 1, false};
  std::uint32_t code = lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  return {code, size, true};
}

bool acts(std::uint32_t code) {
  const auto within = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || within(0x7f, 0x9f) || code == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x206f) || code == 0xfeff ||
         within(0xfff9, 0xfffb);
}

void append_escaped(const Character& character, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const bool byte = !character.valid || character.code < 0x80;
  out += byte ? "\\x" : "\\u";
  for (int shift = byte ? 4 : 12; shift >= 0; shift -= 4) {
    out.push_back(kHex[character.code >> shift & 15]);
  }
}

}  // namespace

bool has_controls(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_of(text.substr(at));
    if (character.valid && acts(character.code)) return true;
    at += character.size;
  }
  return false;
}

std::string printable(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_of(text.substr(at));
    const bool kept = lines && character.code == '\n';
    if (!kept && (!character.valid || acts(character.code))) {
      append_escaped(character, out);
    } else {
      out += text.substr(at, character.size);
    }
    at += character.size;
  }
  return out;
}

std::string shown(std::string_view given) {
  constexpr std::size_t kShownBytesMax = 200;
  if (given.size() <= kShownBytesMax) return printable(given);
  return printable(utf8_prefix(given, kShownBytesMax)) + "…";
}

std::string base64_encode(std::string_view bytes) {
  std::string text = base64url_encode(bytes);
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  while (text.size() % 4 != 0) text.push_back('=');
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 == 0) {
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  }
  std::string url(text);
  std::replace(url.begin(), url.end(), '+', '-');
  std::replace(url.begin(), url.end(), '/', '_');
  return base64url_decode(url);
}

}  // namespace twofold
