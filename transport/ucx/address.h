#pragma once

#include <string>
#include <string_view>

namespace gradring::transport {

// UCX reads a worker address without checking it, and an address with a byte missing or from
// another release crashes the reader. So it travels in an envelope: the body's name, a newline, the
// length and a checksum of the raw address, the raw address.
std::string seal_address(const std::string& name, std::string_view raw);

struct OpenedAddress {
  std::string raw;
  std::string refusal;  // in words, when raw is empty
};
OpenedAddress open_address(const std::string& name, std::string_view sealed);

}  // namespace gradring::transport
