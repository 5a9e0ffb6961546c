#include "client/src/gpu_block.h"

#include <atomic>
#include <utility>

namespace gradring::client {
namespace {

std::atomic<uint64_t> held{0};  // bytes, by all communicators of this process

bool take(uint64_t bytes, uint64_t most) {
  uint64_t before = held.load();
  while (bytes <= most && before <= most - bytes) {
    if (held.compare_exchange_weak(before, before + bytes)) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<const GpuBlock> GpuBlock::beside(const void* memory, uint64_t bytes,
                                                 uint64_t most) {
  const CudaDriver& driver = *cuda_driver();
  if (!driver.shares() || !take(bytes, most)) return nullptr;
  CudaDriver::Address address = 0;
  auto context = GpuContext::of(driver, memory);
  if (context) {
    const GpuContext::Current current(**context);
    const bool inside = current.result() == CudaDriver::kSuccess;
    if (inside && driver.allocate(&address, bytes) != CudaDriver::kSuccess) address = 0;
  }
  if (address == 0) {
    held -= bytes;
    return nullptr;
  }
  return std::shared_ptr<const GpuBlock>(new GpuBlock(std::move(*context), address, bytes));
}

GpuBlock::~GpuBlock() {
  const GpuContext::Current current(*context_);
  if (current.result() == CudaDriver::kSuccess) context_->driver().free(address_);
  held -= bytes_;
}

}  // namespace gradring::client
