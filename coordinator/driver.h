// What links and the client server need of the engine that owns them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>

#include "coordinator/core/coordinator.h"
#include "protocol/time.h"
#include "protocol/wire.pb.h"

namespace twofold::coordinator {

// The monotonic clock of the drivers; the core is handed what it says.
inline Time monotonic_now() {
  return Time{
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

class Driver {
 public:
  virtual boost::asio::io_context& io() = 0;
  // Queues an event for the core. It is stepped later, never inside the call, in the order posted.
  virtual void post(Event event) = 0;
  // The core after every event posted so far has been stepped and its effects carried out, so that
  // a question sees what was asked before it. Only from the event loop's handlers.
  virtual const Coordinator& settled_core() = 0;
  // The newest TxnId issued, for handshakes and heartbeats (rule 7).
  virtual TxnId newest() const = 0;
  virtual void add_stats(wire::StatsAnswer& stats) = 0;
  // Rule 2: a resource manager knows an epoch that this log did not record. Nothing more is decided
  // with it.
  virtual void outdated(const std::string& rm, const std::string& text) = 0;

 protected:
  ~Driver() = default;
};

}  // namespace twofold::coordinator
