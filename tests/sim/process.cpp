#include "tests/sim/process.h"

namespace twofold::sim {

void Surroundings::note(const std::string& who, const std::function<std::string()>& what) {
  if (!trace) return;
  const auto us = (schedule.now() - Time{std::chrono::seconds{1}}).count();
  std::string time = std::to_string(us / 1000) + "." + std::to_string(1000 + us % 1000).substr(1);
  trace->push_back(time + " " + who + " " + what());
}

void Process::born() {
  alive_ = true;
  ++life_;
  armed_.reset();
  skew_ = Duration{static_cast<std::int64_t>(world_.random.below(10'000'000'000))};
}

void Process::crash(bool power) {
  if (!alive_) return;
  world_.note(name_, [&] { return power ? "! loses power" : "! is killed"; });
  alive_ = false;
  ++life_;
  crossing_ = 0;
  died(power);
}

bool Process::crosses() {
  if (crossing_ == 0 || --crossing_ > 0) return false;
  crash(power_);
  return true;
}

void Process::drop(const std::shared_ptr<Connection>& connection, int end, bool power) const {
  if (!connection) return;
  connection->on_closed(end, nullptr);
  power ? connection->vanish(end) : connection->close(end);
}

void Process::after(Duration pause, std::function<void()> what) {
  world_.schedule.after(pause, [this, life = life_, what = std::move(what)] {
    if (life == life_) what();
  });
}

void Process::tick_at(std::optional<Time> due, std::function<void()> tick) {
  if (!due || (armed_ && *armed_ <= *due)) return;
  armed_ = due;
  // Timers are late, never early.
  const Time at = std::max(*due - skew_, world_.schedule.now()) + world_.random.about(Duration{20});
  world_.schedule.at(at, [this, life = life_, due, tick = std::move(tick)] {
    if (life != life_ || armed_ != due) return;
    armed_.reset();
    tick();
  });
}

}  // namespace twofold::sim
