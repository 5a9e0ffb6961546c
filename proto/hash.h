#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradring {

// FNV-1a, 64 bits, with the algorithm's published offset and prime; 1 where that is 0. Every
// binding must compute the same.
inline uint64_t fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3u;
  }
  return hash != 0 ? hash : 1;
}

}  // namespace gradring
