#include "transport/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace gradring::transport {
namespace {

// ISA-L counts bytes in an int.
constexpr size_t kBytesAtOnce = size_t{1} << 30;

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  // ISA-L's function is the bare division. The standard inverts what goes in and what comes out, so
  // that zeros in front and behind count.
  uint32_t remainder = ~before;
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kBytesAtOnce));
    // It reads only; that its parameter is not const is an oversight of the C interface.
    auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    remainder = crc32_iscsi(data, static_cast<int>(piece.size()), remainder);
    bytes = bytes.subspan(piece.size());
  }
  return ~remainder;
}

}  // namespace gradring::transport
