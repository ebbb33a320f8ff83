// Where a connection goes and what bounds it: all that an application says about connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/result.h"

namespace twofold {

inline constexpr std::size_t kFrameBytesMaxDefault = 16u << 20;  // a frame's payload

struct ConnectionOptions {
  std::size_t frame_bytes_max = kFrameBytesMaxDefault;
  std::size_t send_bytes_max = 256u << 20;
  std::chrono::milliseconds heartbeat{1000};      // something is sent at least this often
  std::chrono::milliseconds silence_max{5000};    // nothing received for so long: closed
  std::chrono::milliseconds handshake_max{5000};  // connect and handshake together
};

// "HOST:PORT", "[::1]:PORT". The port may be 0 where a listener chooses one.
struct Address {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};
Result<Address> parse_address(std::string_view text);
std::string to_text(const Address& address);

}  // namespace twofold
