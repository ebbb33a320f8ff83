// A transaction as it is submitted: work for each of its branches. Plain values.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "protocol/operation.h"
#include "protocol/xid.h"

namespace twofold::client {

struct Branch {
  std::string rm;
  Work work;
};

struct Transaction {
  std::string request_id;  // 1 to 128 bytes; empty: the client makes one
  std::vector<Branch> branches;
  std::chrono::milliseconds timeout{0};  // 0: the coordinator's default
  bool wait_for_end = false;             // reply when every branch has finished (rule 9)
  TxnId known;                           // {0,0}: what this client knows now (rule 7)
};

}  // namespace twofold::client
