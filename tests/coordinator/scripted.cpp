#include "tests/coordinator/scripted.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <variant>

#include "log/inspect.h"

namespace twofold::test {

const std::vector<Xa>& all_codes() {
  static const std::vector<Xa> codes = {
      Xa::ok,          Xa::rdonly,      Xa::retry,     Xa::heurmix,    Xa::heurrb,
      Xa::heurcom,     Xa::heurhaz,     Xa::nomigrate, Xa::rbrollback, Xa::rbcommfail,
      Xa::rbdeadlock,  Xa::rbintegrity, Xa::rbother,   Xa::rbproto,    Xa::rbtimeout,
      Xa::rbtransient, Xa::er_async,    Xa::er_rmerr,  Xa::er_nota,    Xa::er_inval,
      Xa::er_proto,    Xa::er_rmfail,   Xa::er_dupid,  Xa::er_outside, static_cast<Xa>(4711)};
  return codes;
}

std::string code_text(Xa code) {
  return code == static_cast<Xa>(4711) ? "4711" : std::string(name(code));
}

std::string calls_text(const std::vector<std::string>& calls, std::size_t from) {
  std::vector<std::pair<std::string, int>> runs;
  for (std::size_t i = from; i < calls.size(); ++i) {
    if (calls[i] == "recover" || calls[i] == "mark") continue;
    if (runs.empty() || runs.back().first != calls[i]) runs.push_back({calls[i], 0});
    ++runs.back().second;
  }
  std::string text;
  for (const auto& [call, times] : runs) {
    text += " " + call + (times > 1 ? " x" + std::to_string(times) : "");
  }
  return text;
}

std::map<std::string, std::string> kept_in(const std::filesystem::path& log) {
  const auto inspection = inspect(log);
  std::map<std::string, std::string> found;
  EXPECT_TRUE(inspection) << inspection.error().message;
  EXPECT_TRUE(verify(*inspection).empty());
  for (const InspectedRow& row : inspection->rows) {
    if (!row.row) continue;
    std::visit(
        [&](const auto& record) {
          using Record = std::decay_t<decltype(record)>;
          if constexpr (std::is_same_v<Record, CommitRecord>) found[record.gtrid] += " commit";
          if constexpr (std::is_same_v<Record, IntentRecord>) found[record.gtrid] += " intent";
          if constexpr (std::is_same_v<Record, EndRecord>) found[record.gtrid] += " end";
          if constexpr (std::is_same_v<Record, RefusalRecord>) found[record.gtrid] += " refusal";
          if constexpr (std::is_same_v<Record, HeuristicRecord>) {
            found[record.xid.gtrid] += " " + std::string(name(record.code));
          }
        },
        *row.row);
  }
  return found;
}

void expect_table(const std::string& name, const std::string& actual) {
  const std::string path = TWOFOLD_SOURCE_DIR "/tests/scripts/participant/" + name + ".txt";
  if (std::getenv("TWOFOLD_REWRITE")) std::ofstream(path) << actual;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(expected.str(), actual) << "differs from " << path;
}

}  // namespace twofold::test
