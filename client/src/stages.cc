#include "client/src/stages.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradring::client {
namespace {

constexpr uint64_t kLeast = 4096;

}  // namespace

uint64_t Stages::capacity_for(uint64_t bytes) {
  const uint64_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

Segment* Stages::idle(uint64_t capacity, const void* memory) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Segment& stage) {
    return stage.lent == 0 && stage.bytes == capacity && stage.gpu->serves(memory);
  });
  return found == all_.end() ? nullptr : &*found;
}

Segment& Stages::insert(Segment segment) { return all_.emplace_back(std::move(segment)); }

std::optional<Segment> Stages::take_idle_beyond(uint64_t idle_most) {
  uint64_t bytes = 0;
  auto largest = all_.end();
  for (auto stage = all_.begin(); stage != all_.end(); ++stage) {
    if (stage->lent != 0) continue;
    bytes += stage->bytes;
    if (largest == all_.end() || stage->bytes > largest->bytes) largest = stage;
  }
  if (largest == all_.end() || bytes <= idle_most) return std::nullopt;
  std::optional<Segment> taken(std::move(*largest));
  all_.erase(largest);
  return taken;
}

}  // namespace gradring::client
