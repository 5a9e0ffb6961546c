#include "tools/run/here.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>

namespace gradring::tools {
namespace {

// Of IPv4 the address that IPv6 has for it.
in6_addr as_ipv6(const in_addr& address) {
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(&mapped.s6_addr[12], &address, sizeof address);
  return mapped;
}

std::optional<in6_addr> address_in(const std::string& text) {
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return as_ipv6(four);
  in6_addr six{};
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) return six;
  return std::nullopt;
}

std::optional<in6_addr> address_in(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    return as_ipv6(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
}

bool is_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == IN_LOOPBACKNET);
}

bool is_own(const in6_addr& address) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const auto own = address_in(entry->ifa_addr);
    if (own && IN6_ARE_ADDR_EQUAL(&*own, &address)) return true;
  }
  return false;
}

}  // namespace

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_name_of(const std::string& host, const std::string& own) {
  const auto is = [&](const std::string& name) {
    return strcasecmp(host.c_str(), name.c_str()) == 0;
  };
  return is(own) || is(own.substr(0, own.find('.')));
}

bool is_here(const std::string& host) {
  if (host.empty() || host == "localhost" || is_name_of(host, host_name())) return true;
  const auto address = address_in(host);
  return address && (is_loopback(*address) || is_own(*address));
}

std::string name_for_others(const std::string& host) {
  std::string alone = host.substr(host.find('@') + 1);
  const auto address = address_in(alone);
  if (alone.empty() || alone == "localhost" || (address && is_loopback(*address))) {
    return host_name();
  }
  return alone;
}

bool port_is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;  // whoever listens there sees
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // as torch's store does
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

}  // namespace gradring::tools
