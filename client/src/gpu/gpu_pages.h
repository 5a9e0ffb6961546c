#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tl/expected.hpp>

#include "client/src/gpu/cuda_driver.h"
#include "client/src/session/unique_fd.h"

namespace gradring::client {

// Memory of ours on a GPU that the daemon can have, too. Where the driver can, it is made of pages,
// which whoever has a descriptor of them may map, whatever users and processes there are, and as
// long as he likes; else it is of cuMemAlloc. Thread-safe.
class GpuPages {
 public:
  // In a context of this device, as is its end. `bytes` at least.
  static tl::expected<std::unique_ptr<const GpuPages>, CudaDriver::Result> make(
      const CudaDriver& driver, int device, uint64_t bytes);
  // What was of cuMemAlloc waits for the GPU; pages do not: nobody may use them any more.
  ~GpuPages();
  GpuPages(const GpuPages&) = delete;
  GpuPages& operator=(const GpuPages&) = delete;

  std::byte* data() const;
  // Nothing: it is not made of pages, or the process has no descriptors left.
  std::optional<UniqueFd> descriptor() const;

 private:
  GpuPages(const CudaDriver& driver, int device) : driver_(driver), device_(device) {}
  CudaDriver::Result map(uint64_t bytes);
  CudaDriver::Result let_in(int device) const;

  const CudaDriver& driver_;
  const int device_;
  std::optional<CudaPages> pages_;
  CudaDriver::Address address_ = 0;
  uint64_t bytes_ = 0;  // of pages
  bool mapped_ = false;
};

}  // namespace gradring::client
