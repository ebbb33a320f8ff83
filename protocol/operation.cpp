#include "protocol/operation.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "protocol/check.h"
#include "protocol/frame.h"
#include "protocol/text.h"
#include "protocol/utf8.h"
#include "protocol/wire.pb.h"

namespace twofold {
namespace {

void append_hex(std::string_view bytes, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char byte : bytes) {
    out.push_back(kHex[static_cast<unsigned char>(byte) >> 4]);
    out.push_back(kHex[static_cast<unsigned char>(byte) & 15]);
  }
}

void append_quoted(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      out += "\\x";
      append_hex({&c, 1}, out);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

void append_real(double real, std::string& out) {
  std::array<char, 32> digits;
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), real);
  const std::string_view text(digits.data(), static_cast<std::size_t>(written.ptr - digits.data()));
  out += text;
  if (text.find_first_not_of("-0123456789") == std::string_view::npos) out += ".0";
}

void append_text(const Value& value, std::string& out) {
  struct Visitor {
    std::string& out;
    void operator()(std::monostate) const { out += "null"; }
    void operator()(bool b) const { out += b ? "true" : "false"; }
    void operator()(std::int64_t number) const { out += std::to_string(number); }
    void operator()(double real) const { append_real(real, out); }
    void operator()(const std::string& text) const { append_quoted(text, out); }
    void operator()(const Bytes& bytes) const {
      out += "{\"base64\": \"" + base64_encode(bytes.value) + "\"}";
    }
    void operator()(const List& list) const {
      out.push_back('[');
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (i > 0) out += ", ";
        append_text(list[i], out);
      }
      out.push_back(']');
    }
  };
  std::visit(Visitor{out}, value.data);
}

void encode_value(const Value& value, wire::Value& out) {
  struct Visitor {
    wire::Value& out;
    void operator()(std::monostate) const { out.set_null(true); }
    void operator()(bool b) const { out.set_boolean(b); }
    void operator()(std::int64_t number) const { out.set_integer(number); }
    void operator()(double real) const { out.set_real(real); }
    void operator()(const std::string& text) const { out.set_text(text); }
    void operator()(const Bytes& bytes) const { out.set_raw(bytes.value); }
    void operator()(const List& list) const {
      wire::ValueList& values = *out.mutable_list();
      for (const Value& value : list) encode_value(value, *values.add_values());
    }
  };
  std::visit(Visitor{out}, value.data);
}

// What is wrong with the value; empty: nothing. `depth`: lists that it may still nest.
std::string decode_value(wire::Value& in, std::size_t depth, Value& out) {
  switch (in.kind_case()) {
    case wire::Value::kNull: out.data = std::monostate(); return {};
    case wire::Value::kBoolean: out.data = in.boolean(); return {};
    case wire::Value::kInteger: out.data = std::int64_t{in.integer()}; return {};
    case wire::Value::kReal: out.data = in.real(); return {};
    case wire::Value::kText: out.data = std::move(*in.mutable_text()); return {};
    case wire::Value::kRaw: out.data = Bytes{std::move(*in.mutable_raw())}; return {};
    case wire::Value::kList: break;
    case wire::Value::KIND_NOT_SET: return "a value of a kind that is not known here";
  }
  if (depth == 0) return "lists nested deeper than " + std::to_string(kListDepthMax);
  List& list = out.data.emplace<List>(static_cast<std::size_t>(in.list().values_size()));
  for (int i = 0; i < in.list().values_size(); ++i) {
    std::string wrong = decode_value(*in.mutable_list()->mutable_values(i), depth - 1,
                                     list[static_cast<std::size_t>(i)]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string decode_operation(wire::Operation& in, Operation& out) {
  if (in.name().empty()) return "it has no name";
  out.name = std::move(*in.mutable_name());
  if (static_cast<std::size_t>(in.arguments_size()) > kArgumentsMax) {
    return "more than " + std::to_string(kArgumentsMax) + " arguments";
  }
  out.arguments.reserve(static_cast<std::size_t>(in.arguments_size()));
  for (wire::Argument& argument : *in.mutable_arguments()) {
    if (argument.name().empty()) return "an argument has no name";
    if (out.find(argument.name()))
      return "argument '" + shown(argument.name()) + "' is given twice";
    auto& [name, value] = out.arguments.emplace_back();
    name = std::move(*argument.mutable_name());
    std::string wrong = decode_value(*argument.mutable_value(), kListDepthMax, value);
    if (!wrong.empty()) return "argument '" + shown(name) + "': " + wrong;
  }
  return {};
}

bool texts_are_utf8(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return is_utf8(*text);
  const auto* list = std::get_if<List>(&value.data);
  return !list || std::all_of(list->begin(), list->end(), texts_are_utf8);
}

template <class Message>
std::string serialise(const Message& message) {
  std::string out;
  TWOFOLD_CHECK(message.SerializeToString(&out));  // fails beyond 2 GiB only
  return out;
}

Error malformed(const char* what) {
  return {Fault::invalid,
          std::string("not ") + what +
              ": the bytes do not parse, a text is not UTF-8, or lists nest too deep"};
}

}  // namespace

std::string find_not_utf8(const Work& work) {
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Operation& operation = work[i];
    std::string where = "operation " + std::to_string(i);
    if (!is_utf8(operation.name)) return "the name of " + where;
    where += " (" + shown(operation.name) + ")";
    for (const auto& [name, value] : operation.arguments) {
      if (!is_utf8(name)) return "the name of an argument of " + where;
      if (!texts_are_utf8(value)) return "the value of argument '" + shown(name) + "' of " + where;
    }
  }
  return {};
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(value, out);
  return out;
}

const Value* Operation::find(std::string_view argument) const {
  for (const auto& [argument_name, value] : arguments) {
    if (argument_name == argument) return &value;
  }
  return nullptr;
}

std::string encode_work(const Work& work) {
  google::protobuf::Arena arena;
  auto& message = *google::protobuf::Arena::CreateMessage<wire::Work>(&arena);
  for (const Operation& operation : work) {
    wire::Operation& out = *message.add_operations();
    out.set_name(operation.name);
    for (const auto& [name, value] : operation.arguments) {
      wire::Argument& argument = *out.add_arguments();
      argument.set_name(name);
      encode_value(value, *argument.mutable_value());
    }
  }
  return serialise(message);
}

Result<Work> decode_work(std::string_view bytes) {
  google::protobuf::Arena arena;
  auto& message = *google::protobuf::Arena::CreateMessage<wire::Work>(&arena);
  if (!parse_message(bytes, message)) return malformed("work");
  Work work(static_cast<std::size_t>(message.operations_size()));
  for (std::size_t i = 0; i < work.size(); ++i) {
    wire::Operation& operation = *message.mutable_operations(static_cast<int>(i));
    std::string wrong = decode_operation(operation, work[i]);
    if (!wrong.empty()) {
      return Error{Fault::invalid, "operation " + std::to_string(i) + " (" + shown(work[i].name) +
                                       ") cannot be understood: " + wrong};
    }
  }
  return work;
}

std::string encode_results(const Results& results) {
  google::protobuf::Arena arena;
  auto& message = *google::protobuf::Arena::CreateMessage<wire::Results>(&arena);
  for (const Value& value : results) encode_value(value, *message.add_values());
  return serialise(message);
}

Result<Results> decode_results(std::string_view bytes) {
  google::protobuf::Arena arena;
  auto& message = *google::protobuf::Arena::CreateMessage<wire::Results>(&arena);
  if (!parse_message(bytes, message)) return malformed("results");
  Results results(static_cast<std::size_t>(message.values_size()));
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::string wrong =
        decode_value(*message.mutable_values(static_cast<int>(i)), kListDepthMax, results[i]);
    if (!wrong.empty()) {
      return Error{Fault::invalid,
                   "result " + std::to_string(i) + " cannot be understood: " + wrong};
    }
  }
  return results;
}

}  // namespace twofold
