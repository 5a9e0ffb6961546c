#include "client/src/segments.h"

#include <fmt/format.h>

#include <iterator>

namespace gradring::client {

tl::expected<Place, Status> Segments::find(const void* start, uint64_t bytes,
                                           std::string_view what) {
  const auto* address = static_cast<const std::byte*>(start);
  auto after = by_base_.upper_bound(address);
  if (after != by_base_.begin()) {
    Segment& segment = std::prev(after)->second;
    const auto offset = static_cast<uint64_t>(address - segment.base);
    // Compared as what is left, because offset + bytes may pass the end of the numbers.
    if (offset < segment.bytes) {
      if (bytes <= segment.bytes - offset) return Place{&segment, offset};
      return tl::unexpected(Status(
          Code::kNotFound,
          fmt::format(
              "{}: {} bytes at {} pass the end of their buffer, which has {} bytes from there",
              what, bytes, start, segment.bytes - offset)));
    }
  }
  return tl::unexpected(
      Status(Code::kNotFound,
             fmt::format("{}: {} is not within memory of gradring_alloc or gradring_register", what,
                         start)));
}

bool Segments::touches(const void* start, uint64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(start);
  const auto at_or_after = by_base_.lower_bound(first);
  if (at_or_after != by_base_.end() && static_cast<uint64_t>(at_or_after->first - first) < bytes) {
    return true;
  }
  if (at_or_after == by_base_.begin()) return false;
  const Segment& before = std::prev(at_or_after)->second;
  return static_cast<uint64_t>(first - before.base) < before.bytes;
}

Segment* Segments::at(const void* start) {
  const auto found = by_base_.find(static_cast<const std::byte*>(start));
  return found == by_base_.end() ? nullptr : &found->second;
}

Segment& Segments::insert(Segment segment) {
  const std::byte* base = segment.base;
  return by_base_.emplace(base, std::move(segment)).first->second;
}

Segment Segments::take(Segment& segment) {
  auto node = by_base_.extract(segment.base);
  return std::move(node.mapped());
}

}  // namespace gradring::client
