#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tl/expected.hpp>

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

// A part of such an allocation.
class Opened : public OpenGpuMemory {
 public:
  Opened(std::shared_ptr<Openings> openings, const GpuShare& share, Driver::Address begin)
      : openings_(std::move(openings)), handle_(share.handle), begin_(begin), bytes_(share.bytes) {}
  ~Opened() override { openings_->give_back(handle_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  uint64_t bytes() const override { return bytes_; }
  Driver::Address begin() const { return begin_; }
  const Gpu& gpu() const { return *openings_->gpu_; }

 private:
  const std::shared_ptr<Openings> openings_;
  const std::array<std::byte, 64> handle_;
  const Driver::Address begin_;
  const uint64_t bytes_;
};

}  // namespace gradring::transport::cuda
