#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradring::machine {

// Where a device sits on PCI. NVML writes 00000000:17:00.0, CUDA and Linux 0000:17:00.0, in either
// case: all of these are read, and Linux's is written.
struct PciAddress {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;
  uint8_t function = 0;

  auto operator<=>(const PciAddress&) const = default;
};

std::optional<PciAddress> parse_pci(std::string_view text);
std::string text_of(const PciAddress& address);

}  // namespace gradring::machine
