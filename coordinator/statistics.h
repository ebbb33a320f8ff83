// Small helpers that put numbers, texts and histograms into a StatsAnswer.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/coordinator.h"
#include "protocol/connection.h"
#include "runtime/histogram.h"

namespace twofold::coordinator {

void add_number(wire::StatsAnswer& stats, const std::string& name, std::uint64_t value);
void add_text(wire::StatsAnswer& stats, const std::string& name, const std::string& value);
void add_histogram(wire::StatsAnswer& stats, const std::string& name, const Histogram& histogram);

// One number for each of the core's counts.
void add_counts(wire::StatsAnswer& stats, const Counts& counts);
// PREFIX.frames_in and so on.
void add_traffic(wire::StatsAnswer& stats, const std::string& prefix,
                 const Connection::Counters& traffic);
void add(Connection::Counters& sum, const Connection::Counters& more);

}  // namespace twofold::coordinator
