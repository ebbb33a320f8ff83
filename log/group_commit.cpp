#include "log/group_commit.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "protocol/check.h"

namespace twofold {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t bytes_of(const Write& write) {
  std::size_t bytes = 0;
  for (const auto& mutation : write.mutations) bytes += mutation.key.size() + mutation.value.size();
  return bytes;
}

}  // namespace

struct GroupCommit::State {
  struct Queued {
    Write write;
    Clock::time_point due;  // when it is written without company
  };
  static constexpr auto kAtOnce = Clock::time_point::min();
  static constexpr auto kNever = Clock::time_point::max();

  State(GroupTarget& group_target, GroupCommitOptions group_options,
        std::function<void(GroupResult)> on_done)
      : target(group_target),
        options(group_options),
        done(std::move(on_done)),
        group(target.last_group()),
        limit(options.group_writes_max) {}

  GroupTarget& target;
  const GroupCommitOptions options;
  const std::function<void(GroupResult)> done;

  mutable std::mutex mutex;
  std::condition_variable work;  // there may be something for the writer to do
  std::condition_variable idle;  // the writer has told a group, or found no room
  std::deque<Queued> queue;
  Clock::time_point due = kNever;  // the earliest in the queue
  std::uint64_t in_flight = 0;     // taken from the queue, not told yet
  std::chrono::nanoseconds sync = std::chrono::milliseconds{1};  // how long the last group took
  bool hurry = false;                                            // somebody drains
  bool stopping = false;
  int refusals = 0;  // while somebody drains

  // The writer's own.
  std::uint64_t group;  // the last durable one
  std::size_t limit;    // halved with each refusal: a smaller group may find room
  bool full = false;
  Clock::time_point retry_at{};

  std::thread writer;

  void run();
  Clock::time_point due_of(Urgency urgency) const;
  void enqueue(Write write);
  void find_due();
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  std::vector<Write> take();
  void write(std::vector<Write> writes);
  void succeeded(std::vector<Write>& writes, GroupResult& result);
  void refused(std::vector<Write>& writes, GroupResult& result);
  bool gave_up() const { return refusals >= kLastTries; }
};

void GroupCommit::State::run() {
  std::unique_lock lock(mutex);
  while (wait_for_work(lock)) {
    auto writes = take();
    lock.unlock();
    write(std::move(writes));
    lock.lock();
  }
}

// True: a group is to be written, perhaps an empty one that looks for room. False: the end.
bool GroupCommit::State::wait_for_work(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (stopping && (queue.empty() || gave_up())) return false;
    std::optional<Clock::time_point> wake;
    if (full) {
      wake = retry_at;
    } else if (!queue.empty()) {
      wake = hurry ? kAtOnce : due;
    }
    if (!wake) {
      work.wait(lock);
    } else if (*wake <= Clock::now()) {
      return true;
    } else {
      work.wait_until(lock, *wake);
    }
  }
}

Clock::time_point GroupCommit::State::due_of(Urgency urgency) const {
  switch (urgency) {
    case Urgency::now: return kAtOnce;
    case Urgency::soon:
      return Clock::now() + std::min<std::chrono::nanoseconds>(sync, options.lazy_flush);
    case Urgency::lazy: return Clock::now() + options.lazy_flush;
  }
  return kAtOnce;
}

void GroupCommit::State::enqueue(Write write) {
  const auto when = due_of(write.urgency);
  due = std::min(due, when);
  queue.push_back({std::move(write), when});
}

// After the queue has lost some. What is left is seldom long, or begins with what is due at once.
void GroupCommit::State::find_due() {
  due = kNever;
  for (auto at = queue.begin(); at != queue.end() && due != kAtOnce; ++at) {
    due = std::min(due, at->due);
  }
}

std::vector<Write> GroupCommit::State::take() {
  std::vector<Write> writes;
  std::size_t bytes = 0;
  while (!queue.empty() && writes.size() < limit) {
    bytes += bytes_of(queue.front().write);
    if (!writes.empty() && bytes > options.group_bytes_max) break;
    writes.push_back(std::move(queue.front().write));
    queue.pop_front();
  }
  find_due();
  in_flight = writes.size();
  return writes;
}

void GroupCommit::State::write(std::vector<Write> writes) {
  std::vector<const Write*> pointers;
  pointers.reserve(writes.size());
  for (const auto& write : writes) pointers.push_back(&write);
  GroupResult result;
  result.group = group + 1;
  const auto start = Clock::now();
  const auto applied = target.apply(result.group, pointers);
  result.sync = Clock::now() - start;
  result.used_fraction = target.used_fraction();
  const bool was_full = full;
  const bool probe = writes.empty();
  if (applied == GroupTarget::Applied::durable) {
    succeeded(writes, result);
  } else {
    refused(writes, result);
  }
  const auto took = result.sync;
  const bool news = full != was_full || !result.refused.empty() || (!full && !probe);
  if (news) done(std::move(result));
  std::lock_guard lock(mutex);
  sync = took;
  in_flight = 0;
  idle.notify_all();
}

void GroupCommit::State::succeeded(std::vector<Write>& writes, GroupResult& result) {
  group = result.group;
  limit = options.group_writes_max;
  full = false;
  for (const auto& write : writes) {
    if (write.ticket != 0) result.durable.push_back(write.ticket);
  }
  std::lock_guard lock(mutex);
  refusals = 0;
}

// What must be written goes back to the head of the queue. What may be refused is, behind it as
// well: it could only be written after what found no room.
void GroupCommit::State::refused(std::vector<Write>& writes, GroupResult& result) {
  full = result.full = true;
  limit = std::max<std::size_t>(1, writes.size() / 2);
  retry_at = Clock::now() + options.full_retry;
  std::deque<Queued> kept;
  auto sort_out = [&](Write& write, Clock::time_point when) {
    if (!write.refusable) {
      kept.push_back({std::move(write), when});
    } else if (write.ticket != 0) {
      result.refused.push_back(write.ticket);
    }
  };
  for (auto& write : writes) sort_out(write, kAtOnce);
  std::lock_guard lock(mutex);
  for (auto& queued : queue) sort_out(queued.write, queued.due);
  queue = std::move(kept);
  find_due();
  in_flight = result.refused.size();
  if (hurry || stopping) ++refusals;
}

GroupCommit::GroupCommit(GroupTarget& target, GroupCommitOptions options,
                         std::function<void(GroupResult)> done) {
  TWOFOLD_CHECK(options.group_writes_max > 0);
  state_ = std::make_unique<State>(target, options, std::move(done));
  state_->writer = std::thread([state = state_.get()] { state->run(); });
}

GroupCommit::~GroupCommit() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = state_->hurry = true;
    state_->refusals = 0;
  }
  state_->work.notify_one();
  state_->writer.join();
}

void GroupCommit::submit(Write write) {
  {
    std::lock_guard lock(state_->mutex);
    state_->enqueue(std::move(write));
  }
  state_->work.notify_one();
}

void GroupCommit::submit(std::vector<Write> writes) {
  if (writes.empty()) return;
  {
    std::lock_guard lock(state_->mutex);
    for (auto& write : writes) state_->enqueue(std::move(write));
  }
  state_->work.notify_one();
}

bool GroupCommit::drain() {
  std::unique_lock lock(state_->mutex);
  state_->hurry = true;
  state_->refusals = 0;
  state_->work.notify_one();
  const auto told = [&] { return state_->queue.empty() && state_->in_flight == 0; };
  state_->idle.wait(lock, [&] { return told() || (state_->gave_up() && state_->in_flight == 0); });
  state_->hurry = false;
  return told();
}

std::uint64_t GroupCommit::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->queue.size() + state_->in_flight;
}

}  // namespace twofold
