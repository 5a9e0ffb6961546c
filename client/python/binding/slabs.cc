#include "client/python/binding/slabs.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace gradring::python {
namespace {

constexpr size_t kSlotsMost = 64;
// Ops that are summed at the same time then share no cache line.
constexpr size_t kSmallest = 256;
constexpr size_t kSmall = size_t{64} << 10;
// A segment with one slot in use is not given back.
constexpr size_t kBytesMost = size_t{64} << 20;

uint64_t all_of(size_t slots) { return ~uint64_t{0} >> (kSlotsMost - slots); }

// So that large blocks fit again where sizes differ a little: an eighth more at most.
size_t slot_for(size_t bytes) {
  if (bytes <= kSmall) return std::bit_ceil(std::max(bytes, kSmallest));
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

size_t Slabs::bytes_for(size_t bytes) const {
  const size_t slot = slot_for(bytes);
  if (bytes <= kSmall) return kSlotsMost * slot;
  const auto there = slots_.find(slot);
  const size_t quarter = there == slots_.end() ? 0 : std::bit_floor(there->second) / 4;
  const size_t most = std::bit_floor(std::clamp<size_t>(kBytesMost / slot, 1, kSlotsMost));
  return slot * std::clamp<size_t>(quarter, 1, most);
}

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

void Slabs::add(std::byte* segment, size_t segment_bytes, size_t bytes) {
  const size_t size = slot_for(bytes);
  const size_t slots = segment_bytes / size;
  slabs_[segment] = {size, slots, all_of(slots)};
  with_idle_.emplace(size, segment);
  slots_[size] += slots;
}

std::optional<Slabs::Segment> Slabs::give_back(std::byte* slot) {
  const auto around = std::prev(slabs_.upper_bound(slot));
  std::byte* const segment = around->first;
  auto& [size, slots, idle] = around->second;
  idle |= uint64_t{1} << (static_cast<size_t>(slot - segment) / size);
  if (idle != all_of(slots)) {
    with_idle_.emplace(size, segment);
    return std::nullopt;
  }
  const Segment whole{segment, slots * size};
  with_idle_.erase({size, segment});
  if ((slots_[size] -= slots) == 0) slots_.erase(size);
  slabs_.erase(around);
  return whole;
}

}  // namespace gradring::python
