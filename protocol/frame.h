// Frames: how a message travels on TCP.
//
//   length (4, little-endian) | checksum (4, little-endian) | payload (length bytes)
//
// The checksum is CRC-32 (zlib's, as in PNG) of the length's four bytes followed by the payload,
// which is an encoded wire.proto Frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/result.h"

namespace google::protobuf {
class MessageLite;
}

namespace twofold {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 8;

namespace wire {
class Frame;
}

// Appends one whole frame to `out`. The message must encode to at most 4 GiB; the caller has
// checked the peer's limit with ByteSizeLong.
void append_frame(const wire::Frame& message, std::string& out);
// The same for a caller that has just called message.ByteSizeLong(), which gave `payload_bytes`.
void append_frame(const wire::Frame& message, std::size_t payload_bytes, std::string& out);

// Parses what a peer sent, replacing what `out` held. False: not such a message, or a text in it is
// not UTF-8. Says nothing on stderr, unlike protobuf: peers must not be able to fill a log.
bool parse_message(std::string_view bytes, google::protobuf::MessageLite& out);

// Whether a peer could parse `message`: every text in it is UTF-8. Costs an encoding and a parse.
bool has_valid_texts(const google::protobuf::MessageLite& message);

enum class FrameFault : std::uint8_t { none, too_large, corrupt };

// Cuts frames out of a byte stream. Not thread-safe.
class FrameReader {
 public:
  explicit FrameReader(std::size_t payload_bytes_max) : payload_bytes_max_(payload_bytes_max) {}

  void append(std::string_view bytes);

  // The next whole payload, valid until the next call of append() or next(). Empty optional-like:
  // false when more bytes are needed or after a fault; then fault() tells which. A fault is final.
  bool next(std::string_view& payload);
  FrameFault fault() const { return fault_; }
  std::size_t faulty_length() const {
    return faulty_length_;
  }  // with too_large: what was announced

 private:
  std::size_t payload_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t faulty_length_ = 0;
  FrameFault fault_ = FrameFault::none;
};

}  // namespace twofold
