#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "proto/frame.h"

namespace gradring::transport {

// A connection goes one way. First says who opened it to whom and who it is, then message after
// message, little endian:
//
//    +------------+--------------+--------------+     +---------------+-----------------+---------+
//    | "GRDTCP01" | to: 16 bytes | from: 16     | ... | payload bytes | header          | payload |
//    +------------+--------------+--------------+     +---------------+-----------------+---------+
//    0            8              24             40    0               8                 152
//
// `to` and `from` are the numbers that two transports drew at their start. Peers learn them by the
// authenticated control channel, with the address, and nobody else does.
static_assert(std::endian::native == std::endian::little);

using Identity = std::array<std::byte, 16>;

inline constexpr std::array<char, 8> kGreetingMark = {'G', 'R', 'D', 'T', 'C', 'P', '0', '1'};
inline constexpr size_t kGreetingBytes = kGreetingMark.size() + 2 * sizeof(Identity);
inline constexpr size_t kPrefixBytes = sizeof(uint64_t) + kFrameBytes;
// Nobody sends more in one message; what says so is no length.
inline constexpr uint64_t kPayloadMax = uint64_t{1} << 30;

using GreetingBytes = std::array<std::byte, kGreetingBytes>;
using PrefixBytes = std::array<std::byte, kPrefixBytes>;

inline GreetingBytes encode_greeting(const Identity& to, const Identity& from) {
  GreetingBytes bytes;
  std::memcpy(bytes.data(), kGreetingMark.data(), kGreetingMark.size());
  std::memcpy(bytes.data() + kGreetingMark.size(), to.data(), to.size());
  std::memcpy(bytes.data() + kGreetingMark.size() + to.size(), from.data(), from.size());
  return bytes;
}

// Whom it is from; nothing where it is not to `me`. Takes as long whatever is wrong.
inline std::optional<Identity> decode_greeting(std::span<const std::byte, kGreetingBytes> bytes,
                                               const Identity& me) {
  Identity from;
  std::memcpy(from.data(), bytes.data() + kGreetingMark.size() + me.size(), from.size());
  const GreetingBytes wanted = encode_greeting(me, from);
  std::byte differ{0};
  for (size_t i = 0; i < kGreetingBytes; ++i) differ |= bytes[i] ^ wanted[i];
  return differ == std::byte{0} ? std::optional(from) : std::nullopt;
}

inline PrefixBytes encode_prefix(uint64_t payload_bytes, const FrameBytes& header) {
  PrefixBytes bytes;
  std::memcpy(bytes.data(), &payload_bytes, sizeof payload_bytes);
  std::memcpy(bytes.data() + sizeof payload_bytes, header.data(), kFrameBytes);
  return bytes;
}

}  // namespace gradring::transport
