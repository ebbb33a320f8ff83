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

// A bound socket, or -1: somebody has the port.
int bind_port(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return socket;
  ::close(socket);
  return -1;
}

}  // namespace

Result<std::vector<std::uint16_t>> free_ports(std::size_t count) {
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> any(kFirstPort, first_outgoing_port() - 1);
  std::vector<std::uint16_t> ports;
  std::vector<int> sockets;  // kept open until all are found, so that none is found twice
  for (int tries = 0; ports.size() < count && tries < kTries; ++tries) {
    const auto port = static_cast<std::uint16_t>(any(random));
    if (const int socket = bind_port(port); socket >= 0) {
      ports.push_back(port);
      sockets.push_back(socket);
    }
  }
  for (const int socket : sockets) ::close(socket);
  if (ports.size() < count) {
    return Error{Fault::io, "found no free ports on 127.0.0.1: name the first with --base-port"};
  }
  return ports;
}

}  // namespace twofold::lab
