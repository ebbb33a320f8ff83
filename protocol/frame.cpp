#include "protocol/frame.h"

#include <google/protobuf/message_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <zlib.h>

#include <limits>
#include <memory>

#include "protocol/check.h"
#include "protocol/wire.pb.h"

namespace twofold {
namespace {

// A reader that once held a large frame does not keep its memory.
constexpr std::size_t kIdleBufferBytesMax = 256u << 10;

void put_little_endian(std::uint32_t value, char* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>((value >> (8 * i)) & 0xff);
}

std::uint32_t get_little_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

const Bytef* octets(const char* bytes) {
  return reinterpret_cast<const Bytef*>(bytes);
}

std::uint32_t checksum(const char* length, const char* payload, std::size_t bytes) {
  const uLong of_length = crc32_z(0, octets(length), 4);
  return static_cast<std::uint32_t>(crc32_z(of_length, octets(payload), bytes));
}

}  // namespace

void append_frame(const wire::Frame& message, std::size_t payload_bytes, std::string& out) {
  TWOFOLD_CHECK(payload_bytes <= std::numeric_limits<std::uint32_t>::max());
  const std::size_t begin = out.size();
  out.resize(begin + kFrameHeaderBytes + payload_bytes);
  char* header = out.data() + begin;
  char* payload = header + kFrameHeaderBytes;
  auto* end = message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(payload));
  TWOFOLD_CHECK(reinterpret_cast<char*>(end) == payload + payload_bytes);
  put_little_endian(static_cast<std::uint32_t>(payload_bytes), header);
  put_little_endian(checksum(header, payload, payload_bytes), header + 4);
}

void append_frame(const wire::Frame& message, std::string& out) {
  append_frame(message, message.ByteSizeLong(), out);
}

bool parse_message(std::string_view bytes, google::protobuf::MessageLite& out) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
  const google::protobuf::LogSilencer silent;
  return out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

bool has_valid_texts(const google::protobuf::MessageLite& message) {
  const google::protobuf::LogSilencer silent;
  const std::unique_ptr<google::protobuf::MessageLite> parsed(message.New());
  return parsed->ParseFromString(message.SerializeAsString());
}

void FrameReader::append(std::string_view bytes) {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
    if (buffer_.capacity() > kIdleBufferBytesMax) buffer_ = std::string();
  } else if (begin_ >= buffer_.size() - begin_) {
    // Moves at most what has been consumed since the last move: linear in the stream's length.
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_.append(bytes);
}

bool FrameReader::next(std::string_view& payload) {
  const std::size_t held = buffer_.size() - begin_;
  if (fault_ != FrameFault::none || held < kFrameHeaderBytes) return false;
  const char* header = buffer_.data() + begin_;
  const std::size_t length = get_little_endian(header);
  if (length > payload_bytes_max_) {
    fault_ = FrameFault::too_large;
    faulty_length_ = length;
    return false;
  }
  if (held - kFrameHeaderBytes < length) return false;
  const char* body = header + kFrameHeaderBytes;
  if (checksum(header, body, length) != get_little_endian(header + 4)) {
    fault_ = FrameFault::corrupt;
    return false;
  }
  payload = {body, length};
  begin_ += kFrameHeaderBytes + length;
  return true;
}

}  // namespace twofold
