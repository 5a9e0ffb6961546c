#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "proto/frame.h"
#include "transport/checksum.h"

namespace gradring::daemon {

// The last four bytes of every frame's header: CRC32C of all before it. A header that came damaged
// is not believed in anything, least of all in which slice its payload is.
inline constexpr size_t kSealAt = kFrameBytes - sizeof(uint32_t);

inline uint32_t seal_of(std::span<const std::byte, kFrameBytes> header) {
  return transport::crc32c(header.first(kSealAt));
}

inline FrameBytes sealed(FrameBytes header) {
  const uint32_t seal = seal_of(header);
  std::memcpy(header.data() + kSealAt, &seal, sizeof seal);
  return header;
}
// A frame as it goes out.
inline FrameBytes sealed(const Frame& frame) { return sealed(encode(frame)); }

// Whether a header of any length is as it was sent.
inline bool is_sound(std::span<const std::byte> header) {
  if (header.size() != kFrameBytes) return false;
  uint32_t seal = 0;
  std::memcpy(&seal, header.data() + kSealAt, sizeof seal);
  return seal == seal_of(header.first<kFrameBytes>());
}

// What stands where the token is, even in a damaged header.
inline uint64_t token_in(std::span<const std::byte> header) {
  constexpr size_t kTokenAt = 8;
  uint64_t token = 0;
  if (header.size() >= kTokenAt + sizeof token) {
    std::memcpy(&token, header.data() + kTokenAt, sizeof token);
  }
  return token;
}

}  // namespace gradring::daemon
