// What a person or a tool may ask a resource manager for, answered from what the engine
// knows: scan, locks, in doubt, stats. Works while no coordinator is there.
#pragma once

#include "protocol/result.h"
#include "protocol/wire.pb.h"
#include "resource_manager/engine.h"

namespace twofold::resource_manager {

wire::LocksAnswer locks_answer(const Branches& branches, const wire::Locks& question, Time now);
wire::InDoubtAnswer in_doubt_answer(const Branches& branches, Time now);
wire::StatsAnswer stats_answer(const Engine& engine, const Adapter& adapter);

}  // namespace twofold::resource_manager
