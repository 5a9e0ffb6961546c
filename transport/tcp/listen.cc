// Who connects to us.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/address.h"
#include "transport/tcp/body.h"
#include "transport/tcp/constants.h"
#include "transport/tcp/keepalive.h"

namespace gradring::transport {
namespace {

constexpr int kAcceptsPerTurn = 64;

// At its port; 0: at one that is free, which is filled in. kResourceExhausted: somebody else's.
tl::expected<Socket, Status> open_listener(Endpoint* endpoint) {
  const auto failed = [endpoint](const char* what) {
    return tl::unexpected(
        Status(errno == EADDRINUSE ? Code::kResourceExhausted : Code::kUnavailable,
               fmt::format("cannot {} at {} for gradients: {}", what, endpoint->text(),
                           std::strerror(errno))));
  };
  Socket socket(::socket(endpoint->v6 ? AF_INET6 : AF_INET,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return failed("make a socket");
  // Connections of an earlier life of the daemon may not be over yet.
  const int one = 1;
  if (endpoint->port != 0) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  socklen_t length = 0;
  sockaddr_storage address = sockaddr_of(*endpoint, &length);
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    return failed("listen");
  }
  length = sizeof address;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return failed("listen");
  }
  endpoint->port = port_of(address);
  return socket;
}

// At the first port that is free. kResourceExhausted: none of them is.
tl::expected<Socket, Status> open_listener(Endpoint* endpoint, const PortRange& ports) {
  if (!ports) return open_listener(endpoint);
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    endpoint->port = static_cast<uint16_t>(port);
    auto socket = open_listener(endpoint);
    if (socket || socket.error().code() != Code::kResourceExhausted) return socket;
  }
  endpoint->port = 0;
  return tl::unexpected(Status(
      Code::kResourceExhausted,
      fmt::format("none of the ports {} to {} is free at {} for gradients: give more of them "
                  "(data-ports), or see by `ss -ltnp` whose they are",
                  ports.first, ports.last, endpoint->text())));
}

}  // namespace

tl::expected<std::unique_ptr<Transport>, Status> make_tcp_transport(const TcpOptions& options) {
  auto transport = std::make_unique<TcpTransport>(options);
  if (Status status = transport->listen(); !status.ok()) return tl::unexpected(status);
  return transport;
}

Status TcpTransport::listen() {
  const auto endpoints = endpoints_of(options_.devices);
  if (!endpoints) return endpoints.error();
  if (getrandom(me_.data(), me_.size(), 0) != static_cast<ssize_t>(me_.size())) {
    return {Code::kInternal, fmt::format("no random numbers: {}", std::strerror(errno))};
  }
  epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return {Code::kResourceExhausted, fmt::format("epoll: {}", std::strerror(errno))};
  Status status;
  for (const Endpoint& endpoint : *endpoints) {
    const Status listening = listen_at(endpoint);
    if (listening.code() == Code::kResourceExhausted) return listening;
    if (status.ok()) status = listening;
  }
  // An address that is new, and not known to be nobody else's yet, is none for now.
  return own_.empty() ? status : Status();
}

Status TcpTransport::listen_at(Endpoint endpoint) {
  auto socket = open_listener(&endpoint, options_.ports);
  if (!socket) return socket.error();
  const Number number = next_number_++;
  // At its edges, as one that cannot be accepted, for want of descriptors, would wake us again and
  // again. It is when the next one comes.
  if (Status status = watch(socket->fd(), number, EPOLLIN | EPOLLET); !status.ok()) return status;
  listeners_.emplace(number, std::move(*socket));
  own_.push_back(endpoint);
  return {};
}

std::string TcpTransport::address() const {
  return seal_address(name(), encode_address({me_, own_}));
}

// Whoever connects as fast as it is accepted must not keep us from everybody else. True: there may
// be more.
bool TcpTransport::accept_some(int listener, Events* events) {
  for (int turn = 0; turn < kAcceptsPerTurn; ++turn) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) return false;
    Socket socket(fd);
    keep_alive(socket.fd());
    make_room(events);
    const Number number = next_number_++;
    if (watch(socket.fd(), number, EPOLLIN).ok()) {
      incoming_.try_emplace(number, std::move(socket), me_);
    }
  }
  return true;
}

int TcpTransport::accept_rest(Events* events) {
  if (crowded_.empty()) return 0;
  std::erase_if(crowded_,
                [&](Number number) { return !accept_some(listeners_.at(number).fd(), events); });
  return 1;
}

void TcpTransport::make_room(Events* events) {
  const auto is_stranger = [](const auto& one) { return !one.second.from().has_value(); };
  while (std::ranges::count_if(incoming_, is_stranger) >= static_cast<ptrdiff_t>(kStrangersMax)) {
    const Number oldest = std::ranges::find_if(incoming_, is_stranger)->first;
    take(oldest, events);  // it may have said who it is, and nobody has looked yet
    const auto still = incoming_.find(oldest);
    if (still == incoming_.end() || !is_stranger(*still)) continue;
    incoming_.erase(still);
    ++counters_.messages_dropped;
  }
}

int TcpTransport::take(Number number, Events* events) {
  const auto it = incoming_.find(number);
  if (it == incoming_.end()) return 0;  // gone by now
  if (it->second.take(events, &counters_)) return 1;
  if (const auto cookie = it->second.abort()) notices_.aborted(*cookie);
  incoming_.erase(it);
  return 1;
}

// What of a peer has a destination still, and is not here.
void TcpTransport::abort_from(const Identity& from) {
  for (auto& [number, incoming] : incoming_) {
    if (incoming.from() != from) continue;
    if (const auto cookie = incoming.abort()) notices_.aborted(*cookie);
  }
}

}  // namespace gradring::transport
