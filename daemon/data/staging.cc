#include "daemon/data/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gradring::daemon {

tl::expected<StagingMemory, Status> StagingMemory::create(
    uint32_t slots, uint32_t start_buffers, uint32_t spares, uint64_t slice_bytes, uint64_t limit,
    std::optional<transport::Segment> outliving) {
  const uint64_t needed = bytes_for(slots, start_buffers, slice_bytes);
  if (needed > limit) {
    return tl::unexpected(
        Status(Code::kResourceExhausted,
               fmt::format("staging memory of {} bytes is above staging-limit, {} bytes a job",
                           needed, limit)));
  }
  if (outliving) return StagingMemory(std::move(*outliving), {slots, 0}, slice_bytes);
  const uint64_t bytes = needed + spares * slice_bytes;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return tl::unexpected(
        Status(Code::kResourceExhausted,
               fmt::format("no memory for {} bytes of staging: {}", bytes, std::strerror(errno))));
  }
  return StagingMemory(static_cast<std::byte*>(base), bytes, {slots, spares}, slice_bytes);
}

StagingMemory::StagingMemory(transport::Segment memory, SlotBuffers slots, uint64_t slice_bytes)
    : memory_(std::move(memory)),
      base_(memory_->memory().data()),
      bytes_(memory_->memory().size()),
      slots_(std::move(slots)),
      slice_bytes_(slice_bytes) {}

StagingMemory::StagingMemory(StagingMemory&& other) noexcept
    : units_(std::move(other.units_)),
      unit_bytes_(other.unit_bytes_),
      memory_(std::move(other.memory_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      slots_(std::move(other.slots_)),
      slice_bytes_(other.slice_bytes_),
      pinned_(std::move(other.pinned_)),
      ready_(std::move(other.ready_)) {}

Status StagingMemory::make_ready(const Lanes& lanes) {
  for (const auto& lane : lanes) {
    auto ready = lane->make_ready(memory());
    if (!ready) return ready.error();
    if (*ready != nullptr) ready_.push_back(*std::move(ready));
  }
  return {};
}

StagingMemory::~StagingMemory() {
  leave_transports();
  pinned_.reset();
  if (base_ != nullptr && !memory_) munmap(base_, bytes_);
}

}  // namespace gradring::daemon
