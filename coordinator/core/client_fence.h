// Which connection of a client is its newest. A client that lost its connection asks on a newer one
// what became of its submissions; what still arrives on the older connection (it may sit unread in
// a socket's buffer) must not run after that. So a client's Hello carries its id and a counter, and
// a newer connection ends the older before it is welcomed.
//
// A client that keeps to the protocol sends nothing before Welcome, so a Hello that arrives after a
// newer one brings no submission with it. For those that do send at once, the counters of the
// `remembered_max` clients that left last are kept, and their late connections refused.
//
// Pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace twofold::coordinator {

class ClientFence {
 public:
  struct Admission {
    bool admitted = false;
    std::uint64_t newest = 0;  // not admitted: the counter that the client has reached
    std::uint64_t fenced = 0;  // admitted: the connection to end first; 0: none is open
  };

  explicit ClientFence(std::size_t remembered_max) : remembered_max_(remembered_max) {}

  // A Hello with `counter` of `client` has come on `connection`; none of the three is 0.
  Admission admit(std::uint64_t client, std::uint64_t counter, std::uint64_t connection);
  // An admitted connection has ended; harmless for one that was fenced.
  void closed(std::uint64_t client, std::uint64_t connection);

  std::size_t remembered() const { return left_.size(); }  // clients without a connection

 private:
  struct Known {
    std::uint64_t counter = 0;
    std::uint64_t connection = 0;             // 0: it has left
    std::list<std::uint64_t>::iterator left;  // its place in left_, if it has
  };

  const std::size_t remembered_max_;
  std::unordered_map<std::uint64_t, Known> clients_;
  std::list<std::uint64_t> left_;  // clients, those that left first in front
};

}  // namespace twofold::coordinator
