#include "coordinator/statistics.h"

namespace twofold::coordinator {

void add_number(wire::StatsAnswer& stats, const std::string& name, std::uint64_t value) {
  wire::StatsAnswer::Number& number = *stats.add_numbers();
  number.set_name(name);
  number.set_value(static_cast<std::int64_t>(value));
}

void add_text(wire::StatsAnswer& stats, const std::string& name, const std::string& value) {
  wire::StatsAnswer::Named& text = *stats.add_texts();
  text.set_name(name);
  text.set_value(value);
}

void add_histogram(wire::StatsAnswer& stats, const std::string& name, const Histogram& histogram) {
  wire::HistogramView& view = *stats.add_histograms();
  view.set_name(name);
  view.set_count(histogram.count());
  view.set_mean(histogram.mean());
  view.set_p50(histogram.quantile(0.5));
  view.set_p90(histogram.quantile(0.9));
  view.set_p99(histogram.quantile(0.99));
  view.set_p999(histogram.quantile(0.999));
  view.set_max(histogram.max());
}

void add_counts(wire::StatsAnswer& stats, const Counts& counts) {
  add_number(stats, "submitted", counts.submitted);
  add_number(stats, "committed", counts.committed);
  add_number(stats, "aborted", counts.aborted);
  add_number(stats, "refused", counts.refused);
  add_number(stats, "rejected", counts.rejected);
  add_number(stats, "live", counts.live);
  add_number(stats, "outcomes", counts.outcomes);
  add_number(stats, "heuristics", counts.heuristics);
  add_number(stats, "alarms", counts.alarms);
  add_number(stats, "recovered", counts.recovered);
  add_number(stats, "one_phase", counts.one_phase);
  add_number(stats, "read_only", counts.read_only);
  add_number(stats, "deadlocks", counts.deadlocks);
  add_number(stats, "orphans_rolled_back", counts.orphans_rolled_back);
}

void add_traffic(wire::StatsAnswer& stats, const std::string& prefix,
                 const Connection::Counters& traffic) {
  add_number(stats, prefix + ".frames_in", traffic.frames_in);
  add_number(stats, prefix + ".frames_out", traffic.frames_out);
  add_number(stats, prefix + ".bytes_in", traffic.bytes_in);
  add_number(stats, prefix + ".bytes_out", traffic.bytes_out);
  add_number(stats, prefix + ".reads", traffic.reads);
  add_number(stats, prefix + ".writes", traffic.writes);
}

void add(Connection::Counters& sum, const Connection::Counters& more) {
  sum.frames_in += more.frames_in;
  sum.frames_out += more.frames_out;
  sum.bytes_in += more.bytes_in;
  sum.bytes_out += more.bytes_out;
  sum.reads += more.reads;
  sum.writes += more.writes;
}

}  // namespace twofold::coordinator
