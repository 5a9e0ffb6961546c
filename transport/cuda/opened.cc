#include "transport/cuda/opened.h"

#include <fmt/format.h>

#include "transport/cuda/launch_lock.h"

namespace gradring::transport::cuda {

tl::expected<std::shared_ptr<const Allocated>, Status> Allocated::make(
    std::shared_ptr<const Gpu> gpu, uint64_t bytes) {
  const auto lock = lock_launches();
  const Gpu::Current current(*gpu);
  Driver::Address begin = 0;
  auto result = current.result();
  if (result == Driver::kSuccess) result = gpu->driver().allocate(&begin, bytes);
  if (result == Driver::kSuccess) {
    return std::make_shared<const Allocated>(std::move(gpu), begin, bytes);
  }
  return tl::unexpected(
      Status(Code::kUnavailable,
             gpu->words(fmt::format("has no {} KiB left for the daemon", bytes >> 10), result)));
}

Allocated::~Allocated() {
  const auto lock = lock_launches();
  const Gpu::Current current(*gpu_);
  if (current.result() == Driver::kSuccess) gpu_->driver().free(begin());
}

tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> Openings::open(const GpuShare& share) {
  const std::lock_guard lock(mutex_);
  auto known = open_.find(share.handle);
  const bool fresh = known == open_.end();
  if (fresh) {
    auto mapped = map(share.handle);
    if (!mapped) return tl::unexpected(mapped.error());
    known = open_.emplace(share.handle, *mapped).first;
  }
  Allocation& allocation = known->second;
  const bool fits =
      share.offset <= allocation.bytes && share.bytes <= allocation.bytes - share.offset;
  if (!fits) {
    const Status refused(
        Code::kInvalidArgument,
        fmt::format("{} bytes from byte {} on are no part of an allocation of {} bytes on {}: "
                    "register memory as it was allocated, and as long as it lives",
                    share.bytes, share.offset, allocation.bytes, in_words(gpu_->uuid())));
    if (fresh) {
      close(allocation);
      open_.erase(known);
    }
    return tl::unexpected(refused);
  }
  ++allocation.owners;
  return std::make_shared<const Opened>(shared_from_this(), share, allocation.places);
}

tl::expected<Openings::Allocation, Status> Openings::map(const Handle& handle) const {
  Allocation allocation;
  auto result = map(handle, gpu_, &allocation);
  if (result != Driver::kSuccess) {
    return tl::unexpected(Status(
        Code::kUnavailable,
        gpu_->words("did not let the daemon open memory of its trainer", result) +
            ". Trainer and daemon need to see the same processes (containers: --pid=host) and the "
            "whole GPU (no MIG), and memory of cudaMallocAsync or of PyTorch's expandable segments "
            "cannot be opened"));
  }
  const Driver::Address begin = (*allocation.places)[gpu_->index()];
  Driver::Address base = 0;
  size_t bytes = 0;
  {
    const Gpu::Current current(*gpu_);
    result = gpu_->driver().address_range(&base, &bytes, begin);
  }
  if (result == Driver::kSuccess) {
    allocation.bytes = bytes - (begin - base);
    for (const auto& other : others_) let_in(other, handle, &allocation);
    return allocation;
  }
  close(allocation);
  return tl::unexpected(
      Status(Code::kUnavailable, gpu_->words("does not say how long the memory is that the daemon "
                                             "has opened",
                                             result) +
                                     ". Update NVIDIA's driver"));
}

Driver::Result Openings::map(const Handle& handle, const std::shared_ptr<const Gpu>& in,
                             Allocation* allocation) {
  const auto lock = lock_launches();
  const Gpu::Current current(*in);
  auto result = current.result();
  Driver::Address begin = 0;
  if (result == Driver::kSuccess) {
    result = in->driver().open_handle(&begin, {handle}, Driver::kOpenWithPeers);
  }
  if (result != Driver::kSuccess) return result;
  allocation->contexts.emplace_back(in, begin);
  (*allocation->places)[in->index()] = begin;
  return result;
}

void Openings::let_in(std::shared_ptr<const Gpu> other) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, allocation] : open_) let_in(other, handle, &allocation);
  others_.push_back(std::move(other));
}

// Access to a peer is to what that one has allocated. Whether it is also to what that one has
// opened only the driver knows: a kernel that tries takes the context with it. Where it is not, the
// memory is opened for this one, too.
void Openings::let_in(const std::shared_ptr<const Gpu>& other, const Handle& handle,
                      Allocation* allocation) {
  Driver::Address found = 0;
  {
    const Gpu::Current current(*other);
    const Driver::Address begin = allocation->contexts.front().second;
    const bool reached = current.result() == Driver::kSuccess &&
                         other->driver().pointer_attribute(&found, Driver::kDevicePointer, begin) ==
                             Driver::kSuccess;
    if (!reached) found = 0;
  }
  if (found == 0) {
    map(handle, other, allocation);
  } else {
    (*allocation->places)[other->index()] = found;
  }
}

void Openings::give_back(const Handle& handle) {
  const std::lock_guard lock(mutex_);
  const auto known = open_.find(handle);
  if (--known->second.owners > 0) return;
  close(known->second);
  open_.erase(known);
}

void Openings::close(const Allocation& allocation) {
  const auto lock = lock_launches();
  for (const auto& [gpu, begin] : allocation.contexts) {
    const Gpu::Current current(*gpu);
    if (current.result() == Driver::kSuccess) gpu->driver().close_handle(begin);
  }
}

}  // namespace gradring::transport::cuda
