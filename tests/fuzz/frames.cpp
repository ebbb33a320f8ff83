// FrameReader against a second reading of docs/protocol.md: whatever bytes come, and in whatever
// pieces, both find the same payloads and the same fault.
//
// Input: payload limit (1) | number of piece sizes (1) | piece sizes | parts of the stream:
//   0x00 to 0x7f n: n bytes as they are; 0x80 + n: n bytes as a payload, sealed with its checksum;
//   0xff 'L' m: a payload of m * 2 KiB, sealed, once in a stream, since it costs milliseconds
#include <zlib.h>

#include <array>
#include <vector>

#include "protocol/frame.h"
#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

constexpr std::array<std::size_t, 6> kLimits = {0, 1, 16, 1'000, 65'536, 1u << 20};
constexpr std::size_t kPiecesMax = 1'000;

std::uint32_t checksum(std::string_view length, std::string_view payload) {
  uLong crc = 0;
  for (const std::string_view bytes : {length, payload}) {
    crc =
        ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  }
  return static_cast<std::uint32_t>(crc);
}

std::string little_endian(std::uint32_t number) {
  std::string out;
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  return out;
}

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return number;
}

void append_sealed(std::string_view payload, std::string& stream) {
  const std::string length = little_endian(static_cast<std::uint32_t>(payload.size()));
  stream += length;
  stream += little_endian(checksum(length, payload));
  stream += payload;
}

std::string read_stream(Input& input) {
  std::string stream;
  bool large = false;
  while (!input.empty()) {
    const std::uint8_t part = input.byte();
    if (part == 0xff && !large && input.next_is('L')) {
      large = true;
      input.byte();
      append_sealed(std::string(input.byte() * std::size_t{2'048}, 'x'), stream);
    } else if (part & 0x80) {
      append_sealed(input.take(part & 0x7f), stream);
    } else {
      stream += input.take(part);
    }
  }
  return stream;
}

// What is in a stream. The payloads are views of it.
struct Found {
  std::vector<std::string_view> payloads;
  FrameFault fault = FrameFault::none;
  std::size_t faulty_length = 0;
};

Found read_by_the_document(std::string_view stream, std::size_t limit) {
  Found found;
  for (std::size_t at = 0; stream.size() - at >= kFrameHeaderBytes;) {
    const std::size_t length = number_at(stream, at);
    if (length > limit) {
      found.fault = FrameFault::too_large;
      found.faulty_length = length;
      break;
    }
    const std::size_t body = at + kFrameHeaderBytes;
    if (stream.size() - body < length) break;
    const std::string_view payload = stream.substr(body, length);
    if (checksum(stream.substr(at, 4), payload) != number_at(stream, at + 4)) {
      found.fault = FrameFault::corrupt;
      break;
    }
    found.payloads.push_back(payload);
    at = body + length;
  }
  return found;
}

void check_in_pieces(std::string_view stream, std::size_t limit, std::string_view sizes,
                     const Found& expected) {
  FrameReader reader(limit);
  std::size_t found = 0;
  std::size_t at = 0;
  const std::size_t unit = 1 + stream.size() / 16'384;  // a long stream comes in larger pieces
  for (std::size_t i = 0; at < stream.size(); ++i) {
    // A size of 0 is an empty read; the last piece is all that is left.
    const bool last = sizes.empty() || i == kPiecesMax;
    const std::size_t size =
        last ? stream.size() : unit * static_cast<unsigned char>(sizes[i % sizes.size()]);
    const std::string_view piece = stream.substr(at, size);
    // From memory of its own, so that a view of it that is kept too long is found out.
    reader.append(std::string(piece));
    at += piece.size();
    for (std::string_view payload; reader.next(payload); ++found) {
      require(reader.fault() == FrameFault::none, "a fault is final");
      require(found < expected.payloads.size() && payload == expected.payloads[found],
              "the frames come as they are in the stream");
    }
  }
  require(found == expected.payloads.size(), "every frame comes");
  require(reader.fault() == expected.fault, "a stream has its fault, and no other");
  require(reader.faulty_length() == expected.faulty_length, "a fault tells the length");
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace twofold::fuzz;
  Input input(data, size);
  const std::size_t limit = kLimits[input.byte() % kLimits.size()];
  const std::string_view sizes = input.take(input.byte() % 16);
  const std::string stream = read_stream(input);
  const Found expected = read_by_the_document(stream, limit);
  check_in_pieces(stream, limit, {}, expected);
  check_in_pieces(stream, limit, sizes, expected);
  return 0;
}
