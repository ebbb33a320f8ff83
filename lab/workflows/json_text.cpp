#include "lab/workflows/json_text.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <set>
#include <string>
#include <vector>

#include "protocol/text.h"

namespace twofold::lab {
namespace {

namespace json = boost::json;
using Failed = boost::system::error_code;

// Builds the value as boost::json::parse() does, and keeps the keys of the objects that are open.
// The parts of a text come one by one: `parts_` has those of the key under way.
class Handler {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  Handler() { stack_.reset(); }
  json::value take() { return stack_.release(); }
  const std::string& twice() const { return twice_; }
  bool found_twice() const { return found_twice_; }

  bool on_document_begin(Failed&) { return true; }
  bool on_document_end(Failed&) { return true; }
  bool on_object_begin(Failed&) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t members, Failed&) {
    open_.pop_back();
    stack_.push_object(members);
    return true;
  }
  bool on_array_begin(Failed&) { return true; }
  bool on_array_end(std::size_t elements, Failed&) {
    stack_.push_array(elements);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, Failed&) {
    parts_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, Failed& failed) {
    parts_.append(part.data(), part.size());
    stack_.push_key(part);
    if (!open_.back().insert(parts_).second) {
      twice_ = parts_;
      found_twice_ = true;
      failed = json::error::syntax;
      return false;
    }
    parts_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, Failed&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, Failed&) {
    stack_.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view, Failed&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, Failed&) {
    stack_.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, json::string_view, Failed&) {
    stack_.push_uint64(number);
    return true;
  }
  bool on_double(double number, json::string_view, Failed&) {
    stack_.push_double(number);
    return true;
  }
  bool on_bool(bool truth, Failed&) {
    stack_.push_bool(truth);
    return true;
  }
  bool on_null(Failed&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, Failed&) { return true; }
  bool on_comment(json::string_view, Failed&) { return true; }

 private:
  json::value_stack stack_;
  std::vector<std::set<std::string>> open_;  // the keys of each, the innermost object last
  std::string parts_;
  std::string twice_;
  bool found_twice_ = false;
};

}  // namespace

Result<json::value> parse_json_text(std::string_view text) {
  json::basic_parser<Handler> parser{json::parse_options()};
  Failed failed;
  const auto used = parser.write_some(false, text.data(), text.size(), failed);
  if (!failed && used < text.size()) failed = json::error::extra_data;
  if (parser.handler().found_twice()) {
    return Error{Fault::invalid, "\"" + shown(parser.handler().twice()) +
                                     "\" is given twice in one object: which one counts?"};
  }
  if (failed) {
    return Error{Fault::invalid, "not valid JSON in UTF-8 (" + failed.message() + ")"};
  }
  return parser.handler().take();
}

}  // namespace twofold::lab
