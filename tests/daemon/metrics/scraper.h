#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "daemon/fd.h"

namespace gradring::daemon::metrics {

inline Fd connect_to(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(fd.get(), to, sizeof address) != 0) fd.reset();
  return fd;
}

// What comes until the other side closes, or for 20 s.
inline std::string answer_on(const Fd& fd) {
  std::string text;
  pollfd waiting{fd.get(), POLLIN, 0};
  char bytes[4096];
  while (poll(&waiting, 1, 20'000) > 0) {
    const ssize_t count = recv(fd.get(), bytes, sizeof bytes, 0);
    if (count <= 0) break;
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

inline std::string ask(int port, const std::string& request) {
  const Fd fd = connect_to(port);
  if (!fd) return "";
  send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  return answer_on(fd);
}

inline const char* const kScrape = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

}  // namespace gradring::daemon::metrics
