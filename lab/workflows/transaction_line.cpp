#include "lab/workflows/transaction_line.h"

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "lab/workflows/json_text.h"
#include "protocol/text.h"

namespace twofold::lab {
namespace {

namespace json = boost::json;

Error invalid(const std::string& where, const std::string& what) {
  return {Fault::invalid, where + ": " + what};
}

std::string member_of(const std::string& where, std::string_view member) {
  return where.empty() ? shown(member) : where + "." + shown(member);
}

std::string element_of(const std::string& where, std::size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

// {"base64": "…"}: JSON has no bytes of its own.
Result<Value> parse_bytes(const json::object& object, const std::string& where) {
  const auto* text = object.if_contains("base64");
  if (object.size() != 1 || !text || !text->is_string()) {
    return invalid(where,
                   "an object cannot be a value, but for bytes, {\"base64\": \"…\"}: use a number, "
                   "a text, true, false, null or a list");
  }
  auto bytes = base64_decode({text->get_string().data(), text->get_string().size()});
  if (!bytes) return invalid(member_of(where, "base64"), "is not base64");
  return Value{Bytes{std::move(*bytes)}};
}

// `depth`: lists that it may still nest.
Result<Value> parse_value(const json::value& value, const std::string& where,
                          std::size_t depth = kListDepthMax) {
  switch (value.kind()) {
    case json::kind::null: return Value{};
    case json::kind::bool_: return Value{value.get_bool()};
    case json::kind::int64: return Value{value.get_int64()};
    case json::kind::string: {
      const auto& text = value.get_string();
      return Value{std::string(text.data(), text.size())};
    }
    case json::kind::uint64:
    case json::kind::double_:
      return invalid(where, json::serialize(value) +
                                " is not a 64-bit integer (−9223372036854775808 to "
                                "9223372036854775807, without a fraction or exponent)");
    case json::kind::object: return parse_bytes(value.get_object(), where);
    case json::kind::array: break;
  }
  if (depth == 0) {
    return invalid(where, "lists nest deeper than " + std::to_string(kListDepthMax));
  }
  List list;
  list.reserve(value.get_array().size());
  for (const auto& element : value.get_array()) {
    auto parsed = parse_value(element, element_of(where, list.size()), depth - 1);
    if (!parsed) return parsed.error();
    list.push_back(std::move(*parsed));
  }
  return Value{std::move(list)};
}

Result<Operation> parse_operation(const json::value& value, const std::string& where) {
  const auto* object = value.if_object();
  if (!object) return invalid(where, "an operation is an object with \"op\" and its arguments");
  Operation operation;
  for (const auto& member : *object) {
    const auto key = member.key();
    const auto place = member_of(where, {key.data(), key.size()});
    if (key == "op") {
      const auto* name = member.value().if_string();
      if (!name || name->empty()) return invalid(place, "names the operation, as a text");
      operation.name.assign(name->data(), name->size());
      continue;
    }
    if (key.empty()) return invalid(where, "an argument has no name");
    if (operation.arguments.size() == kArgumentsMax) {
      return invalid(where, "more than " + std::to_string(kArgumentsMax) + " arguments");
    }
    auto argument = parse_value(member.value(), place);
    if (!argument) return argument.error();
    operation.arguments.emplace_back(std::string(key), std::move(*argument));
  }
  if (operation.name.empty()) return invalid(where, "\"op\" is missing");
  return operation;
}

Result<client::Branch> parse_branch(const json::value& value, const std::string& where) {
  const auto* object = value.if_object();
  if (!object) return invalid(where, "a branch is an object with \"rm\" and \"work\"");
  client::Branch branch;
  for (const auto& member : *object) {
    const auto key = member.key();
    const auto place = member_of(where, {key.data(), key.size()});
    if (key == "rm") {
      const auto* name = member.value().if_string();
      if (!name || name->empty()) return invalid(place, "names a resource manager, as a text");
      branch.rm.assign(name->data(), name->size());
    } else if (key == "work") {
      const auto* work = member.value().if_array();
      if (!work) return invalid(place, "is a list of operations");
      for (const auto& element : *work) {
        auto operation = parse_operation(element, element_of(place, branch.work.size()));
        if (!operation) return operation.error();
        branch.work.push_back(std::move(*operation));
      }
    } else {
      return invalid(place, "is not known here: a branch has \"rm\" and \"work\"");
    }
  }
  if (branch.rm.empty()) return invalid(where, "\"rm\" is missing");
  return branch;
}

Result<std::vector<client::Branch>> parse_branches(const json::value& value) {
  const auto* list = value.if_array();
  if (!list || list->empty()) return invalid("branches", "is a list with at least one branch");
  std::vector<client::Branch> branches;
  branches.reserve(list->size());
  for (const auto& element : *list) {
    auto branch = parse_branch(element, element_of("branches", branches.size()));
    if (!branch) return branch.error();
    branches.push_back(std::move(*branch));
  }
  return branches;
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Result<json::object> parse_json_line(std::string_view line) {
  if (line.size() > kLineBytesMax) {
    return Error{Fault::invalid, "the line is longer than " + std::to_string(kLineBytesMax) +
                                     " bytes: split the transaction"};
  }
  auto value = parse_json_text(line);
  if (!value) return value.error();
  auto* object = value->if_object();
  if (!object) return Error{Fault::invalid, "the line is JSON, but not an object {…}"};
  return std::move(*object);
}

Result<Work> parse_work_text(std::string_view text) {
  const auto parsed = parse_json_text(text);
  if (!parsed) return parsed.error();
  if (!parsed->is_array()) {
    auto operation = parse_operation(*parsed, "work");
    if (!operation) return operation.error();
    return Work{std::move(*operation)};
  }
  Work work;
  for (const json::value& element : parsed->get_array()) {
    auto operation = parse_operation(element, element_of("work", work.size()));
    if (!operation) return operation.error();
    work.push_back(std::move(*operation));
  }
  return work;
}

Result<client::Transaction> parse_transaction_line(std::string_view line) {
  auto object = parse_json_line(line);
  if (!object) return object.error();
  client::Transaction transaction;
  for (const auto& member : *object) {
    const auto key = member.key();
    const auto& value = member.value();
    if (key == "request_id") {
      const auto* id = value.if_string();
      if (!id || id->empty() || id->size() > kRequestIdBytesMax) {
        return invalid("request_id", "is a text of 1 to 128 bytes");
      }
      transaction.request_id.assign(id->data(), id->size());
    } else if (key == "timeout_ms") {
      const auto* timeout = value.if_int64();
      if (!timeout || *timeout < 1 || *timeout > std::numeric_limits<std::uint32_t>::max()) {
        return invalid("timeout_ms", "is a number of milliseconds from 1 to 4294967295");
      }
      transaction.timeout = std::chrono::milliseconds(*timeout);
    } else if (key == "branches") {
      auto branches = parse_branches(value);
      if (!branches) return branches.error();
      transaction.branches = std::move(*branches);
    } else {
      return invalid(
          shown({key.data(), key.size()}),
          "is not known here: a line has \"request_id\", \"timeout_ms\" and \"branches\"");
    }
  }
  if (transaction.branches.empty()) return Error{Fault::invalid, "\"branches\" is missing"};
  return transaction;
}

}  // namespace twofold::lab
