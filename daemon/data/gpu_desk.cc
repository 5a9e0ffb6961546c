#include "daemon/data/gpu_desk.h"

#include "daemon/clock.h"
#include "daemon/data/stream_gate.h"

namespace gradring::daemon {

template <typename Order>
Status GpuDesk::begin_as(const Order& order, const GpuWork& work) {
  if (free_.empty()) {
    free_.push_back(works_.size());
    works_.emplace_back();
  }
  const uint64_t number = free_.back();
  Status begun = gpus_->begin(order, number);
  if (!begun.ok()) return begun;
  free_.pop_back();
  works_[number] = work;
  ++under_way_;
  look_on_.worked(since_ = monotonic_now());
  return {};
}

Status GpuDesk::begin(const transport::Gpus::Sum& sum, const GpuWork& work) {
  Status begun = begin_as(sum, work);
  if (!begun.ok()) return begun;
  const uint64_t bytes = sum.count * size_of(sum.dtype);
  traffic_.inputs += bytes * sum.inputs.size();
  traffic_.sums += bytes;
  return {};
}

Status GpuDesk::begin(const transport::Gpus::Allreduce& allreduce, const GpuWork& work) {
  Status begun = begin_as(allreduce, work);
  if (begun.ok()) {
    traffic_.inputs += allreduce.count * size_of(allreduce.dtype) * allreduce.inputs.size();
  }
  return begun;
}

Status GpuDesk::begin(const transport::Gpus::Spread& spread, const GpuWork& work) {
  Status begun = begin_as(spread, work);
  if (begun.ok()) traffic_.results += spread.bytes;
  return begun;
}

const std::vector<GpuDesk::Ended>& GpuDesk::take_ended() {
  ended_.clear();
  if (under_way_ == 0) return ended_;
  told_.clear();
  gpus_->take_ended(&told_);
  for (transport::Gpus::Ended& told : told_) {
    ended_.push_back({works_[told.ticket], std::move(told.status), std::move(told.nonfinite)});
    free_.push_back(told.ticket);
    --under_way_;
  }
  if (!ended_.empty()) look_on_.worked(since_ = monotonic_now());
  return ended_;
}

core::Time GpuDesk::next_look(core::Time now) const { return daemon::next_look(now, since_); }

}  // namespace gradring::daemon
