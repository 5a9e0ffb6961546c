#include "client/src/gpu/stages.h"

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

Segment* Stages::idle(uint64_t capacity, const void* memory, bool with_block) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Stage& stage) {
    const Segment& segment = stage.segment;
    return segment.lent == 0 && segment.bytes == capacity &&
           (segment.block != nullptr) == with_block && segment.gpu->serves(memory);
  });
  if (found == all_.end()) return nullptr;
  found->used = ++uses_;
  return &found->segment;
}

Segment& Stages::insert(Segment segment) {
  return all_.emplace_back(Stage{std::move(segment), ++uses_}).segment;
}

std::optional<Segment> Stages::take(std::list<Stage>::iterator stage) {
  std::optional<Segment> taken(std::move(stage->segment));
  all_.erase(stage);
  return taken;
}

std::optional<Segment> Stages::take_idle_beyond(uint64_t idle_most) {
  uint64_t bytes = 0;
  auto largest = all_.end();
  for (auto stage = all_.begin(); stage != all_.end(); ++stage) {
    if (stage->segment.lent != 0) continue;
    bytes += stage->segment.bytes;
    if (largest == all_.end() || stage->segment.bytes > largest->segment.bytes) largest = stage;
  }
  if (largest == all_.end() || bytes <= idle_most) return std::nullopt;
  return take(largest);
}

std::optional<Segment> Stages::take_long_idle_block() {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Stage& stage) {
    return stage.segment.block != nullptr && stage.segment.lent == 0 && uses_ - stage.used >= kLong;
  });
  return found == all_.end() ? std::nullopt : take(found);
}

std::vector<uint64_t> Stages::ids_of_those_with_blocks() const {
  std::vector<uint64_t> ids;
  for (const Stage& stage : all_) {
    if (stage.segment.block != nullptr) ids.push_back(stage.segment.id);
  }
  return ids;
}

}  // namespace gradring::client
