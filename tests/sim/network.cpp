#include "tests/sim/network.h"

namespace twofold::sim {

namespace {
constexpr Duration kUsual = std::chrono::microseconds{300};
constexpr Duration kRetransmission = std::chrono::milliseconds{8};
constexpr Duration kGivenUp = std::chrono::milliseconds{60};  // an attempt to connect
}  // namespace

Network::Network(Schedule& schedule, Random& random, std::size_t hosts)
    : schedule_(schedule),
      random_(random),
      hosts_(hosts),
      accept_(hosts),
      silence_(hosts, std::chrono::milliseconds{200}),
      blocks_(hosts * hosts, 0) {}

Network::~Network() {
  for (const auto& connection : connections_) connection->let_go();
}

void Network::connect(Host from, Host to, Connected done) {
  const Duration there = random_.about(kUsual), back = random_.about(kUsual);
  schedule_.after(there, [this, from, to, back, done = std::move(done)] {
    if (blocked(from, to) || blocked(to, from)) {
      return schedule_.after(kGivenUp, [done] { done(nullptr); });
    }
    if (!accept_[to]) return schedule_.after(back, [done] { done(nullptr); });
    auto connection = std::make_shared<Connection>(*this, from, to);
    connections_.push_back(connection);
    accept_[to](connection);
    schedule_.after(back, [connection, done] { done(connection->open(0) ? connection : nullptr); });
  });
}

void Connection::send(int from, Deliver deliver) {
  if (!open_[from]) return;
  Time& last = last_[from];
  last = std::max(last + Duration{1}, network_.schedule_.now() + network_.random_.about(kUsual));
  network_.schedule_.at(last,
                        [self = shared_from_this(), from, deliver = std::move(deliver)]() mutable {
                          self->arrive(from, deliver);
                        });
}

void Connection::arrive(int from, Deliver& deliver) {
  if (!open_[0] && !open_[1]) return;
  if (network_.blocked(hosts_[from], hosts_[1 - from]) || !held_[from].empty()) {
    held_[from].push_back(std::move(deliver));
    return;
  }
  accept(from, deliver);
}

void Connection::accept(int from, Deliver& deliver) {
  if (open_[1 - from]) return deliver();
  // Nobody is there: the sender is told, if that arrives.
  if (!open_[from]) return;
  network_.schedule_.after(network_.random_.about(kUsual), [self = shared_from_this(), from] {
    if (!self->network_.blocked(self->hosts_[1 - from], self->hosts_[from])) self->lose(from);
  });
}

// A partition has ended: what it held comes before everything that was sent later.
void Connection::release(int from) {
  while (!held_[from].empty() && !network_.blocked(hosts_[from], hosts_[1 - from])) {
    Deliver deliver = std::move(held_[from].front());
    held_[from].pop_front();
    accept(from, deliver);
  }
}

void Connection::close(int end) {
  if (!open_[end]) return;
  send(end, [this, end] { lose(1 - end); });
  vanish(end);
}

void Connection::vanish(int end) {
  if (!open_[end]) return;
  open_[end] = false;
  told_[end] = nullptr;
  if (!open_[1 - end]) return network_.forget(this);
  fall_silent(1 - end);
}

void Connection::fall_silent(int end) {
  const Duration silence = network_.silence_[hosts_[end]];
  network_.schedule_.after(silence, [self = shared_from_this(), end] { self->lose(end); });
}

void Connection::lose(int end) {
  if (!open_[end]) return;
  open_[end] = false;
  const auto told = std::exchange(told_[end], nullptr);
  if (open_[1 - end]) {
    open_[end] = true;  // its end is told like any other
    send(end, [this, end] { lose(1 - end); });
    open_[end] = false;
    fall_silent(1 - end);
  } else {
    network_.forget(this);
  }
  if (told) told();
}

// What is held refers to its connection, which would so hold itself.
void Connection::let_go() {
  for (auto& held : held_) held.clear();
}

void Network::forget(Connection* connection) {
  connection->let_go();
  std::erase_if(connections_, [&](const auto& one) { return one.get() == connection; });
}

void Network::block(Host from, Host to) {
  if (blocked(from, to)) return;
  ++blocks_[from * hosts_ + to];
  silent_if_still(from, to);
}

// Whoever hears nothing for too long ends the connection.
void Network::silent_if_still(Host from, Host to) {
  const std::uint64_t block = blocks_[from * hosts_ + to];
  schedule_.after(silence_[to], [this, from, to, block] {
    if (blocks_[from * hosts_ + to] != block) return;
    for (const auto& connection : std::vector(connections_)) {
      for (int end = 0; end < 2; ++end) {
        if (connection->hosts_[end] == to && connection->hosts_[1 - end] == from) {
          connection->lose(end);
        }
      }
    }
  });
}

void Network::unblock(Host from, Host to) {
  if (!blocked(from, to)) return;
  ++blocks_[from * hosts_ + to];
  for (const auto& connection : std::vector(connections_)) {
    for (int end = 0; end < 2; ++end) {
      if (connection->hosts_[end] != from || connection->hosts_[1 - end] != to) continue;
      // Sent again only after a pause, when newer connections may have been at work for long.
      schedule_.after(random_.about(kRetransmission),
                      [connection, end] { connection->release(end); });
    }
  }
}

void Network::break_one() {
  if (connections_.empty()) return;
  const auto connection = connections_[random_.below(connections_.size())];
  for (int end = 0; end < 2; ++end) {
    schedule_.after(random_.about(10 * kUsual), [connection, end] { connection->lose(end); });
  }
}

}  // namespace twofold::sim
