#include "client/python/binding/slabs.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace gradring::python {
namespace {

constexpr size_t kSlots = 64;
// Ops that are summed at the same time then share no cache line.
constexpr size_t kSmallest = 256;
constexpr uint64_t kAllIdle = ~uint64_t{0};

size_t slot_for(size_t bytes) { return std::bit_ceil(std::max(bytes, kSmallest)); }

}  // namespace

size_t Slabs::bytes_for(size_t bytes) { return kSlots * slot_for(bytes); }

std::byte* Slabs::take(size_t bytes) {
  const size_t size = slot_for(bytes);
  const auto found = with_idle_.lower_bound({size, nullptr});
  if (found == with_idle_.end() || found->first != size) return nullptr;
  std::byte* const segment = found->second;
  uint64_t& idle = slabs_.at(segment).idle;
  const auto slot = static_cast<size_t>(std::countr_zero(idle));
  idle &= idle - 1;
  if (idle == 0) with_idle_.erase(found);
  return segment + slot * size;
}

void Slabs::add(std::byte* segment, size_t bytes) {
  const size_t size = slot_for(bytes);
  slabs_[segment] = {size, kAllIdle};
  with_idle_.emplace(size, segment);
}

std::optional<Slabs::Segment> Slabs::give_back(std::byte* slot) {
  const auto around = std::prev(slabs_.upper_bound(slot));
  std::byte* const segment = around->first;
  auto& [size, idle] = around->second;
  idle |= uint64_t{1} << (static_cast<size_t>(slot - segment) / size);
  if (idle != kAllIdle) {
    with_idle_.emplace(size, segment);
    return std::nullopt;
  }
  const Segment whole{segment, kSlots * size};
  with_idle_.erase({size, segment});
  slabs_.erase(around);
  return whole;
}

}  // namespace gradring::python
