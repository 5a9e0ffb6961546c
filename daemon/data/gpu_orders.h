#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "daemon/data/gpu_desk.h"
#include "proto/flight.h"

namespace gradring::daemon {

// What one job has GPUs do: numbered, and written down when it begins. Data thread only.
class GpuOrders {
 public:
  using Began = std::function<void(const GpuWork& work, GpuTask task, uint64_t bytes)>;
  GpuOrders(GpuDesk* desk, JobExecutor* job, Began began)
      : desk_(desk), job_(job), began_(std::move(began)) {}

  template <typename Order>
  Status give(const Order& order, GpuWork work, GpuTask task, uint64_t bytes) {
    work.job = job_;
    work.number = number_;
    Status begun = desk_->begin(order, work);
    if (!begun.ok()) return begun;
    began_(work, task, bytes);
    ++number_;
    return begun;
  }

  const transport::Gpus& gpus() const { return *desk_->gpus(); }

 private:
  GpuDesk* const desk_;
  JobExecutor* const job_;
  const Began began_;
  uint32_t number_ = 0;  // of what is begun next
};

}  // namespace gradring::daemon
