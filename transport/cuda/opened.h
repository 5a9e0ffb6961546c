#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tl/expected.hpp>
#include <utility>

#include "proto/status.h"
#include "transport/cuda/driver.h"
#include "transport/cuda/gpu.h"
#include "transport/gpus.h"

namespace gradring::transport::cuda {

// What is open of one GPU: each allocation once, for as long as somebody has a part of it. A driver
// may refuse to open it twice. Thread-safe.
class Openings : public std::enable_shared_from_this<Openings> {
 public:
  // It has started.
  explicit Openings(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> open(const GpuShare& share);

 private:
  friend class Opened;
  using Handle = std::array<std::byte, 64>;
  struct Allocation {
    Driver::Address begin = 0;
    uint64_t bytes = 0;
    size_t owners = 0;
  };
  tl::expected<Allocation, Status> map(const Handle& handle) const;
  void give_back(const Handle& handle);
  void close(const Allocation& allocation) const;

  const std::shared_ptr<const Gpu> gpu_;
  std::mutex mutex_;
  std::map<Handle, Allocation> open_;
};

// Memory on one of the GPUs, whoever's.
class OnGpu : public OpenGpuMemory {
 public:
  OnGpu(const Gpu& gpu, Driver::Address begin, uint64_t bytes)
      : on_(gpu), begin_(begin), bytes_(bytes) {}

  uint64_t bytes() const override { return bytes_; }
  size_t gpu() const override { return on_.index(); }
  std::byte* address() const override { return std::bit_cast<std::byte*>(begin_); }
  Driver::Address begin() const { return begin_; }
  const Gpu& on() const { return on_; }

 private:
  const Gpu& on_;
  const Driver::Address begin_;
  const uint64_t bytes_;
};

// Memory of the daemon's own.
class Allocated : public OnGpu {
 public:
  // The GPU has started.
  static tl::expected<std::shared_ptr<const Allocated>, Status> make(std::shared_ptr<const Gpu> gpu,
                                                                     uint64_t bytes);
  Allocated(std::shared_ptr<const Gpu> gpu, Driver::Address begin, uint64_t bytes)
      : OnGpu(*gpu, begin, bytes), gpu_(std::move(gpu)) {}
  ~Allocated() override;
  Allocated(const Allocated&) = delete;
  Allocated& operator=(const Allocated&) = delete;

 private:
  const std::shared_ptr<const Gpu> gpu_;
};

// A part of an allocation that is open.
class Opened : public OnGpu {
 public:
  Opened(std::shared_ptr<Openings> openings, const GpuShare& share, Driver::Address begin)
      : OnGpu(*openings->gpu_, begin, share.bytes),
        openings_(std::move(openings)),
        handle_(share.handle) {}
  ~Opened() override { openings_->give_back(handle_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  const std::shared_ptr<Openings> openings_;
  const std::array<std::byte, 64> handle_;
};

inline const Gpu& gpu_of(const GpuRange& range) {
  return static_cast<const OnGpu*>(range.memory)->on();
}
inline Driver::Address address_of(const GpuRange& range) {
  return static_cast<const OnGpu*>(range.memory)->begin() + range.offset;
}

}  // namespace gradring::transport::cuda
