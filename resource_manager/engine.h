// Drives one resource manager: carries events to its branch core and the core's effects to the
// adapter and to whoever asked. Decides nothing.
//
// Threads: everything lives on the one thread that runs the io_context; post() and call() may come
// from any. Events never re-enter: they queue, and one turn of the loop takes all that is there, so
// that a batch wakes the engine once, leaves in one write per connection and goes to the disk as
// one group.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "resource_manager/adapter.h"
#include "resource_manager/core/branches.h"
#include "runtime/crash_point.h"

namespace twofold::resource_manager {

Time monotonic_now();

// Where the core's answers go. A connection that is gone is no error: the answer is dropped.
class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void accept(const AcceptSession& effect) = 0;
  virtual void refuse(const RefuseSession& effect) = 0;
  virtual void close(const CloseConnection& effect) = 0;
  virtual void answer(Answer effect) = 0;
  virtual void answer(AnswerRecover effect) = 0;
  virtual void answer(const AnswerFailure& effect) = 0;
  virtual void answer(const Requester& requester, wire::Evidence::Kind kind) = 0;
  virtual void report(const ReportWaits& effect) = 0;
  virtual void flush() = 0;  // blocks until what was sent has reached the kernel: for crash points
};

class Engine final : public Host {
 public:
  // Recovers what the adapter has: prepared branches hold their locks again from here on (rule 11).
  // Throws std::runtime_error for data that cannot be read. All references outlive the engine.
  Engine(boost::asio::io_context& io, Options options, CrashPoint crash_point, Adapter& adapter);
  ~Engine() override;

  void attach(Outlet& outlet) { outlet_ = &outlet; }  // before the first event
  void post(Event event) override;
  void call(std::function<void()> job) override;

  // Writes what was asked for and hands out the answers to it; afterwards the adapter is asked for
  // nothing more (rule 25). The result is the adapter's stop()'s.
  bool stop();

  const Branches& branches() const { return branches_; }
  Adapter& adapter() { return adapter_; }
  std::uint64_t alarms() const { return alarms_; }

 private:
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // ends with this engine
  using Item = std::variant<Event, std::function<void()>>;

  void enqueue(Item item);
  void drain();
  void step(Event event);
  void execute(Effect effect);
  void carry_out(Effect&& effect);
  void arm_timer();

  // Effects, one overload each.
  void on(AcceptSession&& effect) { outlet_->accept(effect); }
  void on(RefuseSession&& effect) { outlet_->refuse(effect); }
  void on(CloseConnection&& effect) { outlet_->close(effect); }
  void on(Run&& effect);
  void on(Discard&& effect) { adapter_.discard(effect); }
  void on(PersistPrepare&& effect);
  void on(PersistCommit&& effect);
  void on(PersistRollback&& effect);
  void on(PersistNode&& effect);
  void on(Answer&& effect) { outlet_->answer(std::move(effect)); }
  void on(AnswerRecover&& effect) { outlet_->answer(std::move(effect)); }
  void on(AnswerFromEvidence&& effect);
  void answer_from(const AnswerFromEvidence& effect, bool committed);
  void on(AnswerEvidence&& effect);
  void on(ReportWaits&& effect) { outlet_->report(effect); }
  void on(AnswerFailure&& effect) { outlet_->answer(effect); }
  void on(Alarm&& effect);

  boost::asio::io_context& io_;
  Adapter& adapter_;
  Branches branches_;
  CrashPoint crash_point_;
  Outlet* outlet_ = nullptr;
  boost::asio::steady_timer timer_;
  std::optional<Time> armed_;
  bool stopped_ = false;
  std::uint64_t alarms_ = 0;

  std::mutex mutex_;
  std::vector<Item> queue_;  // guarded by mutex_
  bool woken_ = false;       // guarded by mutex_: a drain() is under way or on its way
  std::vector<Effect> effects_;
};

}  // namespace twofold::resource_manager
