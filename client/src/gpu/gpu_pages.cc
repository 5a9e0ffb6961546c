#include "client/src/gpu/gpu_pages.h"

#include <bit>

namespace gradring::client {

tl::expected<std::unique_ptr<const GpuPages>, CudaDriver::Result> GpuPages::make(
    const CudaDriver& driver, int device, uint64_t bytes) {
  std::unique_ptr<GpuPages> made;
  auto result = CudaDriver::kOutOfMemory;
  if (driver.maps()) {
    made.reset(new GpuPages(driver, device));
    result = made->map(bytes);
    // A virtual machine's GPU may have none, and a driver that is told not to.
    if (result != CudaDriver::kSuccess && result != CudaDriver::kOutOfMemory) made.reset();
  }
  if (made == nullptr) {
    made.reset(new GpuPages(driver, device));
    result = driver.allocate(&made->address_, bytes);
    if (result != CudaDriver::kSuccess) made->address_ = 0;
  }
  if (result != CudaDriver::kSuccess) return tl::unexpected(result);
  return made;
}

CudaDriver::Result GpuPages::map(uint64_t bytes) {
  CudaPagesKind kind;
  kind.at.device = device_;
  size_t page = 0;
  auto result = driver_.page_bytes(&page, &kind, 0);
  if (result != CudaDriver::kSuccess) return result;
  const uint64_t whole = (bytes + page - 1) / page * page;
  CudaPages pages = 0;
  result = driver_.create_pages(&pages, whole, &kind, 0);
  if (result != CudaDriver::kSuccess) return result;
  pages_ = pages;
  result = driver_.reserve(&address_, whole, 0, 0, 0);
  if (result != CudaDriver::kSuccess) address_ = 0;
  if (result == CudaDriver::kSuccess) {
    bytes_ = whole;
    result = driver_.map(address_, bytes_, 0, pages, 0);
    mapped_ = result == CudaDriver::kSuccess;
  }
  if (result == CudaDriver::kSuccess) result = let_in(device_);
  int devices = 0;
  driver_.count_devices(&devices);
  // As memory of cudaMalloc is for peers, once they are let in.
  for (int other = 0; other < devices && result == CudaDriver::kSuccess; ++other) {
    int can = 0;
    driver_.can_access_peer(&can, other, device_);
    if (other != device_ && can != 0) static_cast<void>(let_in(other));
  }
  return result;
}

CudaDriver::Result GpuPages::let_in(int device) const {
  CudaAccess access;
  access.by.device = device;
  return driver_.set_access(address_, bytes_, &access, 1);
}

GpuPages::~GpuPages() {
  if (mapped_) driver_.unmap(address_, bytes_);
  if (bytes_ != 0) driver_.unreserve(address_, bytes_);
  if (pages_) {
    driver_.release_pages(*pages_);
  } else if (address_ != 0) {
    driver_.free(address_);
  }
}

std::byte* GpuPages::data() const { return std::bit_cast<std::byte*>(address_); }

std::optional<UniqueFd> GpuPages::descriptor() const {
  int fd = -1;
  if (!pages_ || driver_.offer_pages(&fd, *pages_, kCudaDescriptor, 0) != CudaDriver::kSuccess) {
    return std::nullopt;
  }
  return UniqueFd(fd);
}

}  // namespace gradring::client
