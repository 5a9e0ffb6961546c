#include "client/src/memory/segments.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <vector>

namespace gradring::client {

GpuMemory::Copy Loan::copy(const Passage& passage) const {
  if (!passage.on_gpu) return {shared(), users(), passage.bytes, passage.part_bytes};
  const auto& block = place_.segment->block;
  if (block == nullptr) return {nullptr, users(), 0, 0, true, !passage.in_order};
  return {block->data() + place_.offset, users(), passage.bytes, passage.bytes, true};
}

tl::expected<bool, Status> Loan::begin(const Loan& input, const Loan& output,
                                       const Passage& passage, void* stream,
                                       const StreamWord& reached) {
  const Loan& place = input.of_a_gpu() ? input : output;
  std::vector<const GpuMemory*> stages;
  for (const Loan* const loan : {&input, &output}) {
    if (!loan->of_a_gpu() || !loan->place_.segment->staged) continue;
    const GpuMemory* const gpu = loan->place_.segment->gpu.get();
    if (stages.empty() || stages.back() != gpu) stages.push_back(gpu);
  }
  return place.place_.segment->gpu->begin(place.copy(passage), stream, reached, stages);
}

Status Loan::fetch(uint64_t bytes, void* stream) const {
  const auto& gpu = place_.segment->gpu;
  if (gpu != nullptr) return gpu->fetch(shared(), users(), bytes, stream);
  std::memcpy(shared(), users(), bytes);
  return {};
}

Status Loan::deliver(const Passage& passage) const {
  const auto& gpu = place_.segment->gpu;
  if (gpu != nullptr) return gpu->deliver(copy(passage));
  std::memcpy(users(), shared(), passage.bytes);
  return {};
}

Status Loan::reach(void* stream) const { return place_.segment->gpu->reach(stream); }

tl::expected<Place, Status> Segments::find(const void* start, uint64_t bytes,
                                           std::string_view what) {
  Segment* const segment = around(start);
  if (segment == nullptr) {
    return tl::unexpected(
        Status(Code::kNotFound,
               fmt::format("{}: {} is not within memory of gradring_alloc or gradring_register",
                           what, start)));
  }
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(start) - segment->base);
  // Compared as what is left, because offset + bytes may pass the end of the numbers.
  if (bytes <= segment->bytes - offset) return Place{segment, offset};
  return tl::unexpected(Status(
      Code::kNotFound,
      fmt::format("{}: {} bytes at {} pass the end of their buffer, which has {} bytes from there",
                  what, bytes, start, segment->bytes - offset)));
}

Segment* Segments::around(const void* start) {
  const auto* address = static_cast<const std::byte*>(start);
  const auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return nullptr;
  Segment& segment = std::prev(after)->second;
  return static_cast<uint64_t>(address - segment.base) < segment.bytes ? &segment : nullptr;
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

std::vector<uint64_t> Segments::ids_of_those_opened() const {
  std::vector<uint64_t> ids;
  for (const auto& [base, segment] : by_base_) {
    if (segment.opened && segment.borrowed == 0) ids.push_back(segment.id);
  }
  return ids;
}

Segment* Segments::any(const std::function<bool(const Segment&)>& wanted) {
  for (auto& [base, segment] : by_base_) {
    if (wanted(segment)) return &segment;
  }
  return nullptr;
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
