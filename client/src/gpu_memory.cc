#include "client/src/gpu_memory.h"

#include <fmt/format.h>

#include <utility>

namespace gradring::client {
namespace {

CudaDriver::Address address_of(const void* memory) {
  return reinterpret_cast<CudaDriver::Address>(memory);
}

Status failed(const CudaDriver& driver, CudaDriver::Result result, std::string_view what) {
  return {Code::kInternal, fmt::format("{}: {}", what, driver.in_words(result))};
}

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.
bool is_of_a_capture(CudaDriver::Result result) { return result >= 900 && result <= 908; }

}  // namespace

// The calling thread is in our context, and in its own again at the end.
class GpuMemory::Current {
 public:
  explicit Current(const GpuMemory& memory)
      : driver_(memory.driver_), result_(driver_.push_context(memory.context_)) {}
  ~Current() {
    CudaDriver::Context ours = nullptr;
    if (result_ == CudaDriver::kSuccess) driver_.pop_context(&ours);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  CudaDriver::Result result() const { return result_; }

 private:
  const CudaDriver& driver_;
  const CudaDriver::Result result_;
};

GpuMemory::GpuMemory(const CudaDriver& driver, std::shared_ptr<const Mapping> shadow)
    : driver_(driver), shadow_(std::move(shadow)) {}

tl::expected<std::shared_ptr<const GpuMemory>, Status> GpuMemory::of(
    const void* memory, std::shared_ptr<const Mapping> shadow) {
  const CudaDriver* const driver = cuda_driver();
  if (driver == nullptr) return nullptr;
  unsigned type = 0;
  // What the driver does not know is the host's.
  if (driver->pointer_attribute(&type, CudaDriver::kMemoryTypeOf, address_of(memory)) !=
          CudaDriver::kSuccess ||
      type != CudaDriver::kDeviceMemory) {
    return nullptr;
  }
  const auto refuse = [&](CudaDriver::Result result, std::string_view what) {
    return tl::unexpected(failed(*driver, result, fmt::format("{} for {}", what, memory)));
  };
  const std::shared_ptr<GpuMemory> made(new GpuMemory(*driver, std::move(shadow)));
  // Memory of a pool belongs to no context.
  driver->pointer_attribute(&made->context_, CudaDriver::kContextOf, address_of(memory));
  if (made->context_ == nullptr) {
    int ordinal = 0, device = 0;
    auto result = driver->pointer_attribute(&ordinal, CudaDriver::kDeviceOf, address_of(memory));
    if (result == CudaDriver::kSuccess) result = driver->get_device(&device, ordinal);
    if (result == CudaDriver::kSuccess) result = driver->retain_primary(&made->context_, device);
    if (result != CudaDriver::kSuccess) return refuse(result, "no context of a GPU");
    made->primary_of_ = device;
  }
  const Current current(*made);
  if (current.result() != CudaDriver::kSuccess) {
    return refuse(current.result(), "could not enter the context of the GPU");
  }
  const auto stream = driver->create_stream(&made->deliveries_, CudaDriver::kNonBlocking);
  if (stream != CudaDriver::kSuccess) return refuse(stream, "no stream for copies");
  // Where it cannot be, copies are slower and no less right.
  made->pinned_ = driver->register_host(made->shadow_->data(), made->shadow_->bytes(), 0) ==
                  CudaDriver::kSuccess;
  return made;
}

GpuMemory::~GpuMemory() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    if (current.result() == CudaDriver::kSuccess) {
      if (pinned_) driver_.unregister_host(shadow_->data());
      if (deliveries_ != nullptr) driver_.destroy_stream(deliveries_);
    }
  }
  if (primary_of_ >= 0) driver_.release_primary(primary_of_);
}

Status GpuMemory::reach(CudaDriver::Stream stream) const {
  const Current current(*this);
  if (current.result() != CudaDriver::kSuccess) {
    return failed(driver_, current.result(), "could not enter the context of the GPU");
  }
  int capturing = 0;
  auto result = driver_.is_capturing(stream, &capturing);
  if (capturing != 0 || is_of_a_capture(result)) {
    return {Code::kInvalidArgument,
            "the op's stream is being captured into a CUDA graph, of which gradring's ops cannot "
            "be a part: submit them between the replays of graphs"};
  }
  if (result == CudaDriver::kSuccess) result = driver_.synchronize(stream);
  if (result == CudaDriver::kSuccess) return {};
  return failed(driver_, result, "the work before the op failed on the GPU");
}

Status GpuMemory::fetch(std::byte* host, const std::byte* device, uint64_t bytes,
                        CudaDriver::Stream stream) const {
  if (Status reached = reach(stream); !reached.ok()) return reached;
  const Current current(*this);
  auto result = driver_.copy_to_host(host, address_of(device), bytes, stream);
  if (result == CudaDriver::kSuccess) result = driver_.synchronize(stream);
  if (result == CudaDriver::kSuccess) return {};
  return failed(driver_, result,
                fmt::format("{} bytes at {} of the GPU could not be copied to the host", bytes,
                            static_cast<const void*>(device)));
}

Status GpuMemory::deliver(std::byte* device, const std::byte* host, uint64_t bytes) const {
  const Current current(*this);
  auto result = current.result();
  if (result == CudaDriver::kSuccess) {
    result = driver_.copy_to_device(address_of(device), host, bytes, deliveries_);
  }
  if (result == CudaDriver::kSuccess) result = driver_.synchronize(deliveries_);
  if (result == CudaDriver::kSuccess) return {};
  return failed(driver_, result,
                fmt::format("the op is done, but its result of {} bytes could not be copied to {} "
                            "of the GPU",
                            bytes, static_cast<const void*>(device)));
}

}  // namespace gradring::client
