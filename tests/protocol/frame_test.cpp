#include "protocol/frame.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "protocol/endpoint.h"
#include "protocol/wire.pb.h"

namespace twofold {
namespace {

wire::Frame message(std::uint64_t request, std::size_t work_bytes) {
  wire::Frame frame;
  frame.set_request(request);
  frame.mutable_start()->set_work(std::string(work_bytes, 'w'));
  return frame;
}

std::vector<std::string> read_all(FrameReader& reader) {
  std::vector<std::string> payloads;
  std::string_view payload;
  while (reader.next(payload)) payloads.emplace_back(payload);
  return payloads;
}

TEST(Frame, HasTheDocumentedBytes) {
  wire::Frame frame;
  frame.set_request(1);
  frame.mutable_heartbeat();
  std::string bytes = "before";
  append_frame(frame, bytes);
  EXPECT_EQ(bytes, std::string("before"
                               "\x04\x00\x00\x00"
                               "\x63\x5f\x75\x4a"
                               "\x08\x01\x2a\x00",
                               6 + 12));
}

TEST(FrameReader, FindsFramesHoweverTheyArrive) {
  std::string stream;
  std::vector<std::string> expected;
  for (const std::size_t bytes : {0, 1, 7, 300, 70'000, 2}) {
    append_frame(message(bytes + 1, bytes), stream);
    expected.push_back(message(bytes + 1, bytes).SerializeAsString());
  }
  std::mt19937 random(3);
  for (const std::size_t step_max :
       {std::size_t{1}, std::size_t{9}, std::size_t{65'536}, stream.size()}) {
    FrameReader reader(kFrameBytesMaxDefault);
    std::vector<std::string> payloads;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t step = std::min<std::size_t>(1 + random() % step_max, stream.size() - at);
      reader.append(std::string_view(stream).substr(at, step));
      for (std::string& payload : read_all(reader)) payloads.push_back(std::move(payload));
      at += step;
    }
    EXPECT_EQ(payloads, expected);
    EXPECT_EQ(reader.fault(), FrameFault::none);
  }
}

TEST(FrameReader, AnEmptyPayloadIsAFrame) {
  FrameReader reader(10);
  std::string bytes;
  append_frame(wire::Frame(), bytes);
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes);
  reader.append(bytes);
  std::string_view payload = "x";
  EXPECT_TRUE(reader.next(payload));
  EXPECT_TRUE(payload.empty());
}

TEST(FrameReader, RefusesALengthBeforeItHasArrived) {
  FrameReader reader(1000);
  reader.append(std::string_view("\xe8\x03\x00\x00\0\0\0\0", 8));  // 1,000: the rest may come
  std::string_view payload;
  EXPECT_FALSE(reader.next(payload));
  EXPECT_EQ(reader.fault(), FrameFault::none);

  FrameReader too_large(1000);
  too_large.append(std::string_view("\xe9\x03\x00\x00\0\0\0\0", 8));
  EXPECT_FALSE(too_large.next(payload));
  EXPECT_EQ(too_large.fault(), FrameFault::too_large);
  EXPECT_EQ(too_large.faulty_length(), 1001u);
}

TEST(FrameReader, NoticesEveryDamagedBit) {
  std::string good;
  append_frame(message(9, 20), good);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    FrameReader reader(kFrameBytesMaxDefault);
    reader.append(bad);
    std::string_view payload;
    EXPECT_FALSE(reader.next(payload)) << "bit " << bit;
  }
}

TEST(FrameReader, AFaultIsFinal) {
  std::string good, bad;
  append_frame(message(1, 5), good);
  bad = good;
  bad.back() ^= 1;
  FrameReader reader(1000);
  reader.append(good + bad + good);
  EXPECT_EQ(read_all(reader).size(), 1u);
  EXPECT_EQ(reader.fault(), FrameFault::corrupt);
  reader.append(good);
  EXPECT_TRUE(read_all(reader).empty());
}

TEST(FrameReader, SurvivesAnyBytes) {
  std::mt19937 random(11);
  std::size_t faults = 0;
  for (int round = 0; round < 2'000; ++round) {
    FrameReader reader(64);
    for (int i = 0; i < 20; ++i) {
      std::string bytes(random() % 40, '\0');
      for (char& c : bytes) c = static_cast<char>(random() % 3 ? 0 : random());
      reader.append(bytes);
      read_all(reader);
    }
    faults += reader.fault() != FrameFault::none;
  }
  EXPECT_GT(faults, 1'000u);
}

}  // namespace
}  // namespace twofold
