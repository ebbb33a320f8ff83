#include "lab/workflows/line_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "lab/workflows/transaction_line.h"

namespace twofold::lab {
namespace {

struct Line {
  std::uint64_t number;
  std::string text;
  bool operator==(const Line&) const = default;
};

class LineReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "lines-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file(const std::string& text) {
    const auto path = folder_ / "lines";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Reads to the end, turning the event loop wherever the reader has nothing yet.
  std::vector<Line> read(LineReader& reader) {
    std::vector<Line> lines;
    bool ready = false;
    reader.on_ready([&] { ready = true; });
    for (;;) {
      Line line{};
      switch (reader.next(line.number, line.text)) {
        case LineReader::Got::line: lines.push_back(line); break;
        case LineReader::Got::end: return lines;
        case LineReader::Got::nothing_yet:
          ready = false;
          do {
            if (io_.run_one() == 0) io_.restart();
          } while (!ready);
      }
    }
  }

  std::filesystem::path folder_;
  boost::asio::io_context io_;
};

TEST_F(LineReaderTest, BlankLinesAreSkippedButCounted) {
  const auto path = file("a\n\n  \r\nb\r\nlast");
  auto reader = LineReader::open(io_, path);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(read(**reader), (std::vector<Line>{{1, "a"}, {4, "b\r"}, {5, "last"}}));
  EXPECT_EQ(LineReader::count_lines(path), 3U);
}

TEST_F(LineReaderTest, ManyLinesComeInOrderThroughTheBoundedQueue) {
  std::string text;
  for (int i = 1; i <= 20'000; ++i) text += std::to_string(i) + "\n";
  auto reader = LineReader::open(io_, file(text));
  ASSERT_TRUE(reader) << reader.error().message;
  const auto lines = read(**reader);
  ASSERT_EQ(lines.size(), 20'000U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i], (Line{i + 1, std::to_string(i + 1)}));
  }
}

TEST_F(LineReaderTest, ASlowPipeDoesNotBlockTheCaller) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "one\ntwo\n" << std::flush; });
  auto reader = LineReader::open(io_, path);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(read(**reader), (std::vector<Line>{{1, "one"}, {2, "two"}}));
  writer.join();
}

TEST_F(LineReaderTest, ALineThatIsTooLongIsCutWhereItIsKnownToBe) {
  auto reader = LineReader::open(io_, file(std::string(kLineBytesMax + 100'000, 'x') + "\nnext\n"));
  ASSERT_TRUE(reader) << reader.error().message;
  const auto lines = read(**reader);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_FALSE(parse_json_line(lines[0].text));
  EXPECT_LE(lines[0].text.size(), kLineBytesMax + 65'536);
  EXPECT_EQ(lines[1], (Line{2, "next"}));
}

TEST_F(LineReaderTest, StopEndsItAtOnce) {
  auto reader = LineReader::open(io_, file(std::string(100'000, '\n') + "x"));
  ASSERT_TRUE(reader) << reader.error().message;
  (*reader)->stop();
  EXPECT_TRUE(read(**reader).empty());
}

TEST_F(LineReaderTest, AMissingFileIsAnError) {
  const auto reader = LineReader::open(io_, folder_ / "none");
  ASSERT_FALSE(reader);
  EXPECT_NE(reader.error().message.find("none"), std::string::npos);
  EXPECT_FALSE(LineReader::open(io_, folder_));
}

}  // namespace
}  // namespace twofold::lab
