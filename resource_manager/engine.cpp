#include "resource_manager/engine.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "protocol/check.h"
#include "runtime/logging.h"

namespace twofold::resource_manager {
namespace {

void tell_space(const SpaceChanged& space) {
  if (space.room) return spdlog::info("there is room again: branches that write are taken");
  spdlog::error(
      "no room: branches that write are refused until there is some again, and what is decided "
      "waits for it; erase something, or give the data a larger map or disk");
}

}  // namespace

Time monotonic_now() {
  return Time(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

Engine::Engine(boost::asio::io_context& io, Options options, CrashPoint crash_point,
               Adapter& adapter)
    : io_(io),
      adapter_(adapter),
      branches_(std::move(options), adapter.recover(monotonic_now()), monotonic_now()),
      crash_point_(std::move(crash_point)),
      timer_(io) {
  adapter_.attach(*this);
}

// Where starting up or a test ends without stop(): the adapter must not post to what is gone.
Engine::~Engine() {
  if (!stopped_) adapter_.stop();
}

void Engine::post(Event event) {
  enqueue(Item(std::move(event)));
}
void Engine::call(std::function<void()> job) {
  enqueue(Item(std::move(job)));
}

void Engine::enqueue(Item item) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    wake = !std::exchange(woken_, true);
  }
  // The loop may run on after this engine, and what was posted with it.
  if (wake) {
    boost::asio::post(io_, [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) drain();
    });
  }
}

// Goes on until nothing is left: work that ends at once (Ran) is answered in the same turn.
void Engine::drain() {
  std::vector<Item> items;
  while (true) {
    items.clear();
    {
      std::lock_guard lock(mutex_);
      items.swap(queue_);
      if (items.empty()) {
        woken_ = false;
        break;
      }
    }
    for (Item& item : items) {
      if (auto* event = std::get_if<Event>(&item)) {
        step(std::move(*event));
      } else {
        std::get<std::function<void()>>(item)();
      }
    }
  }
  if (stopped_) return;
  adapter_.flush();
  arm_timer();
}

void Engine::step(Event event) {
  if (const auto* space = std::get_if<SpaceChanged>(&event)) tell_space(*space);
  const auto flush = [this] { outlet_->flush(); };
  const std::string_view crossing = crash_point_.armed() ? name(event) : std::string_view();
  crash_point_.before(crossing, {});
  branches_.step(std::move(event), monotonic_now(), effects_);
  if (crash_point_.armed()) crash_point_.after(crossing, {}, flush);
  for (Effect& effect : effects_) execute(std::move(effect));
  effects_.clear();
}

void Engine::execute(Effect effect) {
  if (!crash_point_.armed()) return carry_out(std::move(effect));
  const std::string_view crossing = name(effect);
  crash_point_.before(crossing, {});
  carry_out(std::move(effect));
  crash_point_.after(crossing, {}, [this] { outlet_->flush(); });
}

void Engine::carry_out(Effect&& effect) {
  std::visit([this](auto&& each) { on(std::move(each)); }, std::move(effect));
}

// After stop() what would need the adapter stays undone: to its asker it is unknown (rule 25).
void Engine::on(Run&& effect) {
  if (!stopped_) adapter_.run(effect);
}
void Engine::on(PersistPrepare&& effect) {
  if (!stopped_) adapter_.persist(std::move(effect));
}
void Engine::on(PersistCommit&& effect) {
  if (!stopped_) adapter_.persist(std::move(effect));
}
void Engine::on(PersistRollback&& effect) {
  if (!stopped_) adapter_.persist(std::move(effect));
}
void Engine::on(PersistNode&& effect) {
  if (!stopped_) adapter_.persist(std::move(effect));
}

void Engine::on(AnswerFromEvidence&& effect) {
  if (stopped_) return;
  if (effect.store_id != 0 && effect.store_id != adapter_.store_id()) {
    return outlet_->answer(effect.requester, wire::Evidence::IMPOSSIBLE);
  }
  const Xid xid = std::move(effect.xid);
  adapter_.evidence(xid, [this, effect = std::move(effect)](Evidence found) {
    answer_from(effect, found == Evidence::committed);
  });
}

void Engine::answer_from(const AnswerFromEvidence& effect, bool committed) {
  if (!effect.rollback) {
    return outlet_->answer(effect.requester,
                           committed ? wire::Evidence::COMMITTED : wire::Evidence::NONE);
  }
  Answer answer;
  answer.requester = effect.requester;
  answer.code = committed ? Xa::heurcom : Xa::er_nota;
  answer.text = committed ? "this branch has committed" : "no such branch";
  outlet_->answer(std::move(answer));
}

void Engine::on(AnswerEvidence&& effect) {
  using Kind = AnswerEvidence::Kind;
  switch (effect.kind) {
    case Kind::prepared: return outlet_->answer(effect.requester, wire::Evidence::PREPARED);
    case Kind::busy: return outlet_->answer(effect.requester, wire::Evidence::BUSY);
    case Kind::impossible: return outlet_->answer(effect.requester, wire::Evidence::IMPOSSIBLE);
  }
  TWOFOLD_CHECK(false);
}

void Engine::on(Alarm&& effect) {
  ++alarms_;
  spdlog::error("alarm: {}", effect.text);
}

// Armed for no later than the core's next deadline; a tick that comes too early only arms it again.
void Engine::arm_timer() {
  const std::optional<Time> deadline = branches_.next_deadline();
  if (!deadline || (armed_ && *armed_ <= *deadline)) return;
  armed_ = deadline;
  timer_.expires_at(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          deadline->time_since_epoch())));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;  // armed anew, or the end
    armed_.reset();
    post(Tick{});
  });
}

bool Engine::stop() {
  drain();
  const bool written = adapter_.stop();
  stopped_ = true;
  drain();
  timer_.cancel();
  return written;
}

}  // namespace twofold::resource_manager
