// An adapter's host in a test's hands.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "resource_manager/adapter.h"

namespace twofold::resource_manager {

// The engine's side: jobs run on the test's thread while it waits for the next event.
class TestHost final : public Host {
 public:
  void post(Event event) override {
    push([event = std::move(event), this]() mutable { events_.push_back(std::move(event)); });
  }
  void call(std::function<void()> job) override { push(std::move(job)); }

  // Jobs and events are taken until `happened`.
  template <class Happened>
  void run_until(Happened happened) {
    while (!happened()) {
      if (!run_one(std::chrono::seconds(20))) throw std::runtime_error("it did not happen");
    }
  }
  // Of what has come by itself; none if nothing has.
  std::optional<Event> pending() {
    while (run_one(std::chrono::milliseconds(0))) {
    }
    return take();
  }
  Event next() {
    while (events_.empty()) {
      if (!run_one(std::chrono::seconds(20))) throw std::runtime_error("no event came");
    }
    return *take();
  }
  // The next of that type; the others wait.
  template <class E>
  E next_of() {
    std::deque<Event> others;
    Event event = next();
    for (; !std::holds_alternative<E>(event); event = next()) others.push_back(std::move(event));
    events_.insert(events_.begin(), std::make_move_iterator(others.begin()),
                   std::make_move_iterator(others.end()));
    return std::get<E>(std::move(event));
  }

 private:
  void push(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    arrived_.notify_one();
  }
  bool run_one(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [&] { return !jobs_.empty(); })) return false;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    return true;
  }
  std::optional<Event> take() {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> jobs_;
  std::deque<Event> events_;
};

}  // namespace twofold::resource_manager
