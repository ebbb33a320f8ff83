#include "coordinator/core/client_fence.h"

#include "protocol/check.h"
#include "protocol/planted.h"

namespace twofold::coordinator {

ClientFence::Admission ClientFence::admit(std::uint64_t client, std::uint64_t counter,
                                          std::uint64_t connection) {
  TWOFOLD_CHECK(client != 0 && counter != 0 && connection != 0);
  const auto [at, is_new] = clients_.try_emplace(client);
  Known& known = at->second;
  if (TWOFOLD_PLANTED(older_connection_not_fenced)) return {true, 0, 0};
  if (!is_new && counter <= known.counter) return {false, known.counter, 0};
  const Admission admission{true, 0, known.connection};
  if (!is_new && known.connection == 0) left_.erase(known.left);
  known.counter = counter;
  known.connection = connection;
  return admission;
}

void ClientFence::closed(std::uint64_t client, std::uint64_t connection) {
  const auto at = clients_.find(client);
  if (at == clients_.end() || at->second.connection != connection) return;
  at->second.connection = 0;
  at->second.left = left_.insert(left_.end(), client);
  if (left_.size() <= remembered_max_) return;
  clients_.erase(left_.front());
  left_.pop_front();
}

}  // namespace twofold::coordinator
