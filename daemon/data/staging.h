#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/data/outbox.h"
#include "daemon/data/slot_buffers.h"
#include "proto/status.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace gradring::daemon {

// The memory in which the slices of one job are while they are nobody's buffer: those of the
// receive slots, then start buffers, each `slice_bytes` long. Its size is known when the job is
// installed and never changes, whatever the tensors' sizes; pages that no slice has touched cost
// nothing. Units, which only small ops need, come as they are asked for and stay.
class StagingMemory {
 public:
  static uint64_t bytes_for(uint32_t slots, uint32_t start_buffers, uint64_t slice_bytes) {
    return (uint64_t{slots} + start_buffers) * slice_bytes;
  }
  // Refuses in words when it would exceed `limit` or the system has no memory. `spares`: buffers
  // beside those of the slots, which count against no limit here. `outliving`: memory of enough
  // bytes that outlives the process, to be used instead of some of its own; there are no spares.
  static tl::expected<StagingMemory, Status> create(uint32_t slots, uint32_t start_buffers,
                                                    uint32_t spares, uint64_t slice_bytes,
                                                    uint64_t limit,
                                                    std::optional<transport::Segment> outliving);

  StagingMemory(StagingMemory&& other) noexcept;
  StagingMemory& operator=(StagingMemory&&) = delete;
  ~StagingMemory();

  std::byte* at(core::Staging staging) const {
    if (staging.kind == core::Staging::Kind::kUnit) {
      return units_[staging.index / kUnitsAtOnce].get() +
             staging.index % kUnitsAtOnce * unit_bytes_;
    }
    const bool slot = staging.kind == core::Staging::Kind::kSlot;
    return buffer(slot ? slots_.of(staging.index) : slots_.count() + staging.index);
  }
  SlotBuffers& slots() { return slots_; }
  std::byte* buffer(uint32_t number) const { return base_ + number * slice_bytes_; }
  // Before the first use of such a unit. Ends the process when there is no memory.
  void have_unit(uint32_t index, uint64_t unit_bytes) {
    unit_bytes_ = unit_bytes;
    while (units_.size() <= index / kUnitsAtOnce) {
      units_.push_back(std::make_unique_for_overwrite<std::byte[]>(kUnitsAtOnce * unit_bytes));
    }
  }
  // Before its first use, and by the thread whose lanes these are: they know of it for as long as
  // this lives, and end later. Refused, in words: one of them does not take it.
  Status make_ready(const Lanes& lanes);
  // By GPUs, for as long as this lives.
  void keep_pinned(std::unique_ptr<transport::Registration> pinned) { pinned_ = std::move(pinned); }
  // Whatever is left is a driver's, which takes its time to give it back.
  void leave_transports() { ready_.clear(); }
  bool pinned() const { return pinned_ != nullptr; }
  std::span<std::byte> memory() const { return {base_, bytes_}; }
  uint64_t bytes() const { return bytes_ + units_.size() * kUnitsAtOnce * unit_bytes_; }

 private:
  StagingMemory(std::byte* base, uint64_t bytes, SlotBuffers slots, uint64_t slice_bytes)
      : base_(base), bytes_(bytes), slots_(std::move(slots)), slice_bytes_(slice_bytes) {}
  StagingMemory(transport::Segment memory, SlotBuffers slots, uint64_t slice_bytes);

  static constexpr uint32_t kUnitsAtOnce = 16;

  std::vector<std::unique_ptr<std::byte[]>> units_;
  uint64_t unit_bytes_ = 0;
  std::optional<transport::Segment> memory_;  // else a mapping of its own
  std::byte* base_;
  uint64_t bytes_;
  SlotBuffers slots_;
  uint64_t slice_bytes_;
  std::unique_ptr<transport::Registration> pinned_;
  std::vector<std::unique_ptr<transport::Registration>> ready_;
};

}  // namespace gradring::daemon
