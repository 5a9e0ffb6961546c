#pragma once

#include <string>
#include <string_view>

namespace gradring::transport {

// A data address travels in an envelope: the body's name, a newline, the length and a checksum of
// the raw address, the raw address. So a body is handed none that is another's, or damaged: UCX for
// one reads an address without checking it, and crashes where a byte is missing.
std::string seal_address(const std::string& name, std::string_view raw);

struct OpenedAddress {
  std::string raw;
  std::string refusal;  // in words, when raw is empty
};
OpenedAddress open_address(const std::string& name, std::string_view sealed);

}  // namespace gradring::transport
