#include <cstdlib>
#include <sstream>

#include "tests/conformance/crash_test.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/kind.h"

namespace twofold::conformance {
namespace {

constexpr const char* kResourceManager = TWOFOLD_BIN_DIR "/twofold-rm";

std::vector<std::string> hosted(const std::string& kind) {
  return {"--kind", kind, "--name", "{name}", "--listen", "{listen}", "--data", "{data}"};
}

// Keys with integers: put, get, and add to what is not there.
Kind with_store_operations(Kind kind) {
  kind.write = [](const std::string& key, std::int64_t number) {
    return Operation{"put", {{"key", Value{key}}, {"value", Value{number}}}};
  };
  kind.read = [](const std::string& key) { return Operation{"get", {{"key", Value{key}}}}; };
  kind.written = [](std::int64_t number) { return Value{number}; };
  kind.fail = [](const std::string& key) {
    return Operation{"add", {{"key", Value{key}}, {"by", Value{std::int64_t{1}}}}};
  };
  return kind;
}

Kind store() {
  Kind kind{.name = "store",
            .program = kResourceManager,
            .arguments = hosted("store"),
            .crash_points = true,
            .write = {},
            .read = {},
            .written = {},
            .fail = {}};
  kind.arguments.insert(kind.arguments.end(), {"--map-bytes", "1048576"});
  return with_store_operations(std::move(kind));
}

Kind files() {
  return {.name = "files",
          .program = kResourceManager,
          .arguments = hosted("files"),
          .crash_points = true,
          .write =
              [](const std::string& key, std::int64_t number) {
                return Operation{"publish",
                                 {{"path", Value{"a/" + key}},
                                  {"content", Value{std::to_string(number)}},
                                  {"replace", Value{true}}}};
              },
          .read =
              [](const std::string& key) {
                return Operation{"get", {{"path", Value{"a/" + key}}}};
              },
          .written = [](std::int64_t number) { return Value{std::to_string(number)}; },
          .fail =
              [](const std::string& key) {
                return Operation{"remove", {{"path", Value{"a/" + key}}}};
              }};
}

#ifdef TWOFOLD_PYTHON
Kind python() {
  Kind kind;
  kind.name = "python";
  kind.program = TWOFOLD_PYTHON;
  kind.arguments = {TWOFOLD_SOURCE_DIR "/tests/python/participant.py",
                    "--name",
                    "{name}",
                    "--listen",
                    "{listen}",
                    "--data",
                    "{data}",
                    "--wire",
                    TWOFOLD_PYTHON_WIRE};
  return with_store_operations(std::move(kind));
}
#endif

}  // namespace

std::vector<Kind> kinds() {
  std::vector<Kind> all{store(), files()};
#ifdef TWOFOLD_PYTHON
  all.push_back(python());
#endif
  if (const char* command = std::getenv("TWOFOLD_PARTICIPANT")) {
    Kind kind;
    kind.name = "yours";
    std::istringstream words(command);
    words >> kind.program;
    for (std::string word; words >> word;) kind.arguments.push_back(word);
    all.push_back(with_store_operations(std::move(kind)));
  }
  return all;
}

namespace {

std::vector<Kind> with_crash_points() {
  std::vector<Kind> some = kinds();
  std::erase_if(some, [](const Kind& kind) { return !kind.crash_points; });
  return some;
}

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, Participant, ::testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(All, Interactive, ::testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(All, Killed, ::testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(All, CrashPoints,
                         ::testing::Combine(::testing::ValuesIn(with_crash_points()),
                                            ::testing::ValuesIn(crashes())),
                         [](const auto& both) {
                           return std::get<0>(both.param).name + "_" +
                                  test_name(std::get<1>(both.param));
                         });

}  // namespace
}  // namespace twofold::conformance
