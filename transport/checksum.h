#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradring::transport {

// CRC32C (Castagnoli), as iSCSI, NVMe and ext4 have it: RFC 3720, appendix B.4. Finds every burst
// of errors up to 32 bits, and any other change with a chance of 1 in 2^32 to miss it. It is no
// defence against somebody who means harm.
//
// `before` is the checksum of the bytes in front of these, so that
//   crc32c(b, crc32c(a)) == crc32c(a followed by b).
// Any length and any alignment. Thread-safe.
//
// On a Zen 3 core and slices of 64 to 256 KiB in its cache: 23 GB/s, where a copy does 40 to 47 and
// the fold of two float32 inputs 73 to 79 of what it reads (`checksum_bench`). A checksum of a
// slice takes 1.6 times as long as summing it.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace gradring::transport
