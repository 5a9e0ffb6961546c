#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "transport/port_range.h"
#include "transport/transport.h"

namespace gradring::transport {

// For another thread: the slices of large sums have more bytes, and the parts of small ones, for
// which it counts that a thread must wake, have fewer.
inline constexpr size_t kTcpApartBytes = size_t{96} << 10;

struct TcpOptions {
  std::vector<std::string> devices;  // names of network interfaces; one at least
  std::string devices_reason;        // why these: for people
  // Payloads of so many bytes are sent by a thread of the transport's own, and what comes behind
  // them on the same connection; 0: the owner's thread sends all.
  size_t apart_bytes = 0;
  PortRange ports = {};  // of each address
};

// Sockets of the kernel: payloads leave from, and arrive in, the owner's memory, and are copied by
// nobody else. May be made on one thread and handed to another before its first use; from then on
// it is that thread's alone.
//
// What this body adds to the interface:
// - One connection is one direction. disconnect() is not told to the peer: tell it by other means.
// - Everything to one peer arrives in the order in which it was sent.
// - Sends to one peer that are under way are bounded (kSendsMax); more are kResourceExhausted.
// - The address has a secret in it, without which nobody is listened to.
//
// Refused: interfaces that do not exist, are down, or have no address.
tl::expected<std::unique_ptr<Transport>, Status> make_tcp_transport(const TcpOptions& options);

}  // namespace gradring::transport
