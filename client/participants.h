// A client's connections to resource managers, one each, made when first needed and shared by all
// its transactions. Lives on the thread that runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/interactive.h"
#include "protocol/connection.h"
#include "protocol/xid.h"

namespace twofold::client {

class Participant : public std::enable_shared_from_this<Participant> {
 public:
  Participant(boost::asio::io_context& io, std::string name, Address address,
              ConnectionOptions options, std::string client);
  ~Participant();

  // Joins the branch, does the work and ends the part, in one round trip. `done` is called once,
  // from the event loop. A lost connection is XAER_RMFAIL: the work may have been done.
  void stop();  // what is open is answered XAER_RMFAIL; nothing is sent any more
  void execute(const Xid& xid, const Work& work, std::function<void(Worked)> done);

 private:
  using Answers = std::map<std::uint64_t, std::function<void(Result<wire::BranchAnswer>)>>;
  void connect();
  void send(wire::Frame& frame, std::function<void(Result<wire::BranchAnswer>)> done);
  void on_frame(wire::Frame& frame);
  void lost(const Error& why);

  boost::asio::io_context& io_;
  const std::string name_;
  const Address address_;
  const ConnectionOptions options_;
  const std::string client_;
  std::function<void()> cancel_connect_;  // while an attempt is under way
  std::shared_ptr<Connection> connection_;
  std::vector<wire::Frame> waiting_;  // for the connection
  Answers answers_;
  std::uint64_t last_request_ = 0;
  std::uint64_t last_thread_ = 0;
};

class Participants {
 public:
  Participants(boost::asio::io_context& io, ConnectionOptions options, std::string client);
  void stop();
  // The one at this address, which must say that it is `name`.
  Participant& at(const std::string& name, const Address& address);

 private:
  boost::asio::io_context& io_;
  const ConnectionOptions options_;
  const std::string client_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Participant>> known_;
};

}  // namespace twofold::client
