// The bugs that are planted in the simulator's own copy of the cores (protocol/planted.h): each is
// one condition that a rule forbids to change.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "protocol/planted.h"

namespace twofold::sim {

struct PlantedBug {
  std::string_view name;
  int rule;
  std::string_view what;
  std::uint64_t seeds;  // it is found within so many, from 1 on
};
std::span<const PlantedBug> planted_bugs();

// At most one is on. False: there is none of that name.
bool plant(std::string_view name);

}  // namespace twofold::sim
