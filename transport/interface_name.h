#pragma once

#include <ifaddrs.h>

#include <string_view>

namespace gradring {

// The interface that an entry of getifaddrs(3) is of. An address may have a label, "eth0:1", as
// those have that move from node to node, and is named by it there; no interface's name has a colon
// (dev_valid_name() in the kernel's net/core/dev.c).
inline std::string_view interface_named_by(const ifaddrs& entry) {
  const std::string_view name = entry.ifa_name;
  return name.substr(0, name.find(':'));
}

}  // namespace gradring
