// The demo's customers: orders running on a thread of their own while the story goes on.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>

#include "lab/workflows/order.h"
#include "protocol/connection.h"

namespace twofold::cli {

class RunningOrders {
 public:
  RunningOrders(const Address& coordinator, const std::filesystem::path& file);
  ~RunningOrders();  // waits for the end

  void wait_for(std::uint64_t told);  // until so many are decided, or all
  void wait_for_end();                // until all have ended everywhere
  std::uint64_t told();
  std::uint64_t of(lab::OrderClass order_class);
  std::uint64_t heuristic();  // orders of which a branch ended otherwise
  std::uint64_t retried();    // orders that took more than one attempt

 private:
  void run(const Address& coordinator, const std::filesystem::path& file);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::uint64_t, lab::kOrderClasses> counts_{};
  std::uint64_t told_ = 0;
  std::uint64_t heuristic_ = 0;
  std::uint64_t retried_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace twofold::cli
