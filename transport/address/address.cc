#include "transport/address.h"

#include <cstdint>

namespace gradring::transport {
namespace {

constexpr size_t kNumberBytes = 4;

// FNV-1a: against damage, not against malice. Addresses come over the authenticated control
// channel.
uint32_t checksum(std::string_view bytes) {
  uint32_t hash = 2166136261u;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619u;
  return hash;
}

void put(uint32_t number, std::string* to) {
  for (size_t i = 0; i < kNumberBytes; ++i) to->push_back(static_cast<char>(number >> (8 * i)));
}

uint32_t get(std::string_view from) {
  uint32_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    number |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  }
  return number;
}

}  // namespace

std::string seal_address(const std::string& name, std::string_view raw) {
  std::string sealed = name + '\n';
  put(static_cast<uint32_t>(raw.size()), &sealed);
  put(checksum(raw), &sealed);
  return sealed.append(raw);
}

OpenedAddress open_address(const std::string& name, std::string_view sealed) {
  const size_t end = sealed.substr(0, 64).find('\n');
  if (end == std::string_view::npos) return {"", "it is not an address of this transport"};
  const std::string_view theirs = sealed.substr(0, end);
  if (theirs != name) {
    return {"", "it is of '" + std::string(theirs) + "' and this node runs '" + name +
                    "'; run the same minor version of it, and one tcp-by, on all nodes"};
  }
  const std::string_view rest = sealed.substr(end + 1);
  if (rest.size() <= 2 * kNumberBytes || rest.size() - 2 * kNumberBytes != get(rest) ||
      checksum(rest.substr(2 * kNumberBytes)) != get(rest.substr(kNumberBytes))) {
    return {"", "it was damaged on the way"};
  }
  return {std::string(rest.substr(2 * kNumberBytes)), ""};
}

}  // namespace gradring::transport
