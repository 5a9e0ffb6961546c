#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "transport/tcp/wire.h"

namespace gradring::transport {

// An address of an interface, and a port there.
struct Endpoint {
  bool v6 = false;
  std::array<std::byte, 16> address{};  // the first 4 of IPv4
  uint8_t network_bits = 0;             // how many of them name its network; of our own alone
  uint16_t port = 0;

  std::string text() const;  // "10.0.0.1:4711"
};

// What connects: where we are, and where they are.
struct Way {
  Endpoint to;
  std::optional<Endpoint> from;  // the interface's own address; none: the kernel chooses
};

// The addresses of interfaces, those of IPv4 first. Refused: one that does not exist, is down or
// has none. What is valid on one link alone (fe80::) is no address for this.
tl::expected<std::vector<Endpoint>, Status> endpoints_of(const std::vector<std::string>& devices);

// Pure: those of another machine at which it can be met. Interfaces of two may have one address, as
// those to a machine's controller often do: by that, at the same port, each would meet itself.
std::vector<Endpoint> others_of(const std::vector<Endpoint>& theirs,
                                const std::vector<Endpoint>& ours);

// Pure: the ways from one of `ours` to one of `theirs`, the best first: within a network, then by
// whatever route there is. `binds`: ours are of one interface, by which it is to go.
std::vector<Way> ways_between(const std::vector<Endpoint>& ours,
                              const std::vector<Endpoint>& theirs, bool binds);

// A transport's raw address: who it is and where it listens. What is no such thing is nothing.
struct RawAddress {
  Identity identity{};
  std::vector<Endpoint> endpoints;
};
std::string encode_address(const RawAddress& address);
std::optional<RawAddress> decode_address(std::string_view bytes);

// For the kernel. `length` is the part of it that counts.
sockaddr_storage sockaddr_of(const Endpoint& endpoint, socklen_t* length);
uint16_t port_of(const sockaddr_storage& address);

}  // namespace gradring::transport
