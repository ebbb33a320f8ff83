// Bugs that the simulator has to find, each a condition changed in a deciding core: a test of the
// tests (docs/testing.md lists them). Only the simulator's own copy of the cores is compiled with
// them (TWOFOLD_PLANTED_BUGS), and there at most one is on; everywhere else this is `false`.
#pragma once

#ifdef TWOFOLD_PLANTED_BUGS
#include <string_view>

namespace twofold {
bool planted(std::string_view bug);  // tests/sim/planted.h
}
#define TWOFOLD_PLANTED(bug) (::twofold::planted(#bug))
#else
#define TWOFOLD_PLANTED(bug) false
#endif
