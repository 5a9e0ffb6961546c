#include "client/src/gpu/gpu_block.h"

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
  std::unique_ptr<const GpuPages> pages;
  auto context = GpuContext::of(driver, memory);
  if (context) {
    const GpuContext::Current current(**context);
    int device = 0;
    auto result = current.result();
    if (result == CudaDriver::kSuccess) result = driver.get_device(&device, (*context)->ordinal());
    if (result == CudaDriver::kSuccess) {
      if (auto made = GpuPages::make(driver, device, bytes)) pages = std::move(*made);
    }
  }
  if (pages == nullptr) {
    held -= bytes;
    return nullptr;
  }
  return std::shared_ptr<const GpuBlock>(
      new GpuBlock(std::move(*context), std::move(pages), bytes));
}

GpuBlock::~GpuBlock() {
  const GpuContext::Current current(*context_);
  // In a context that is no more nothing can be given back.
  if (current.result() == CudaDriver::kSuccess) {
    pages_.reset();
  } else {
    static_cast<void>(pages_.release());
  }
  held -= bytes_;
}

}  // namespace gradring::client
