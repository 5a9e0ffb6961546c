#pragma once

#include <cstdint>

namespace gradring::transport {

// TCP ports at which a transport may listen, the first that is free; 0 to 0: the kernel chooses.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;

  explicit operator bool() const { return first != 0; }
  bool has(uint16_t port) const { return first <= port && port <= last; }
  bool operator==(const PortRange&) const = default;
};

}  // namespace gradring::transport
