// Lines of a transactions file, and work as `twofold work` takes it: what is accepted can be
// printed as a line that means the same, and every participant can read its work.
//
// Input: the line.
#include "lab/workflows/transaction_line.h"

#include <boost/json.hpp>

#include "tests/fuzz/fuzz.h"

namespace twofold::fuzz {
namespace {

namespace json = boost::json;

json::string text_of(const std::string& text) {
  return json::string(text.data(), text.size());
}

json::value print(const Value& value) {
  struct Visitor {
    json::value operator()(std::monostate) const { return nullptr; }
    json::value operator()(bool b) const { return b; }
    json::value operator()(std::int64_t number) const { return number; }
    json::value operator()(const std::string& text) const { return text_of(text); }
    json::value operator()(const List& list) const {
      json::array out;
      for (const Value& element : list) out.push_back(print(element));
      return out;
    }
    json::value operator()(double) const { return refuse("a fraction"); }
    json::value operator()(const Bytes&) const { return refuse("bytes"); }

    static json::value refuse(std::string_view kind) {
      require(false, "a line holds what JSON can say", kind);
      return nullptr;
    }
  };
  return std::visit(Visitor{}, value.data);
}

json::array print(const Work& work) {
  json::array out;
  for (const Operation& operation : work) {
    json::object& members =
        out.emplace_back(json::object{{"op", text_of(operation.name)}}).as_object();
    for (const auto& [name, value] : operation.arguments) {
      require(!members.contains(json::string_view(name)), "an argument is there once", name);
      members.emplace(json::string_view(name), print(value));
    }
  }
  return out;
}

std::string print(const client::Transaction& transaction) {
  json::object line;
  if (!transaction.request_id.empty()) line["request_id"] = text_of(transaction.request_id);
  if (transaction.timeout.count() != 0) line["timeout_ms"] = transaction.timeout.count();
  json::array& branches = line["branches"].emplace_array();
  for (const client::Branch& branch : transaction.branches) {
    branches.push_back(json::object{{"rm", text_of(branch.rm)}, {"work", print(branch.work)}});
  }
  return json::serialize(line);
}

void check_work(const Work& work) {
  require(find_not_utf8(work).empty(), "accepted work is UTF-8");
  const Result<Work> read = decode_work(encode_work(work));
  require(read.has_value(), "a participant can read accepted work",
          read ? "" : std::string_view(read.error().message));
  require(*read == work, "a participant reads the work that was written");
}

bool same(const client::Transaction& one, const client::Transaction& other) {
  return one.request_id == other.request_id && one.timeout == other.timeout &&
         std::equal(one.branches.begin(), one.branches.end(), other.branches.begin(),
                    other.branches.end(), [](const auto& left, const auto& right) {
                      return left.rm == right.rm && left.work == right.work;
                    });
}

void check_line(std::string_view line) {
  const Result<client::Transaction> transaction = lab::parse_transaction_line(line);
  if (!transaction) return require_sentence(transaction.error());
  require(!lab::is_blank(line), "a blank line is no transaction");
  require(!transaction->branches.empty(), "an accepted line has a branch");
  for (const client::Branch& branch : transaction->branches) {
    require(!branch.rm.empty() && is_utf8(branch.rm), "an accepted branch names its participant");
    check_work(branch.work);
  }
  const std::string printed = print(*transaction);
  const Result<client::Transaction> again = lab::parse_transaction_line(printed);
  require(again && same(*again, *transaction), "a line that is printed means the same", printed);
  require(print(*again) == printed, "a line that is printed is printed the same", printed);
  const std::string twice = "{\"branches\":[{\"rm\":\"x\"}]," + printed.substr(1);
  require(lab::parse_transaction_line(twice).has_error(), "a key given twice is refused", twice);
}

void check_work_text(std::string_view text) {
  const Result<Work> work = lab::parse_work_text(text);
  if (!work) return require_sentence(work.error());
  check_work(*work);
  const std::string printed = json::serialize(print(*work));
  const Result<Work> again = lab::parse_work_text(printed);
  require(again && *again == *work, "work that is printed means the same", printed);
}

}  // namespace
}  // namespace twofold::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line = twofold::fuzz::Input(data, size).rest();
  twofold::fuzz::check_line(line);
  twofold::fuzz::check_work_text(line);
  return 0;
}
