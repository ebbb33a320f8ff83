// TCP as its users know it: in order or not at all, one direction independent of the other, late;
// an end learns of the other's end when that arrives, or by its silence.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/kernel.h"

namespace twofold::sim {

using Host = std::size_t;
using Deliver = std::function<void()>;  // what the receiver does

class Network;

// End 0 connected, end 1 accepted. An end that is closed is told nothing more.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Network& network, Host from, Host to) : network_(network), hosts_{from, to} {}
  void send(int from, Deliver deliver);
  void on_closed(int end, std::function<void()> told) { told_[end] = std::move(told); }
  void close(int end);   // of its own will, or as a killed process: the other end is told
  void vanish(int end);  // as a host without power: it is not
  bool open(int end) const { return open_[end]; }

 private:
  friend class Network;
  void arrive(int from, Deliver& deliver);
  void accept(int from, Deliver& deliver);
  void release(int from);
  void lose(int end);  // told that it is over
  void fall_silent(int end);
  void let_go();

  Network& network_;
  const Host hosts_[2];
  bool open_[2] = {true, true};
  Time last_[2] = {};            // arrival of what was sent last
  std::deque<Deliver> held_[2];  // sent, and stopped by a partition
  std::function<void()> told_[2];
};

class Network {
 public:
  using Accept = std::function<void(std::shared_ptr<Connection>)>;
  using Connected = std::function<void(std::shared_ptr<Connection>)>;  // null: it did not work

  Network(Schedule& schedule, Random& random, std::size_t hosts);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();
  void listen(Host host, Accept accept) { accept_[host] = std::move(accept); }  // null: nobody does
  void connect(Host from, Host to, Connected done);
  void silence_after(Host host, Duration silence) { silence_[host] = silence; }

  void block(Host from, Host to);  // what is sent arrives after unblock(), if the ends still live
  void unblock(Host from, Host to);
  bool blocked(Host from, Host to) const { return blocks_[from * hosts_ + to] % 2 == 1; }
  void break_one();  // some connection, both ends, each in its own time

 private:
  friend class Connection;
  void silent_if_still(Host from, Host to);
  void forget(Connection* connection);

  Schedule& schedule_;
  Random& random_;
  const std::size_t hosts_;
  std::vector<Accept> accept_;
  std::vector<Duration> silence_;
  std::vector<std::uint64_t> blocks_;  // odd: blocked
  std::vector<std::shared_ptr<Connection>> connections_;
};

}  // namespace twofold::sim
