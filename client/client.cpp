#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "client/client.h"
#include "client/interactive.h"

namespace twofold::client {

class Client::Impl {
 public:
  explicit Impl(Options options) : async_(std::in_place, io_, std::move(options)) {
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Impl() {
    boost::asio::post(io_, [this] {
      async_.reset();  // answers whoever still waits
      io_.stop();
    });
    thread_.join();
  }

  // Runs start(client, done) on the client's thread and waits for what `done` is given.
  template <class T, class Start>
  T wait(Start start) {
    // Shared: the waiting thread may be gone before set_value() has quite returned.
    auto promise = std::make_shared<std::promise<T>>();
    auto answer = promise->get_future();
    boost::asio::post(io_, [this, &start, promise] {
      start(*async_, [promise](T value) { promise->set_value(std::move(value)); });
    });
    return answer.get();
  }

  boost::asio::io_context& io() { return io_; }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::optional<AsyncClient> async_;  // lives on thread_ once that runs
  std::thread thread_;
};

Client::Client(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

Answered Client::submit(Transaction transaction) {
  return impl_->wait<Answered>([&](AsyncClient& client, auto done) {
    client.submit(std::move(transaction), std::move(done));
  });
}

Outcome Client::ask_request(const std::string& request_id, wire::ReplyAt at, TxnId known) {
  return impl_->wait<Outcome>([&](AsyncClient& client, auto done) {
    client.ask_request(request_id, at, known, std::move(done));
  });
}

Outcome Client::ask_gtrid(const std::string& gtrid, wire::ReplyAt at) {
  return impl_->wait<Outcome>(
      [&](AsyncClient& client, auto done) { client.ask_gtrid(gtrid, at, std::move(done)); });
}

Result<ActiveTransaction> Client::begin(BeginOptions options) {
  struct Found {
    std::shared_ptr<AsyncTransaction> transaction;
    std::string gtrid;
    std::chrono::milliseconds timeout{0};
  };
  auto begun = impl_->wait<Result<Found>>([&](AsyncClient& client, auto done) {
    AsyncTransaction::begin(
        client, impl_->io(), options, [done](Result<AsyncTransaction> transaction) {
          if (!transaction) return done(transaction.error());
          auto shared = std::make_shared<AsyncTransaction>(std::move(*transaction));
          std::string gtrid = shared->gtrid();
          const auto timeout = shared->timeout();
          done(Found{std::move(shared), std::move(gtrid), timeout});
        });
  });
  if (!begun) return begun.error();
  return ActiveTransaction(*this, std::move(begun->gtrid), begun->timeout,
                           std::move(begun->transaction));
}

ActiveTransaction Client::resume(std::string gtrid, Works works) {
  using Shared = std::shared_ptr<AsyncTransaction>;
  auto shared = impl_->wait<Shared>([&](AsyncClient& client, auto done) {
    done(std::make_shared<AsyncTransaction>(
        AsyncTransaction::resume(client, impl_->io(), gtrid, std::move(works))));
  });
  return ActiveTransaction(*this, std::move(gtrid), {}, std::move(shared));
}

Works ActiveTransaction::leave() {
  return client_->impl_->wait<Works>([&](AsyncClient&, auto done) { done(async_->leave()); });
}

ActiveTransaction::ActiveTransaction(Client& client, std::string gtrid,
                                     std::chrono::milliseconds timeout,
                                     std::shared_ptr<AsyncTransaction> async)
    : client_(&client), gtrid_(std::move(gtrid)), timeout_(timeout), async_(std::move(async)) {}

ActiveTransaction& ActiveTransaction::operator=(ActiveTransaction&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(gtrid_, other.gtrid_);
  std::swap(timeout_, other.timeout_);
  std::swap(async_, other.async_);
  return *this;
}

// It ends where it lives, and is rolled back there if nobody asked for its end.
ActiveTransaction::~ActiveTransaction() {
  if (async_) boost::asio::post(client_->impl_->io(), [async = std::move(async_)] {});
}

Worked ActiveTransaction::work(const std::string& rm, Work work) {
  return client_->impl_->wait<Worked>(
      [&](AsyncClient&, auto done) { async_->work(rm, std::move(work), std::move(done)); });
}

Outcome ActiveTransaction::commit(bool wait_for_end) {
  return client_->impl_->wait<Outcome>(
      [&](AsyncClient&, auto done) { async_->commit(wait_for_end, std::move(done)); });
}

Outcome ActiveTransaction::rollback() {
  return client_->impl_->wait<Outcome>(
      [&](AsyncClient&, auto done) { async_->rollback(std::move(done)); });
}

void Client::on_connection(std::function<void(bool connected, const std::string& why)> handler) {
  impl_->wait<bool>([&](AsyncClient& client, auto done) {
    client.on_connection(std::move(handler));
    done(true);
  });
}

Result<wire::Frame> Client::call(wire::Frame request) {
  return impl_->wait<Result<wire::Frame>>(
      [&](AsyncClient& client, auto done) { client.call(std::move(request), std::move(done)); });
}

}  // namespace twofold::client
