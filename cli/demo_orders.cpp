#include "cli/demo_orders.h"

#include <boost/asio/io_context.hpp>

#include "client/client.h"
#include "lab/workflows/runner.h"

namespace twofold::cli {

RunningOrders::RunningOrders(const Address& coordinator, const std::filesystem::path& file)
    : thread_([this, coordinator, file] { run(coordinator, file); }) {}

RunningOrders::~RunningOrders() {
  thread_.join();
}

void RunningOrders::run(const Address& coordinator, const std::filesystem::path& file) {
  boost::asio::io_context io{1};
  client::Options options;
  options.coordinator = coordinator;
  options.name = "demo";
  options.retries = 100;
  options.retry_max = std::chrono::milliseconds{200};
  client::AsyncClient client(io, options);
  const auto turn = [&io] {
    if (io.run_one() == 0) io.restart();
  };
  while (!client.connected()) turn();
  bool ended = false;
  if (auto reader = lab::LineReader::open(io, file)) {
    lab::Runner runner(io, client, **reader, lab::Run::make(client.known()), {},
                       {[](std::string_view line) -> Result<client::Transaction> {
                          auto order = lab::parse_order(line);
                          if (!order) return order.error();
                          return lab::to_transaction(*order);
                        },
                        [this](const lab::LineResult& result) {
                          const std::lock_guard lock(mutex_);
                          ++counts_[static_cast<std::size_t>(lab::classify(result.outcome))];
                          ++told_;
                          retried_ += result.attempts > 1 ? 1 : 0;
                          changed_.notify_all();
                        },
                        [&ended] { ended = true; },
                        [this](const lab::LineResult&) {
                          const std::lock_guard lock(mutex_);
                          ++heuristic_;
                        }});
    runner.start();
    while (!ended) turn();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void RunningOrders::wait_for(std::uint64_t told) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || told_ >= told; });
}

void RunningOrders::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_; });
}

std::uint64_t RunningOrders::told() {
  const std::lock_guard lock(mutex_);
  return told_;
}

std::uint64_t RunningOrders::of(lab::OrderClass order_class) {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<std::size_t>(order_class)];
}

std::uint64_t RunningOrders::heuristic() {
  const std::lock_guard lock(mutex_);
  return heuristic_;
}

std::uint64_t RunningOrders::retried() {
  const std::lock_guard lock(mutex_);
  return retried_;
}

}  // namespace twofold::cli
