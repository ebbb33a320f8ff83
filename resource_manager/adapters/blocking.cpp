#include "resource_manager/adapters/blocking.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/check.h"
#include "resource_manager/stats_view.h"

namespace twofold::resource_manager {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLastTries = 5;

// Writes, one at a time, in order, and work that follows them.
class Pool {
 public:
  struct OrderedJob {
    std::function<Written()> attempt;
    std::function<void()> done;
    std::function<void()> refused;  // none: it must be written
    std::uint64_t number = 0;       // in_order()'s
  };

  // `on_room` tells when must-write jobs find no room any more, and when they do again.
  Pool(BlockingOptions options, std::function<void(bool)> on_room)
      : options_(options), on_room_(std::move(on_room)) {
    for (std::size_t i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  }
  ~Pool() { TWOFOLD_CHECK(threads_.empty()); }
  Pool(const Pool&) = delete;

  void in_order(OrderedJob job) {
    std::lock_guard lock(mutex_);
    job.number = ++asked_;
    ordered_.push_back(std::move(job));
    changed_.notify_one();
  }
  // Once all ordered jobs that were asked for before it have ended.
  void behind_writes(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    behind_.push_back({asked_, std::move(job)});
    changed_.notify_one();
  }
  void at_once(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    at_once_.push_back(std::move(job));
    changed_.notify_one();
  }

  // Does all that was asked for. False: a write found no room to the last, and what had to come
  // after it was not done.
  bool stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return ordered_.empty();
  }
  bool full() const {
    std::lock_guard lock(mutex_);
    return full_;
  }

 private:
  struct Behind {
    std::uint64_t after = 0;
    std::function<void()> job;
  };

  // All ordered jobs up to this one have ended.
  std::uint64_t ended() const {
    if (writing_ != 0) return writing_ - 1;
    return ordered_.empty() ? asked_ : ordered_.front().number - 1;
  }
  bool may_write() const {
    return writing_ == 0 && !ordered_.empty() && !given_up_ && Clock::now() >= not_before_;
  }
  bool may_follow() const { return !behind_.empty() && behind_.front().after <= ended(); }
  bool all_done() const {
    if (!stopping_ || writing_ != 0 || !at_once_.empty()) return false;
    return given_up_ || (ordered_.empty() && behind_.empty());
  }

  template <class Queue>
  static auto take(Queue& queue) {
    auto front = std::move(queue.front());
    queue.pop_front();
    return front;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      if (may_write()) {
        write_one(lock);
      } else if (!at_once_.empty()) {
        do_one(lock, take(at_once_));
      } else if (may_follow()) {
        do_one(lock, take(behind_).job);
      } else if (all_done()) {
        changed_.notify_all();
        return;
      } else if (writing_ == 0 && !ordered_.empty() && !given_up_) {
        changed_.wait_until(lock, not_before_);
      } else {
        changed_.wait(lock);
      }
    }
  }

  void do_one(std::unique_lock<std::mutex>& lock, std::function<void()> job) {
    lock.unlock();
    job();
    lock.lock();
  }

  void write_one(std::unique_lock<std::mutex>& lock) {
    OrderedJob job = take(ordered_);
    writing_ = job.number;
    lock.unlock();
    const Written written = job.attempt();
    // Told before the next one begins, so that completions come in the order of the writes.
    if (written == Written::durable) job.done();
    if (written == Written::refused) {
      TWOFOLD_CHECK(job.refused);
      job.refused();
    }
    lock.lock();
    writing_ = 0;
    if (written == Written::no_room) {
      ordered_.push_front(std::move(job));
      found_no_room();
    } else if (written == Written::durable) {
      tell_room(true);
    }
    changed_.notify_all();
  }

  // Nothing is written before that job, so what may be refused need not wait for room.
  void found_no_room() {
    not_before_ = Clock::now() + options_.full_retry;
    tell_room(false);
    std::deque<OrderedJob> kept;
    for (OrderedJob& job : ordered_) {
      if (job.refused && !kept.empty()) {
        job.refused();
      } else {
        kept.push_back(std::move(job));
      }
    }
    ordered_ = std::move(kept);
    if (stopping_ && ++last_tries_ >= kLastTries) given_up_ = true;
  }

  void tell_room(bool room) {
    if (full_ != room) return;
    full_ = !room;
    on_room_(room);
  }

  const BlockingOptions options_;
  const std::function<void(bool)> on_room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OrderedJob> ordered_;
  std::deque<Behind> behind_;
  std::deque<std::function<void()>> at_once_;
  std::uint64_t asked_ = 0;    // ordered jobs, ever
  std::uint64_t writing_ = 0;  // the number of the job that is under way
  bool full_ = false;
  bool stopping_ = false;
  bool given_up_ = false;
  int last_tries_ = 0;
  Clock::time_point not_before_{};
  std::vector<std::thread> threads_;
};

class BlockingAdapter final : public Adapter {
 public:
  BlockingAdapter(std::unique_ptr<BlockingDriver> driver, BlockingOptions options)
      : driver_(std::move(driver)), options_(options) {}
  ~BlockingAdapter() override { stop(); }

  std::uint64_t store_id() const override { return driver_->store_id(); }
  Recovered recover(Time now) override { return driver_->recover(now); }
  void attach(Host& host) override {
    TWOFOLD_CHECK(host_ == nullptr);
    host_ = &host;
    pool_.emplace(options_, [this](bool room) { host_->post(SpaceChanged{room}); });
  }
  bool stop() override {
    if (!pool_) return true;
    flush();
    const bool written = pool_->stop();
    pool_.reset();
    return written;
  }

  Plan plan(std::string_view work) const override { return driver_->plan(work); }
  void run(const Run& effect) override {
    outbox_.push_back([this, effect](Pool& pool) {
      pool.behind_writes([this, effect] { host_->post(driver_->run(effect)); });
    });
  }
  void discard(const Discard& effect) override {
    outbox_.push_back([this, effect](Pool& pool) {
      pool.behind_writes([this, effect] { driver_->discard(effect); });
    });
  }
  void persist(PersistPrepare effect) override {
    write(effect.ticket, true,
          [this, effect = std::move(effect)] { return driver_->prepare(effect); });
  }
  void persist(PersistCommit effect) override {
    write(effect.ticket, effect.one_phase,
          [this, effect = std::move(effect)] { return driver_->commit(effect); });
  }
  void persist(PersistRollback effect) override {
    write(effect.ticket, false,
          [this, effect = std::move(effect)] { return driver_->roll_back(effect); });
  }
  void persist(PersistNode effect) override {
    write(effect.ticket, false,
          [this, effect = std::move(effect)] { return driver_->record(effect); });
  }
  void flush() override {
    const std::vector<std::function<void(Pool&)>> outbox = std::exchange(outbox_, {});
    if (!pool_) return;
    for (const auto& hand_over : outbox) hand_over(*pool_);
  }

  void evidence(const Xid& xid, std::function<void(Evidence)> done) override {
    if (!pool_) return;
    pool_->at_once([this, xid, done = std::move(done)] {
      host_->call([done, found = driver_->evidence(xid)] { done(found); });
    });
  }
  void scan(const wire::Scan& scan, std::uint64_t bytes_max,
            std::function<void(Result<wire::ScanAnswer>)> done) override;
  void add_stats(wire::StatsAnswer& stats) const override {
    driver_->add_stats(stats);
    add_room(stats, !pool_ || !pool_->full());
  }

 private:
  void write(std::uint64_t ticket, bool refusable, std::function<Written()> attempt) {
    Pool::OrderedJob job{
        std::move(attempt), [this, ticket] { host_->post(Persisted{ticket}); }, {}};
    if (refusable) job.refused = [this, ticket] { host_->post(Refused{ticket}); };
    outbox_.push_back([job = std::move(job)](Pool& pool) { pool.in_order(job); });
  }

  const std::unique_ptr<BlockingDriver> driver_;
  const BlockingOptions options_;
  Host* host_ = nullptr;
  std::vector<std::function<void(Pool&)>> outbox_;  // since the last flush(), in order
  std::optional<Pool> pool_;                        // last: its threads call the driver
};

// Between two writes, so that it shows whole branches.
void BlockingAdapter::scan(const wire::Scan& scan, std::uint64_t bytes_max,
                           std::function<void(Result<wire::ScanAnswer>)> done) {
  const auto tell = [this, done = std::move(done)](Result<wire::ScanAnswer> answer) {
    host_->call([done, answer = std::move(answer)] { done(answer); });
  };
  Pool::OrderedJob job;
  job.attempt = [this, scan, bytes_max, tell] {
    tell(driver_->scan(scan, bytes_max));
    return Written::durable;
  };
  job.done = [] {};
  job.refused = [tell] {
    tell(Error{Fault::full,
               "a commit waits for room on the disk, and may be half done: make room first"});
  };
  outbox_.push_back([job = std::move(job)](Pool& pool) { pool.in_order(job); });
}

}  // namespace

std::unique_ptr<Adapter> run_on_pool(std::unique_ptr<BlockingDriver> driver,
                                     BlockingOptions options) {
  return std::make_unique<BlockingAdapter>(std::move(driver), options);
}

}  // namespace twofold::resource_manager
