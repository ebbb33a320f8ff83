#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "lab/cluster/cluster.h"

namespace twofold::lab {
namespace {

constexpr std::uint16_t kFirstPort = 15'000;
constexpr int kTries = 20'000;

std::uint16_t first_outgoing_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint16_t low = 0;
  return file >> low && low > kFirstPort + 1'000 ? low : 32'768;
}

// A bound socket, or -1: somebody has the port. Address reuse is allowed only afterwards: it lets
// the server in, and would let in two that look for a port.
int take_port(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int yes = 1;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0) {
    return socket;
  }
  if (socket >= 0) ::close(socket);
  return -1;
}

}  // namespace

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) ::close(socket_);
}

Result<std::vector<ReservedPort>> ReservedPort::find(std::size_t count) {
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> any(kFirstPort, first_outgoing_port() - 1);
  std::vector<ReservedPort> ports;
  for (int tries = 0; ports.size() < count && tries < kTries; ++tries) {
    const auto port = static_cast<std::uint16_t>(any(random));
    if (const int socket = take_port(port); socket >= 0) ports.push_back({port, socket});
  }
  if (ports.size() < count) {
    return Error{Fault::io, "found no free ports on 127.0.0.1: name the first with --base-port"};
  }
  return ports;
}

}  // namespace twofold::lab
