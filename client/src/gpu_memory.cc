#include "client/src/gpu_memory.h"

#include <fmt/format.h>

#include <utility>

namespace gradring::client {
namespace {

using Current = GpuContext::Current;

constexpr auto kSuccess = CudaDriver::kSuccess;

CudaDriver::Address address_of(const void* memory) {
  return reinterpret_cast<CudaDriver::Address>(memory);
}

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.
bool is_of_a_capture(CudaDriver::Result result) { return result >= 900 && result <= 908; }

}  // namespace

tl::expected<std::shared_ptr<const GpuMemory>, Status> GpuMemory::of(
    const void* memory, std::shared_ptr<const Mapping> shadow) {
  const CudaDriver* const driver = cuda_driver();
  unsigned type = 0;
  // What the driver does not know is the host's.
  const bool on_a_gpu =
      driver != nullptr &&
      driver->pointer_attribute(&type, CudaDriver::kMemoryTypeOf, address_of(memory)) == kSuccess &&
      type == CudaDriver::kDeviceMemory;
  if (!on_a_gpu) return nullptr;
  auto context = GpuContext::of(*driver, memory);
  if (!context) return tl::unexpected(context.error());
  return std::shared_ptr<const GpuMemory>(new GpuMemory(std::move(*context), std::move(shadow)));
}

// Where pages cannot be pinned, copies are slower and no less right.
GpuMemory::GpuMemory(std::shared_ptr<const GpuContext> context,
                     std::shared_ptr<const Mapping> shadow)
    : context_(std::move(context)), shadow_(std::move(shadow)) {
  const Current current(*context_);
  pinned_ = current.result() == kSuccess &&
            context_->driver().register_host(shadow_->data(), shadow_->bytes(), 0) == kSuccess;
}

GpuMemory::~GpuMemory() {
  const Current current(*context_);
  if (pinned_ && current.result() == kSuccess) context_->driver().unregister_host(shadow_->data());
}

Status GpuMemory::reach(CudaDriver::Stream stream) const {
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  auto result = current.result();
  int capturing = 0;
  if (result == kSuccess) result = driver.is_capturing(stream, &capturing);
  if (capturing != 0 || is_of_a_capture(result)) {
    return {Code::kInvalidArgument,
            "the op's stream is being captured into a CUDA graph, of which gradring's ops cannot "
            "be a part: submit them between the replays of graphs"};
  }
  if (result == kSuccess) result = driver.synchronize(stream);
  if (result == kSuccess) return {};
  return context_->failed(result, "the work before the op failed on the GPU");
}

Status GpuMemory::fetch(std::byte* host, const std::byte* device, uint64_t bytes,
                        CudaDriver::Stream stream) const {
  if (Status reached = reach(stream); !reached.ok()) return reached;
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  auto result = current.result();
  if (result == kSuccess) result = driver.copy_to_host(host, address_of(device), bytes, stream);
  if (result == kSuccess) result = driver.synchronize(stream);
  if (result == kSuccess) return {};
  return context_->failed(
      result, fmt::format("{} bytes at {} of the GPU could not be copied to the host", bytes,
                          static_cast<const void*>(device)));
}

Status GpuMemory::deliver(std::byte* device, const std::byte* host, uint64_t bytes) const {
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  auto result = current.result();
  const auto stream = context_->deliveries();
  if (result == kSuccess) result = driver.copy_to_device(address_of(device), host, bytes, stream);
  if (result == kSuccess) result = driver.synchronize(stream);
  if (result == kSuccess) return {};
  return context_->failed(
      result, fmt::format("the op is done, but its result of {} bytes could not be copied to {} of "
                          "the GPU",
                          bytes, static_cast<const void*>(device)));
}

}  // namespace gradring::client
