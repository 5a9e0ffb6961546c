#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "transport/cuda/driver.h"
#include "transport/cuda/gpu.h"
#include "transport/gpus.h"

namespace gradring::transport::cuda {

// Where the kernels and copies of each GPU find an allocation, by its index; 0: nowhere.
using Places = std::array<std::atomic<Driver::Address>, kGpusMax>;

// What is open of one GPU: each allocation once in each context, for as long as somebody has a part
// of it. A driver may refuse to open it twice. Thread-safe.
class Openings : public std::enable_shared_from_this<Openings> {
 public:
  // It has started.
  explicit Openings(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  // From now on that one finds what is open here, too, as far as it can; it is connected.
  void let_in(std::shared_ptr<const Gpu> other);
  tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> open(const GpuShare& share);

 private:
  friend class Opened;
  using Handle = std::array<std::byte, 64>;
  struct Allocation {
    std::vector<std::pair<std::shared_ptr<const Gpu>, Driver::Address>> contexts;  // it is open in
    std::shared_ptr<Places> places = std::make_shared<Places>();
    uint64_t bytes = 0;
    size_t owners = 0;
  };
  tl::expected<Allocation, Status> map(const Handle& handle) const;
  static Driver::Result map(const Handle& handle, const std::shared_ptr<const Gpu>& in,
                            Allocation* allocation);
  static void let_in(const std::shared_ptr<const Gpu>& other, const Handle& handle,
                     Allocation* allocation);
  void give_back(const Handle& handle);
  static void close(const Allocation& allocation);

  const std::shared_ptr<const Gpu> gpu_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Gpu>> others_;
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
  // Where kernels and copies of that GPU find it; 0: nowhere.
  virtual Driver::Address begin_for(const Gpu& gpu) const = 0;

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

  // What is allocated in a context is its peers' as well.
  Driver::Address begin_for(const Gpu& gpu) const override {
    return gpu.reaches(on().bit()) ? begin() : 0;
  }

 private:
  const std::shared_ptr<const Gpu> gpu_;
};

// A part of an allocation that is open.
class Opened : public OnGpu {
 public:
  Opened(std::shared_ptr<Openings> openings, const GpuShare& share,
         std::shared_ptr<const Places> places)
      : OnGpu(*openings->gpu_, (*places)[openings->gpu_->index()] + share.offset, share.bytes),
        openings_(std::move(openings)),
        handle_(share.handle),
        offset_(share.offset),
        places_(std::move(places)) {}
  ~Opened() override { openings_->give_back(handle_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  Driver::Address begin_for(const Gpu& gpu) const override {
    const Driver::Address place = (*places_)[gpu.index()];
    return place == 0 ? 0 : place + offset_;
  }

 private:
  const std::shared_ptr<Openings> openings_;
  const std::array<std::byte, 64> handle_;
  const uint64_t offset_;
  const std::shared_ptr<const Places> places_;
};

inline const Gpu& gpu_of(const GpuRange& range) {
  return static_cast<const OnGpu*>(range.memory)->on();
}
inline bool reaches(const Gpu& gpu, const GpuRange& range) {
  return static_cast<const OnGpu*>(range.memory)->begin_for(gpu) != 0;
}
// For kernels and copies of that GPU, which reaches it.
inline Driver::Address address_of(const GpuRange& range, const Gpu& gpu) {
  return static_cast<const OnGpu*>(range.memory)->begin_for(gpu) + range.offset;
}

}  // namespace gradring::transport::cuda
