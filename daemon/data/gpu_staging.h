#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "daemon/core/staging.h"
#include "daemon/data/outbox.h"
#include "daemon/data/slot_buffers.h"
#include "transport/gpus.h"

namespace gradring::daemon {

// The memory in which slices of one job are that go round the ring on GPUs: on each GPU as many
// buffers as StagingMemory has, and for each of them as much of the host's, for what does not go
// straight. GPUs end later than the engine believes, so there are more for slots, and each counts
// what works with it. Data thread only.
class GpuStaging {
 public:
  // A buffer on a GPU.
  struct Place {
    uint32_t gpu = 0;
    uint32_t buffer = 0;

    bool operator==(const Place&) const = default;
  };
  enum class Use : uint8_t { kReads, kWrites };

  // On all GPUs that have as much; else why the first has not. Takes a driver tens of milliseconds;
  // any thread.
  static tl::expected<std::unique_ptr<GpuStaging>, Status> create(transport::Gpus& gpus,
                                                                  uint32_t slots,
                                                                  uint32_t start_buffers,
                                                                  uint64_t slice_bytes);
  // Before its first use, and by the thread whose lanes these are: they know of it from now on.
  // kUnavailable, in words: there is no GPU that all of them reach.
  Status make_ready(const Lanes& lanes);
  // Those that it is on, and why not on the others; empty: it is on all.
  std::vector<bool> gpus() const;
  std::string lacking() const;

  // Nothing is with one any more. Whatever is left is a driver's, which takes its time to give it
  // back.
  void leave_transports();

  // ---- where slices are ----
  // Something is about to be there, on this GPU. `wanted`: the final value that was there before
  // is, for as long as possible.
  Place put(core::Staging at, uint32_t gpu, bool wanted = false);
  // In the host's memory, where units always are.
  void put_on_host(core::Staging at) {
    if (at.kind != core::Staging::Kind::kUnit) place(at).reset();
  }
  // Nothing: in the host's.
  std::optional<Place> place_of(core::Staging at) const;
  transport::GpuRange range(Place place) const;
  std::byte* address(Place place) const;  // for a transport
  std::byte* on_host(Place place) const;

  // ---- what GPUs do there ----
  void begin(Place place, Use use);
  void end(Place place, Use use);
  bool is_written(Place place) const { return on_[place.gpu].writes[place.buffer] > 0; }
  bool busy() const { return under_way_ > 0; }
  // So many slots more may be given back, and will have a buffer that nobody works with.
  uint32_t room() const;

  // ---- final values, as SlotBuffers keeps them ----
  void holds(uint32_t slot, const SlotBuffers::Value& value);
  const std::optional<SlotBuffers::Value>& value_in(uint32_t slot, uint32_t gpu) const {
    return on_[gpu].slots.value_in(slot);
  }
  std::optional<Place> pin(const SlotBuffers::Value& value);
  void unpin(Place place) { on_[place.gpu].slots.unpin(place.buffer); }

 private:
  struct Freed {
    void operator()(std::byte* memory) const;
  };
  struct OnGpu {
    OnGpu(SlotBuffers buffers, size_t count) : slots(std::move(buffers)), writes(count) {}
    Status refused;  // there is no memory, or nothing may go to and from it
    std::shared_ptr<const transport::OpenGpuMemory> memory;
    std::unique_ptr<std::byte, Freed> host;
    std::unique_ptr<transport::Registration> pinned;
    std::vector<std::unique_ptr<transport::Registration>> ready;  // for the lanes
    SlotBuffers slots;
    std::vector<uint32_t> writes;  // by buffer; those of start buffers come last
  };
  GpuStaging(uint32_t slots, uint32_t start_buffers, uint64_t slice_bytes)
      : slice_bytes_(slice_bytes), slots_at_(slots), starts_at_(start_buffers) {}
  static Status make(transport::Gpus& gpus, uint32_t gpu, uint64_t bytes, OnGpu* on);
  Status make_ready(const Lanes& lanes, OnGpu* on) const;
  Status refused_by_all() const;
  std::optional<Place>& place(core::Staging at);

  const uint64_t slice_bytes_;
  std::vector<std::optional<Place>> slots_at_;
  std::vector<std::optional<Place>> starts_at_;
  std::vector<OnGpu> on_;
  size_t under_way_ = 0;
};

}  // namespace gradring::daemon
