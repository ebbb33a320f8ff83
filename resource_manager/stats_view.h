// Fills in a StatsAnswer.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/wire.pb.h"
#include "runtime/histogram.h"

namespace twofold::resource_manager {

inline void add_number(wire::StatsAnswer& stats, const char* name, std::uint64_t value) {
  wire::StatsAnswer::Number& number = *stats.add_numbers();
  number.set_name(name);
  number.set_value(static_cast<std::int64_t>(value));
}

inline void add_text(wire::StatsAnswer& stats, const char* name, const std::string& value) {
  wire::StatsAnswer::Named& text = *stats.add_texts();
  text.set_name(name);
  text.set_value(value);
}

inline void add_room(wire::StatsAnswer& stats, bool room) {
  add_text(stats, "room", room ? "yes" : "no: branches that write are refused");
}

inline void add_histogram(wire::StatsAnswer& stats, const char* name, const Histogram& values) {
  wire::HistogramView& view = *stats.add_histograms();
  view.set_name(name);
  view.set_count(values.count());
  view.set_mean(values.mean());
  view.set_p50(values.quantile(0.5));
  view.set_p90(values.quantile(0.9));
  view.set_p99(values.quantile(0.99));
  view.set_p999(values.quantile(0.999));
  view.set_max(values.max());
}

}  // namespace twofold::resource_manager
