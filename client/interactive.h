// Interactive transactions: begin, work at the resource managers, commit or roll back.
//
//   Result<ActiveTransaction> begun = client.begin();
//   if (!begun) return not_begun(begun.error());
//   ActiveTransaction& transaction = *begun;
//   const Worked read = transaction.work("payments", {{"get", {{"key", account}}}});
//   if (read.ok()) std::cout << "balance: " << to_text(read.results.front()) << '\n';
//   transaction.work("payments", {{"add", {{"key", account}, {"by", -amount}, {"min", 0}}}});
//   Outcome outcome = transaction.commit();  // of all that was asked for, or it says what failed
//
// (The whole program is client/example/main.cpp.)
//
// The coordinator starts a branch at a resource manager when the first work goes there; the work
// itself goes straight to the resource manager, one round trip each (XA's xa_start with TMJOIN and
// xa_end go along). Work that is refused, timed out or a deadlock's victim leaves a transaction
// that can only be rolled back; commit() then tells why. So does work that could not be sent or
// whose answer was lost: the resource manager counts what it did, and what the client knows of must
// match (rule 10). commit() never commits less than what was asked for.
//
// Why a branch was rolled back under its client (a deadlock across resource managers, the
// transaction's time) the coordinator knows; it is asked then, and the work's answer tells.
//
// One that is dropped without commit() or rollback() is rolled back, and one whose program vanishes
// ends at its timeout: until then its locks stay.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "protocol/xa.h"

namespace twofold::client {

// What a resource manager answered to one work.
struct Worked {
  Xa code = Xa::ok;               // XA_RB*: the transaction can only be rolled back
  Results results;                // one per operation, if ok
  std::vector<Refusal> refusals;  // with XA_RBINTEGRITY: every check that failed
  std::string text;               // for people, if not ok: never empty then
  bool ok() const { return code == Xa::ok; }
};

// For event loops. Lives on the thread that runs the io_context, which calls all callbacks; one
// callback per call, never from inside it. Works may be under way at once; they are done in turn
// where they go to one resource manager. Neither the client nor the loop may end before it.
class AsyncTransaction {
 public:
  using Begun = std::function<void(Result<AsyncTransaction>)>;
  static void begin(AsyncClient& client, boost::asio::io_context& io, BeginOptions options,
                    Begun done);
  // Goes on with one that was begun elsewhere, in another process say, and left with leave().
  static AsyncTransaction resume(AsyncClient& client, boost::asio::io_context& io,
                                 std::string gtrid, Works works);

  AsyncTransaction(AsyncTransaction&&) noexcept;
  AsyncTransaction& operator=(AsyncTransaction&&) noexcept;
  ~AsyncTransaction();  // rolls back, without waiting, unless an end was asked for

  const std::string& gtrid() const;
  // From begin to commit, as the coordinator has bounded what was asked for; 0 after resume().
  std::chrono::milliseconds timeout() const;
  void work(std::string rm, Work work, std::function<void(Worked)> done);
  // Works must have been answered. Verdict::unknown: it may have committed, ask for the gtrid.
  void commit(bool wait_for_end, std::function<void(Outcome)> done);
  void rollback(std::function<void(Outcome)> done);
  // It stays as it is, for resume(). What has no answer yet counts as failed.
  Works leave();

 private:
  class Impl;
  explicit AsyncTransaction(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// For threads. Many may work in it at once; commit() and rollback() come after the last of them.
// Must not outlive its Client.
class ActiveTransaction {
 public:
  ActiveTransaction(ActiveTransaction&&) noexcept = default;
  ActiveTransaction& operator=(ActiveTransaction&& other) noexcept;
  ~ActiveTransaction();

  const std::string& gtrid() const { return gtrid_; }
  std::chrono::milliseconds timeout() const { return timeout_; }  // as AsyncTransaction's
  Worked work(const std::string& rm, Work work);
  Outcome commit(bool wait_for_end = false);
  Outcome rollback();
  Works leave();  // it stays as it is, for Client::resume()

 private:
  friend class Client;
  ActiveTransaction(Client& client, std::string gtrid, std::chrono::milliseconds timeout,
                    std::shared_ptr<AsyncTransaction> async);
  Client* client_;
  std::string gtrid_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<AsyncTransaction> async_;  // on the client's thread; null once moved from
};

}  // namespace twofold::client
