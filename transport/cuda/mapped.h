#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tl/expected.hpp>
#include <utility>

#include "proto/status.h"
#include "transport/cuda/gpu.h"
#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {

// Pages of a GPU that another process has given a descriptor of, in the address space of this one:
// the same address for all GPUs. They stay until nobody has them mapped, whoever dies. Thread-safe.
class Mapped : public OnGpu {
 public:
  // It has started. `all`: those whose kernels and copies are to find it, as far as they reach it.
  static tl::expected<std::shared_ptr<const Mapped>, Status> make(
      const std::shared_ptr<const Gpu>& gpu, const GpuShare& share,
      std::span<const std::shared_ptr<Gpu>> all);

  Driver::Address begin_for(const Gpu& gpu) const override {
    return (readers_ & gpu.bit()) != 0 && gpu.reaches(on().bit()) ? begin() : 0;
  }

  // A range of addresses, and what is mapped there.
  class Range {
   public:
    explicit Range(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

    // In the context of the GPU. kInvalidArgument: there are not that many bytes.
    Status fill(CudaPages pages, uint64_t bytes);
    Driver::Result let_in(const Gpu& gpu) const;
    Driver::Address begin() const { return begin_; }
    const Gpu& gpu() const { return *gpu_; }

   private:
    const std::shared_ptr<const Gpu> gpu_;
    Driver::Address begin_ = 0;
    uint64_t bytes_ = 0;
    bool filled_ = false;
  };
  Mapped(std::unique_ptr<const Range> range, uint64_t bytes, uint64_t readers)
      : OnGpu(range->gpu(), range->begin(), bytes), range_(std::move(range)), readers_(readers) {}

 private:
  const std::unique_ptr<const Range> range_;
  const uint64_t readers_;  // by their bits: those that may, some of which may not have started
};

}  // namespace gradring::transport::cuda
