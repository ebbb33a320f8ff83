// The library an application links to use a Twofold coordinator.
//
// What it promises:
//
// submit() gives one Outcome. A lost connection is not an outcome: the client reconnects (capped,
// jittered backoff) and submits again under the same request id, which joins the first attempt, or
// is answered with what became of it, or runs it for the first time (rule 7), until the decision is
// known or `give_up` has passed. Then the verdict is Verdict::unknown, which the caller must
// handle: the transaction may have committed. Ask again later for the request id, or submit again
// with it. If nothing was ever sent, the verdict is Verdict::rejected with Reason::unavailable:
// nothing has happened.
//
// A submission without a request id is given one, so that the same holds. An abort is never retried
// unless asked for (`retries`), nor one of which a branch is known to have ended otherwise
// (Outcome::heuristic).
//
// Names, request ids, keys and texts are UTF-8: what is not is told at once, as Reason::invalid or
// Fault::invalid, and never sent.
//
// A peer that cannot be used at all (another protocol version, not a coordinator) ends what waits
// at once, with its words; the next request tries again.
//
// Threads: AsyncClient lives on the thread that runs its io_context; its callbacks come from the
// event loop, never from inside a call (the destructor's excepted), and may submit more or end the
// client. Client is thread-safe: it runs a thread of its own and many threads may call it at once;
// none may still be calling when it is destroyed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/transaction.h"
#include "protocol/endpoint.h"
#include "protocol/operation.h"
#include "protocol/outcome.h"
#include "protocol/result.h"
#include "protocol/wire.pb.h"

namespace twofold::client {

struct Options {
  Address coordinator;
  std::string name = "client";                // for the coordinator's log
  std::chrono::milliseconds give_up{60'000};  // after so long without a decision: Verdict::unknown
  unsigned retries = 0;                       // of retryable aborts, with capped, jittered backoff
  std::chrono::milliseconds retry_first{10};
  std::chrono::milliseconds retry_max{1'000};
  ConnectionOptions connection;
};

// What was done in an interactive transaction so far: what another process needs to go on with it.
struct Works {
  std::map<std::string, std::uint64_t> answered;  // with XA_OK, by resource manager (rule 10)
  std::string failed;  // the work that failed or has no answer: commit() rolls back; or empty
};

// Of an interactive transaction (client/interactive.h).
struct BeginOptions {
  std::chrono::milliseconds timeout{0};  // from begin to commit; 0: the coordinator's default
  std::chrono::milliseconds age{0};      // since the first attempt: the older survives a deadlock
};

class ActiveTransaction;
class AsyncTransaction;
class Participant;

struct Answered {
  Outcome outcome;
  std::string request_id;
  unsigned attempts = 1;  // submissions that were decided; retries included
};

class AsyncClient {
 public:
  AsyncClient(boost::asio::io_context& io, Options options);
  ~AsyncClient();  // pending callbacks are called first, as when give_up passes

  void submit(Transaction transaction, std::function<void(Answered)> done);
  void ask_request(std::string request_id, wire::ReplyAt at, TxnId known,
                   std::function<void(Outcome)> done);
  void ask_gtrid(std::string gtrid, wire::ReplyAt at, std::function<void(Outcome)> done);
  // One request of any other kind (List, Show, Stats), not repeated after a lost connection, and an
  // Error as soon as an attempt to connect fails. A Failure becomes an Error.
  void call(wire::Frame request, std::function<void(Result<wire::Frame>)> done);

  TxnId known() const;  // the newest TxnId heard of, {0,0} before the first handshake
  bool connected() const;
  std::size_t in_flight() const;
  // Called on the io_context's thread whenever the connection comes or goes, and first of all if it
  // could not be made so far; for progress displays.
  void on_connection(std::function<void(bool connected, const std::string& why)> handler);
  // Called on that thread when an abort is going to be tried again (Options::retries), with it.
  void on_retry(std::function<void(const Outcome& aborted)> handler);

 private:
  friend class AsyncTransaction;
  void finish(wire::Finish finish, std::function<void(Outcome)> done);
  Participant& participant(const std::string& rm, const Address& address);

  class Impl;
  std::shared_ptr<Impl> impl_;
};

class Client {
 public:
  explicit Client(Options options);
  ~Client();
  Answered submit(Transaction transaction);
  // `known`: as it was when the request id was first sent; {0,0}: not known, so that an id which
  // the coordinator no longer remembers is Verdict::expired and never Verdict::not_found (rule 8).
  Outcome ask_request(const std::string& request_id, wire::ReplyAt at = wire::REPLY_NOW,
                      TxnId known = {});
  Outcome ask_gtrid(const std::string& gtrid, wire::ReplyAt at = wire::REPLY_NOW);
  Result<wire::Frame> call(wire::Frame request);
  // As AsyncClient's. Called on a thread of the client's own; it must not call the client.
  void on_connection(std::function<void(bool connected, const std::string& why)> handler);
  // See client/interactive.h.
  Result<ActiveTransaction> begin(BeginOptions options = {});
  ActiveTransaction resume(std::string gtrid, Works works = {});

 private:
  friend class ActiveTransaction;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One request to a resource manager or coordinator over a connection of its own: Scan, Locks,
// InDoubt, Stats. Blocking. A Failure becomes an Error. `expects`: the resource manager's name, or
// empty.
Result<wire::Frame> call_once(const Address& address, wire::Frame request,
                              std::chrono::milliseconds timeout, const std::string& expects = "");

}  // namespace twofold::client
