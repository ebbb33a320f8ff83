// What happens in a world, in the words of the golden scripts (tests/scripts/README.md).
#pragma once

#include <string>

#include "coordinator/core/coordinator.h"
#include "resource_manager/core/events.h"

namespace twofold::sim {

std::string describe(const Xid& xid);  // "main:1.17/0@payments"
std::string describe(const resource_manager::Event& event);
std::string describe(const resource_manager::Effect& effect);
std::string describe(const coordinator::Options& options, const coordinator::Event& event);
std::string describe(const coordinator::Options& options, const coordinator::Effect& effect);
std::string describe(const Outcome& outcome);

}  // namespace twofold::sim
