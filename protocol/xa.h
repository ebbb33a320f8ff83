// X/Open XA's return codes by their names and numbers (C193 section 4.2, xa.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace twofold {

enum class Xa : std::int32_t {
  ok = 0,
  rdonly = 3,  // voted; wrote nothing; needs no phase two
  retry = 4,   // could not be done now, nothing has changed
  heurmix = 5,
  heurrb = 6,
  heurcom = 7,
  heurhaz = 8,
  nomigrate = 9,
  rbrollback = 100,  // the branch may only be rolled back: unspecified
  rbcommfail = 101,
  rbdeadlock = 102,
  rbintegrity = 103,  // a check failed: a business refusal, with its reasons beside it
  rbother = 104,
  rbproto = 105,
  rbtimeout = 106,
  rbtransient = 107,
  er_async = -2,
  er_rmerr = -3,
  er_nota = -4,  // no such branch
  er_inval = -5,
  er_proto = -6,
  er_rmfail = -7,
  er_dupid = -8,
  er_outside = -9,
};

constexpr bool is_rollback(Xa code) {
  return static_cast<std::int32_t>(code) >= 100 && static_cast<std::int32_t>(code) <= 107;
}
constexpr bool is_heuristic(Xa code) {
  return code == Xa::heurmix || code == Xa::heurrb || code == Xa::heurcom || code == Xa::heurhaz;
}
std::string_view name(Xa code);  // "XA_OK", "XAER_NOTA"; "XA_UNKNOWN" for a number that is none

}  // namespace twofold
