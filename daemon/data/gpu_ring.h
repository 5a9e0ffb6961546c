#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/engine_actions.h"
#include "daemon/data/gpu_ops.h"
#include "daemon/data/gpu_orders.h"
#include "daemon/data/gpu_staging.h"

namespace gradring::daemon {

// The hands of a job's engine for slices that go round the ring on GPUs: what JobExecutor does with
// the host's memory and its processor, GPUs do here with theirs, some time later, but in the same
// order. So whatever the engine has done lies ready for what it does next; what goes to other nodes
// waits until it has been done. Data thread only.
class GpuRing {
 public:
  // Slices no longer than this go by way of the host, since they may share a message with others.
  static constexpr uint32_t kByHostMax = Outbox::kGatheredPayloadMax;

  GpuRing(std::unique_ptr<GpuStaging> staging, GpuOrders* orders, GpuOps* ops)
      : staging_(std::move(staging)), orders_(orders), ops_(ops) {}

  // Once it is not busy: nothing else is asked of it from then on.
  std::unique_ptr<GpuStaging> take_staging() { return std::move(staging_); }

  // ---- slices that come ----
  // One is about to land in the slot; `wanted` says of the value that was there before whether it
  // may still be kept. Null: in the host's memory, since its op does not ride.
  struct Landing {
    std::byte* to = nullptr;
    std::byte* on_host = nullptr;
  };
  std::optional<Landing> land(const core::Staging& at, const Frame& frame,
                              const std::function<bool(const SlotBuffers::Value&)>& wanted);
  // Of what landed there; null: in the host's staging memory.
  std::byte* on_host(core::Staging at) const;
  // It did: in its op's turn it is to be on the GPU.
  void bring(core::Staging at, const OpKey& key, uint32_t bytes);

  // ---- what the engine wants of an op that rides ----
  void fold(const core::FoldOrder& order);
  void deliver(const core::Op& op, uint32_t slice, core::Staging from);
  std::optional<uint32_t> keep(const core::Op& op, uint32_t slice);
  void drop(uint32_t kept) { staging_->unpin(place_of_kept(kept)); }
  static bool has_kept(uint32_t kept) { return (kept & kKeptHere) != 0; }
  // Also of an op that has ended here: then of one that is kept.
  void fetch(const core::Op& op, uint32_t slice, core::Staging to);

  // ---- slices that go ----
  struct Parcel {
    uint32_t member = 0;
    Frame frame;
    core::Staging from;
  };
  // Whether it must wait; then it is among those of take_ready(), once.
  bool waits(const Parcel& parcel);
  std::vector<Parcel> take_ready();
  // Where a payload of that staging lies for the transport; null: in the host's.
  std::byte* payload_at(core::Staging from, uint32_t bytes) const;
  void holds(uint32_t slot, const SlotBuffers::Value& value) { staging_->holds(slot, value); }
  bool has(core::Staging at) const { return staging_->place_of(at).has_value(); }
  std::optional<uint32_t> gpu_of(core::Staging at) const {
    const auto place = staging_->place_of(at);
    return place ? std::optional(place->gpu) : std::nullopt;
  }
  void put_on_host(core::Staging at) { staging_->put_on_host(at); }

  void on_ended(const GpuWork& work, bool well);
  // Of nothing that is ready any longer can be said what it is.
  bool failed() const { return has_failed_; }
  bool busy() const { return staging_->busy(); }
  // At most so many slices may be worked on now.
  uint32_t room() const { return staging_->room(); }

 private:
  // In the number of a kept slice: it is that of a buffer on a GPU.
  static constexpr uint32_t kKeptHere = uint32_t{1} << 30;
  static constexpr uint32_t kGpuShift = 20;
  static GpuStaging::Place place_of_kept(uint32_t kept) {
    return {(kept & ~kKeptHere) >> kGpuShift, kept & ((uint32_t{1} << kGpuShift) - 1)};
  }
  void copy(const OpKey& key, transport::GpuRange from, GpuStaging::Place place,
            GpuStaging::Use use, uint32_t bytes);
  template <typename Order>
  void give(const Order& order, const OpKey& key, GpuStaging::Place place, GpuStaging::Use use,
            uint64_t bytes, uint32_t slice = 0);
  void fail(const Status& why);

  std::unique_ptr<GpuStaging> staging_;
  GpuOrders* const orders_;
  GpuOps* const ops_;
  bool has_failed_ = false;
  std::vector<Parcel> waiting_;
  std::vector<transport::GpuRange> inputs_;   // kept for its capacity
  std::vector<double> factors_;               // likewise
  std::vector<transport::GpuRange> outputs_;  // likewise
};

}  // namespace gradring::daemon
