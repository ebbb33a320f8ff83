#include "protocol/operation.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "protocol/wire.pb.h"

namespace twofold {
namespace {

Value nested(std::size_t depth) {
  Value value{std::int64_t{1}};
  for (std::size_t i = 0; i < depth; ++i) value = Value{List{std::move(value)}};
  return value;
}

Work example() {
  return {{"add", {{"key", "customer/c-1"}, {"by", -2350}, {"min", 0}}},
          {"everything",
           {{"null", {}},
            {"yes", {true}},
            {"no", {false}},
            {"low", {std::numeric_limits<std::int64_t>::min()}},
            {"real", {-0.5}},
            {"text", {std::string("gr\xc3\xbc\xc3\x9f")}},
            {"bytes", {Bytes{std::string("\0\xff", 2)}}},
            {"list", Value{List{1, Value{List{}}, ""}}}}},
          {"nothing", {}}};
}

std::string refused(const wire::Work& message) {
  const auto work = decode_work(message.SerializeAsString());
  if (work) return "";
  EXPECT_EQ(work.error().fault, Fault::invalid);
  return work.error().message;
}

TEST(Work, ComesBackAndEncodesToTheSameBytes) {
  const std::string bytes = encode_work(example());
  const auto work = decode_work(bytes);
  ASSERT_TRUE(work) << work.error().message;
  EXPECT_EQ(*work, example());
  EXPECT_EQ(encode_work(*work), bytes);
}

TEST(Work, EmptyIsEmpty) {
  EXPECT_EQ(encode_work({}), "");
  const auto work = decode_work("");
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->empty());
}

TEST(Work, FindsArgumentsByName) {
  const Work work = example();
  ASSERT_NE(work[0].find("by"), nullptr);
  EXPECT_EQ(*work[0].find("by"), Value{std::int64_t{-2350}});
  EXPECT_EQ(work[0].find("max"), nullptr);
}

TEST(Work, RefusesWhatHasNoName) {
  wire::Work message;
  message.add_operations();
  EXPECT_NE(refused(message).find("operation 0"), std::string::npos);
  message.mutable_operations(0)->set_name("get");
  message.mutable_operations(0)->add_arguments()->mutable_value()->set_integer(1);
  EXPECT_NE(refused(message).find("an argument has no name"), std::string::npos);
}

TEST(Work, RefusesAnArgumentGivenTwice) {
  wire::Work message;
  auto& operation = *message.add_operations();
  operation.set_name("get");
  for (int i = 0; i < 2; ++i) {
    auto& argument = *operation.add_arguments();
    argument.set_name("key");
    argument.mutable_value()->set_text("k");
  }
  EXPECT_NE(refused(message).find("'key' is given twice"), std::string::npos);
}

TEST(Work, RefusesAValueOfNoKind) {
  wire::Work message;
  auto& operation = *message.add_operations();
  operation.set_name("get");
  operation.add_arguments()->set_name("key");
  EXPECT_NE(refused(message).find("argument 'key': a value of a kind"), std::string::npos);
}

TEST(Work, RefusesTooManyArguments) {
  Work work{{"get", {}}};
  for (std::size_t i = 0; i < kArgumentsMax; ++i) {
    work[0].arguments.emplace_back("a" + std::to_string(i), Value{});
  }
  EXPECT_TRUE(decode_work(encode_work(work)));
  work[0].arguments.emplace_back("one more", Value{});
  EXPECT_FALSE(decode_work(encode_work(work)));
}

TEST(Work, ListsNestUpToTheLimit) {
  const auto with = [](std::size_t depth) { return Work{{"put", {{"value", nested(depth)}}}}; };
  const auto deepest = decode_work(encode_work(with(kListDepthMax)));
  ASSERT_TRUE(deepest);
  EXPECT_EQ(*deepest, with(kListDepthMax));
  for (const std::size_t depth : {kListDepthMax + 1, std::size_t{1000}}) {
    const auto work = decode_work(encode_work(with(depth)));
    ASSERT_FALSE(work);
    EXPECT_EQ(work.error().fault, Fault::invalid);
  }
}

TEST(Work, RefusesTextThatIsNotUtf8) {
  EXPECT_FALSE(decode_work(encode_work({{"get", {{"key", {std::string("\xff")}}}}})));
  EXPECT_TRUE(decode_work(encode_work({{"get", {{"key", {Bytes{"\xff"}}}}}})));
}

TEST(Work, SurvivesAnyBytes) {
  std::mt19937 random(7);
  const std::string good = encode_work(example());
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int flips = 0; flips < 3; ++flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const auto work = decode_work(bytes);
    if (!work) continue;
    ++accepted;
    const auto again = decode_work(encode_work(*work));  // what is accepted can be passed on
    ASSERT_TRUE(again);
    ASSERT_EQ(encode_work(*again), encode_work(*work));
  }
  EXPECT_GT(accepted, 0u);
}

TEST(Results, ComeBack) {
  const Results results{{}, {std::int64_t{7}}, {std::string("x")}, Value{List{true}}};
  const auto decoded = decode_results(encode_results(results));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, results);
  EXPECT_FALSE(decode_results("\x0a\x7f"));
  wire::Results no_kind;
  no_kind.add_values();
  EXPECT_FALSE(decode_results(no_kind.SerializeAsString()));
}

TEST(Value, ReadsAsAPersonWouldWriteIt) {
  EXPECT_EQ(to_text(Value{}), "null");
  EXPECT_EQ(to_text(Value{false}), "false");
  EXPECT_EQ(to_text(Value{std::int64_t{-12}}), "-12");
  EXPECT_EQ(to_text(Value{0.1}), "0.1");
  EXPECT_EQ(to_text(Value{2.0}), "2.0");
  EXPECT_EQ(to_text(Value{1e300}), "1e+300");
  EXPECT_EQ(to_text(Value{std::string("say \"hi\"\n")}), "\"say \\\"hi\\\"\\x0a\"");
  EXPECT_EQ(to_text(Value{Bytes{std::string("\0\xab", 2)}}), "{\"base64\": \"AKs=\"}");
  EXPECT_EQ(to_text(Value{List{{std::int64_t{1}}, {std::string("b")}}}), "[1, \"b\"]");
}

TEST(Value, IsMadeFromPlainValuesWithoutAnotherMeaning) {
  EXPECT_EQ(Value("a").data, Value::Data{std::string("a")});  // and not a bool
  EXPECT_EQ(Value(std::string_view("a")), Value(std::string("a")));
  EXPECT_EQ(Value(1).data, Value::Data{std::int64_t{1}});
  EXPECT_EQ(Value(0).data, Value::Data{std::int64_t{0}});  // and not a null pointer
  EXPECT_EQ(Value(4'000'000'000u).data, Value::Data{std::int64_t{4'000'000'000}});
  EXPECT_EQ(Value(true).data, Value::Data{true});
  EXPECT_EQ(Value(2.0f).data, Value::Data{2.0});
  EXPECT_EQ(Value(nullptr), Value());
  EXPECT_EQ(to_text(Value(List{"a", 1, true, nullptr})), "[\"a\", 1, true, null]");

  const List one{"a"};
  EXPECT_EQ(List{one}, one);  // a copy, and not a list of lists
  const Operation two{"insert", {{"key", "a"}, {"value", "b"}}};
  ASSERT_EQ(two.arguments.size(), 2u);
  EXPECT_EQ(*two.find("value"), Value("b"));
  const Operation zero{"add", {{"by", 0}, {"min", {}}}};
  EXPECT_EQ(*zero.find("by"), Value(0));
  EXPECT_EQ(*zero.find("min"), Value());
}

// What would be another value, or another kind of value, is not taken.
enum Colour { red };
static_assert(!std::is_constructible_v<Value, const void*>);
static_assert(!std::is_constructible_v<Value, int*>);
static_assert(!std::is_constructible_v<Value, void (*)()>);
static_assert(!std::is_constructible_v<Value, std::true_type>);
static_assert(!std::is_constructible_v<Value, Colour>);
static_assert(!std::is_constructible_v<Value, char>);
static_assert(!std::is_constructible_v<Value, char8_t>);
static_assert(!std::is_constructible_v<Value, std::uint64_t>);
static_assert(!std::is_constructible_v<Value, long double>);
static_assert(!std::is_convertible_v<List, Value>);
static_assert(std::is_nothrow_move_constructible_v<Value>);

// A receiver could not parse it, so that a sender must not send it.
TEST(Work, SaysWhichTextIsNotUtf8) {
  const Operation add{"add", {{"key", Value{std::string("k")}}, {"by", Value{std::int64_t{1}}}}};
  EXPECT_EQ(find_not_utf8({add, add}), "");
  EXPECT_EQ(find_not_utf8({add, {"\xff", {}}}), "the name of operation 1");
  EXPECT_EQ(find_not_utf8({{"put", {{"\xc2", Value{}}}}}),
            "the name of an argument of operation 0 (put)");
  const Value nested{List{1, Value{List{"\x80"}}}};
  EXPECT_EQ(find_not_utf8({{"put", {{"key", nested}}}}),
            "the value of argument 'key' of operation 0 (put)");
  EXPECT_EQ(find_not_utf8({{"put", {{"key", Value{Bytes{"\xff"}}}}}}), "");
}

}  // namespace
}  // namespace twofold
