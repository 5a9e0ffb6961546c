#include "daemon/data/gpu_ring.h"

#include <algorithm>

#include "proto/check.h"

namespace gradring::daemon {

template <typename Order>
void GpuRing::give(const Order& order, const OpKey& key, GpuStaging::Place place,
                   GpuStaging::Use use, uint64_t bytes, uint32_t slice) {
  if (has_failed_) return;
  GpuWork work;
  work.key = key;
  work.run = slice;
  work.rides = {place, use};
  work.counted = ops_->counts(key);
  const Status begun = orders_->give(order, work, GpuTask::kRing, bytes);
  if (!begun.ok()) return fail(begun);
  staging_->begin(place, use);
  ops_->ride_began(work);
}

void GpuRing::copy(const OpKey& key, transport::GpuRange from, GpuStaging::Place place,
                   GpuStaging::Use use, uint32_t bytes) {
  transport::Gpus::Allreduce order = transport::Gpus::copy(from, outputs_, bytes);
  order.on = place.gpu;
  give(order, key, place, use, bytes);
}

std::optional<GpuRing::Landing> GpuRing::land(
    const core::Staging& at, const Frame& frame,
    const std::function<bool(const SlotBuffers::Value&)>& wanted) {
  if (!ops_->rides(frame.key)) {
    staging_->put_on_host(at);
    return std::nullopt;
  }
  const uint32_t gpu = ops_->gpu_of(frame.key, frame.slice.slice);
  const auto& before = staging_->value_in(at.index, gpu);
  const GpuStaging::Place place = staging_->put(at, gpu, before && wanted(*before));
  // Only a processor can check it.
  if (frame.slice.checked) return Landing{staging_->on_host(place), nullptr};
  return Landing{staging_->address(place), staging_->on_host(place)};
}

std::byte* GpuRing::on_host(core::Staging at) const {
  const auto place = staging_->place_of(at);
  return place ? staging_->on_host(*place) : nullptr;
}

void GpuRing::bring(core::Staging at, const OpKey& key, uint32_t bytes) {
  const auto place = staging_->place_of(at);
  if (!place) return;
  const transport::GpuRange to = staging_->range(*place);
  give(transport::Gpus::Spread{staging_->on_host(*place), {&to, 1}, bytes}, key, *place,
       GpuStaging::Use::kWrites, bytes);
}

void GpuRing::fold(const core::FoldOrder& order) {
  const core::Op& op = *order.op;
  const uint32_t length = op.plan.length_of(order.slice);
  if (!order.onto_arrived) staging_->put(order.at, ops_->gpu_of(op.key, order.slice));
  const auto place = staging_->place_of(order.at);
  GRADRING_CHECK(place.has_value(), "a slice that rides has landed on a GPU");
  const transport::GpuRange at = staging_->range(*place);
  inputs_.clear();
  outputs_.clear();
  factors_.clear();
  ops_->inputs_of(op, order.slice, &inputs_, &factors_);
  if (order.onto_arrived) {
    inputs_.push_back(at);
    factors_.push_back(1);
  }
  if (order.deliver) ops_->outputs_of(op, order.slice, &outputs_);
  const bool stays = order.leaves || !order.deliver || outputs_.empty();
  if (stays) outputs_.push_back(at);
  const GpuStaging::Use use = stays ? GpuStaging::Use::kWrites : GpuStaging::Use::kReads;
  if (order.source == core::Fold::kSource) {
    GRADRING_CHECK(inputs_.size() == 1,
                   "the rank that gives a slice is on the node that starts it");
    return copy(op.key, inputs_.front(), *place, use, length);
  }
  transport::Gpus::Allreduce sum{op.signature->dtype,
                                 op.signature->op,
                                 inputs_,
                                 outputs_,
                                 order.divisor,
                                 length / size_of(op.signature->dtype),
                                 factors_,
                                 order.factor};
  sum.on = place->gpu;
  give(sum, op.key, *place, use, length, order.slice);
}

void GpuRing::deliver(const core::Op& op, uint32_t slice, core::Staging from) {
  const auto place = staging_->place_of(from);
  GRADRING_CHECK(place.has_value(), "a slice that rides has landed on a GPU");
  outputs_.clear();
  ops_->outputs_of(op, slice, &outputs_);
  if (!outputs_.empty()) {
    copy(op.key, staging_->range(*place), *place, GpuStaging::Use::kReads,
         op.plan.length_of(slice));
  }
  if (from.kind == core::Staging::Kind::kSlot) {
    staging_->holds(from.index, {op.key, slice, op.slices[slice].value.epoch});
  }
}

std::optional<uint32_t> GpuRing::keep(const core::Op& op, uint32_t slice) {
  const auto place = staging_->pin({op.key, slice, op.slices[slice].value.epoch});
  if (!place) return std::nullopt;
  return kKeptHere | place->gpu << kGpuShift | place->buffer;
}

void GpuRing::fetch(const core::Op& op, uint32_t slice, core::Staging to) {
  const auto& kept = op.slices[slice].kept;
  transport::GpuRange from;
  GpuStaging::Place place;
  if (kept) {
    const GpuStaging::Place there = place_of_kept(*kept);
    from = staging_->range(there);
    place = staging_->put(to, there.gpu);
  } else {
    outputs_.clear();
    ops_->outputs_of(op, slice, &outputs_);
    if (outputs_.empty()) {
      staging_->put(to, ops_->gpu_of(op.key, slice));
      return fail({Code::kUnavailable, "it was lost with the only copy of a sum"});
    }
    from = outputs_.front();
    place = staging_->put(to, static_cast<uint32_t>(from.memory->gpu()));
  }
  outputs_ = {staging_->range(place)};
  copy(op.key, from, place, GpuStaging::Use::kWrites, op.plan.length_of(slice));
}

bool GpuRing::waits(const Parcel& parcel) {
  const auto place = staging_->place_of(parcel.from);
  if (!place) return false;
  if (parcel.frame.slice.length <= kByHostMax) {
    const uint32_t bytes = parcel.frame.slice.length;
    const transport::GpuRange from = staging_->range(*place);
    give(transport::Gpus::copy(from, staging_->on_host(*place), bytes), parcel.frame.key, *place,
         GpuStaging::Use::kWrites, bytes);
  }
  if (!has_failed_ && !staging_->is_written(*place)) return false;
  waiting_.push_back(parcel);
  return true;
}

std::vector<GpuRing::Parcel> GpuRing::take_ready() {
  std::vector<Parcel> ready;
  const auto waits = [this](const Parcel& parcel) {
    return !has_failed_ && staging_->is_written(*staging_->place_of(parcel.from));
  };
  const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), waits);
  ready.assign(first, waiting_.end());
  waiting_.erase(first, waiting_.end());
  return ready;
}

std::byte* GpuRing::payload_at(core::Staging from, uint32_t bytes) const {
  const auto place = staging_->place_of(from);
  if (!place) return nullptr;
  return bytes <= kByHostMax ? staging_->on_host(*place) : staging_->address(*place);
}

// The engine goes on for a while as if it had been done: no op of this job may end well any more,
// and nothing more is sent of it.
void GpuRing::fail(const Status& why) {
  has_failed_ = true;
  ops_->fail(why);
}

void GpuRing::on_ended(const GpuWork& work, bool well) {
  staging_->end(work.rides->first, work.rides->second);
  has_failed_ = has_failed_ || !well;
}

}  // namespace gradring::daemon
