#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>

#include "proto/frame.h"

namespace gradring {

// Small frames that go the same way at the same time share a message of the data transport. Its
// header says how its payload is to be cut:
//
//    0        4     5       6       8               16                                140    144
//    +--------+-----+-------+-------+---------------+----------------------------------+------+
//    | "GRDB" | ver | count |  0    | session token | payload of each frame: 2 bytes   | seal |
//    +--------+-----+-------+-------+---------------+----------------------------------+------+
//
// and the payload is frames one behind the other, each with its own header and what follows that.
// Each is sealed, and believed or not, for itself; so nothing depends on the bundle's token but
// whom to name when it comes damaged. Token and seal are where a frame's are.
inline constexpr size_t kBundleFramesMax = 62;
// Of the payload. What a peer takes, its hello says; this is what anybody may be asked to take.
inline constexpr size_t kBundleBytesMax = 64 << 10;

struct Bundle {
  uint64_t token = 0;
  uint8_t count = 0;
  std::array<uint16_t, kBundleFramesMax> lengths{};  // of the frames' payloads
  size_t bytes = 0;                                  // of all frames, headers included

  bool has_room_for(size_t payload_bytes, size_t bytes_max) const {
    return count < kBundleFramesMax && payload_bytes <= UINT16_MAX &&
           bytes + kFrameBytes + payload_bytes <= bytes_max;
  }
  // Requires has_room_for().
  void add(size_t payload_bytes) {
    lengths[count++] = static_cast<uint16_t>(payload_bytes);
    bytes += kFrameBytes + payload_bytes;
  }
};

// Whether a header begins as that of a bundle, rather than of a frame.
bool is_bundle(std::span<const std::byte> header);

// The seal is zero.
FrameBytes encode(const Bundle& bundle);

// Of two frames or more, and kBundleBytesMax at most. Whether `bytes` came is for the caller to
// see; the error is a sentence for a log.
tl::expected<Bundle, std::string> decode_bundle(std::span<const std::byte> header);

// One frame after the other, out of a bundle's payload of bundle.bytes.
class BundleReader {
 public:
  BundleReader(const Bundle& bundle, std::span<const std::byte> payload)
      : bundle_(bundle), rest_(payload) {}

  struct Part {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
  };
  std::optional<Part> next();

 private:
  const Bundle& bundle_;
  std::span<const std::byte> rest_;
  size_t read_ = 0;
};

}  // namespace gradring
