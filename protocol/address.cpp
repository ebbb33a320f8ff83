#include <charconv>

#include "protocol/endpoint.h"
#include "protocol/text.h"

namespace twofold {

Result<Address> parse_address(std::string_view text) {
  const Error invalid{Fault::invalid, "'" + shown(text) +
                                          "' is no address: write HOST:PORT, as in 127.0.0.1:7400 "
                                          "or [::1]:7400"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return invalid;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return invalid;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return invalid;  // an IPv6 address without brackets: its end would be a guess
  }
  if (host.empty() || host.find_first_of(" \t\r\n[]/") != std::string_view::npos) return invalid;
  std::uint16_t port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    return invalid;
  }
  return Address{std::string(host), port};
}

std::string to_text(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace twofold
