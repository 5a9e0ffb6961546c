#include <algorithm>

#include "proto/version.h"

namespace gradring {
namespace {

uint32_t oldest_of(const Protocols& side) { return side.oldest == 0 ? side.newest : side.oldest; }

}  // namespace

std::optional<uint32_t> common_protocol(const Protocols& ours, const Protocols& theirs) {
  const uint32_t newest = std::min(ours.newest, theirs.newest);
  if (newest < std::max(oldest_of(ours), oldest_of(theirs))) return std::nullopt;
  return newest;
}

std::string describe(const Protocols& protocols) {
  const uint32_t oldest = oldest_of(protocols);
  const std::string newest = std::to_string(protocols.newest);
  return oldest == protocols.newest ? newest : std::to_string(oldest) + " to " + newest;
}

}  // namespace gradring
