#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace gradring::transport {

// A connection whose other end has vanished ends after some half a minute. Who is dead the daemon
// decides much earlier, and by other means: this is for what nobody asks about any more.
inline void keep_alive(int fd) {
  constexpr int kOn = 1, kIdleSeconds = 10, kIntervalSeconds = 5, kProbes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof kIdleSeconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIntervalSeconds, sizeof kIntervalSeconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

}  // namespace gradring::transport
