// What a kill leaves behind. CrashPoints: at twofold-rm's own crossings, so that every moment has a
// name and one answer. Killed: from outside, at any participant.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/fixture.h"

namespace twofold::conformance {

struct Crash {
  enum class Left : std::uint8_t { nothing, in_doubt, committed };
  const char* point;
  bool rolls_back = false;  // the coordinator decides abort
  bool told_vote = false;   // it has seen the vote
  bool told_end = false;
  Left left = Left::nothing;
};
std::vector<Crash> crashes();
std::string test_name(const Crash& crash);

inline void PrintTo(const Crash& crash, std::ostream* out) {
  *out << crash.point;
}

class CrashPoints : public ::testing::TestWithParam<std::tuple<Kind, Crash>>,
                    protected ParticipantProcess {
 protected:
  CrashPoints() : ParticipantProcess(std::get<0>(GetParam())) {}
};

class Killed : public Participant {
 protected:
  // Sends `verb` on `peer`, and kills the participant: when it has answered, or `delay` after. Then
  // starts it again. The answer, if it came.
  std::optional<wire::Frame> send_and_kill(FakePeer& peer, const wire::Frame& verb,
                                           std::optional<std::chrono::microseconds> delay);
  // xid, which was to write 1 to `key`, is in doubt; ends it; or has ended. Nothing else is there.
  void expect_in_doubt(const Xid& xid, const std::string& key, bool commits);
  // In doubt: it is ended as `commits` says. Else it has ended as `committed` says.
  void expect_end(const Xid& xid, const std::string& key, bool in_doubt, bool commits,
                  bool committed);
  void expect_ended(const Xid& xid, const std::string& key, bool committed);
};

}  // namespace twofold::conformance
