#include "transport/tcp/endpoints.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/interface_name.h"

namespace gradring::transport {
namespace {

constexpr size_t kEndpointBytes = 1 + 2 + 16;
constexpr size_t kEndpointsMax = 255;

std::optional<Endpoint> endpoint_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr) return std::nullopt;
  const auto bits_of = [](const void* mask, size_t bytes) {
    int bits = 0;
    for (size_t i = 0; i < bytes; ++i) bits += std::popcount(static_cast<const uint8_t*>(mask)[i]);
    return static_cast<uint8_t>(bits);
  };
  Endpoint endpoint;
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr;
    const auto& mask = reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask)->sin_addr;
    std::memcpy(endpoint.address.data(), &address, sizeof address);
    endpoint.network_bits = bits_of(&mask, sizeof mask);
    return endpoint;
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return std::nullopt;
  const auto& address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
  const auto& mask = reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask)->sin6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&address)) return std::nullopt;
  endpoint.v6 = true;
  std::memcpy(endpoint.address.data(), &address, sizeof address);
  endpoint.network_bits = bits_of(&mask, sizeof mask);
  return endpoint;
}

bool in_one_network(const Endpoint& ours, const Endpoint& theirs) {
  if (ours.v6 != theirs.v6) return false;
  for (size_t bit = 0; bit < ours.network_bits; ++bit) {
    const auto mask = std::byte{static_cast<uint8_t>(0x80u >> (bit % 8))};
    if ((ours.address[bit / 8] & mask) != (theirs.address[bit / 8] & mask)) return false;
  }
  return true;
}

}  // namespace

std::string Endpoint::text() const {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(v6 ? AF_INET6 : AF_INET, address.data(), text, sizeof text);
  return v6 ? fmt::format("[{}]:{}", text, port) : fmt::format("{}:{}", text, port);
}

tl::expected<std::vector<Endpoint>, Status> endpoints_of(const std::vector<std::string>& devices) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    return tl::unexpected(Status(
        Code::kInternal, fmt::format("cannot list network interfaces: {}", std::strerror(errno))));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  std::vector<Endpoint> endpoints;
  for (const std::string& device : devices) {
    const size_t before = endpoints.size();
    bool known = false;
    for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
      if (interface_named_by(*entry) != device) continue;
      known = true;
      if ((entry->ifa_flags & IFF_UP) == 0) continue;
      if (const auto endpoint = endpoint_of(*entry)) endpoints.push_back(*endpoint);
    }
    if (endpoints.size() > before) continue;
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               known ? fmt::format("network interface '{}' is down or has no IP address", device)
                     : fmt::format("there is no network interface '{}'", device)));
  }
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const Endpoint& one) { return !one.v6; });
  if (endpoints.size() > kEndpointsMax) endpoints.resize(kEndpointsMax);
  return endpoints;
}

std::vector<Endpoint> others_of(const std::vector<Endpoint>& theirs,
                                const std::vector<Endpoint>& ours) {
  std::vector<Endpoint> others = theirs;
  std::erase_if(others, [&ours](const Endpoint& to) {
    return std::ranges::any_of(ours, [&to](const Endpoint& own) {
      return own.v6 == to.v6 && own.port == to.port && own.address == to.address;
    });
  });
  return others;
}

std::vector<Way> ways_between(const std::vector<Endpoint>& ours,
                              const std::vector<Endpoint>& theirs, bool binds) {
  const auto from = [binds](const Endpoint& own) {
    std::optional<Endpoint> at;
    if (binds) at.emplace(own).port = 0;  // ours is taken, by who listens there
    return at;
  };
  std::vector<Way> near, far;
  for (const Endpoint& to : theirs) {
    const auto neighbour =
        std::ranges::find_if(ours, [&](const Endpoint& one) { return in_one_network(one, to); });
    const auto alike =
        std::ranges::find_if(ours, [&](const Endpoint& one) { return one.v6 == to.v6; });
    if (neighbour != ours.end()) {
      near.push_back({to, from(*neighbour)});
    } else if (alike != ours.end()) {
      far.push_back({to, from(*alike)});
    }
  }
  near.insert(near.end(), far.begin(), far.end());
  return near;
}

std::string encode_address(const RawAddress& address) {
  std::string bytes(reinterpret_cast<const char*>(address.identity.data()), sizeof(Identity));
  for (const Endpoint& endpoint : address.endpoints) {
    bytes += static_cast<char>(endpoint.v6 ? 6 : 4);
    bytes += static_cast<char>(endpoint.port & 0xff);
    bytes += static_cast<char>(endpoint.port >> 8);
    bytes.append(reinterpret_cast<const char*>(endpoint.address.data()), endpoint.address.size());
  }
  return bytes;
}

std::optional<RawAddress> decode_address(std::string_view bytes) {
  RawAddress address;
  if (bytes.size() <= sizeof(Identity)) return std::nullopt;
  std::memcpy(address.identity.data(), bytes.data(), sizeof(Identity));
  bytes.remove_prefix(sizeof(Identity));
  if (bytes.size() % kEndpointBytes != 0 || bytes.size() / kEndpointBytes > kEndpointsMax) {
    return std::nullopt;
  }
  for (; !bytes.empty(); bytes.remove_prefix(kEndpointBytes)) {
    if (bytes[0] != 4 && bytes[0] != 6) return std::nullopt;
    Endpoint endpoint;
    endpoint.v6 = bytes[0] == 6;
    endpoint.port = static_cast<uint16_t>(static_cast<uint8_t>(bytes[1]) |
                                          (static_cast<uint8_t>(bytes[2]) << 8));
    std::memcpy(endpoint.address.data(), bytes.data() + 3, endpoint.address.size());
    address.endpoints.push_back(endpoint);
  }
  return address;
}

sockaddr_storage sockaddr_of(const Endpoint& endpoint, socklen_t* length) {
  sockaddr_storage address{};
  if (endpoint.v6) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    std::memcpy(&v6->sin6_addr, endpoint.address.data(), sizeof v6->sin6_addr);
    *length = sizeof *v6;
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    std::memcpy(&v4->sin_addr, endpoint.address.data(), sizeof v4->sin_addr);
    *length = sizeof *v4;
  }
  return address;
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace gradring::transport
