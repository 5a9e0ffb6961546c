#include "transport/machine/pci.h"

#include <fmt/format.h>

#include <charconv>

namespace gradring::machine {
namespace {

// Takes a hexadecimal number of at most `digits` digits, and what must stand behind it.
bool take(std::string_view* text, size_t digits, std::string_view behind, uint32_t* value) {
  const size_t most = std::min(digits, text->size());
  const char* const begin = text->data();
  const auto [end, error] = std::from_chars(begin, begin + most, *value, 16);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - begin));
  if (text->substr(0, behind.size()) != behind) return false;
  text->remove_prefix(behind.size());
  return true;
}

}  // namespace

std::optional<PciAddress> parse_pci(std::string_view text) {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  const bool good = take(&text, 8, ":", &domain) && take(&text, 2, ":", &bus) &&
                    take(&text, 2, ".", &device) && take(&text, 1, "", &function);
  if (!good || !text.empty() || device > 0x1f || function > 7) return std::nullopt;
  return PciAddress{domain, static_cast<uint8_t>(bus), static_cast<uint8_t>(device),
                    static_cast<uint8_t>(function)};
}

std::string text_of(const PciAddress& address) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", address.domain, address.bus, address.device,
                     address.function);
}

}  // namespace gradring::machine
