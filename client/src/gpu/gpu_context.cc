#include "client/src/gpu/gpu_context.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace gradring::client {
namespace {

std::mutex contexts_mutex;
std::map<CudaDriver::Context, std::weak_ptr<const GpuContext>> contexts;

// The one there is, or this one from now on; the driver is not called meanwhile.
std::shared_ptr<const GpuContext> entered(CudaDriver::Context context,
                                          const std::shared_ptr<const GpuContext>& made) {
  const std::lock_guard lock(contexts_mutex);
  std::erase_if(contexts, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = contexts.find(context); known != contexts.end()) {
    if (auto shared = known->second.lock()) return shared;
  }
  if (made != nullptr) contexts[context] = made;
  return made;
}

}  // namespace

GpuContext::Current::Current(const GpuContext& context)
    : driver_(context.driver_), aside_(driver_), result_(driver_.push_context(context.context_)) {}

GpuContext::Current::~Current() {
  CudaDriver::Context ours = nullptr;
  if (result_ == CudaDriver::kSuccess) driver_.pop_context(&ours);
}

tl::expected<std::shared_ptr<const GpuContext>, Status> GpuContext::of(const CudaDriver& driver,
                                                                       const void* memory) {
  const auto address = reinterpret_cast<CudaDriver::Address>(memory);
  const CudaDriver::Aside aside(driver);
  std::shared_ptr<GpuContext> made(new GpuContext(driver));
  const auto refuse = [&](CudaDriver::Result result, std::string_view what) {
    return tl::unexpected(made->failed(result, fmt::format("{} for {}", what, memory)));
  };
  driver.pointer_attribute(static_cast<void*>(&made->context_), CudaDriver::kContextOf, address);
  if (made->context_ == nullptr) {  // memory of a pool belongs to no context
    int ordinal = 0, device = 0;
    auto result = driver.pointer_attribute(&ordinal, CudaDriver::kDeviceOf, address);
    if (result == CudaDriver::kSuccess) result = driver.get_device(&device, ordinal);
    if (result == CudaDriver::kSuccess) result = driver.retain_primary(&made->context_, device);
    if (result != CudaDriver::kSuccess) return refuse(result, "no context of a GPU");
    made->primary_of_ = device;
  }
  if (auto known = entered(made->context_, nullptr)) return known;
  const Current current(*made);
  if (current.result() != CudaDriver::kSuccess) {
    return refuse(current.result(), "could not enter the context of the GPU");
  }
  driver.pointer_attribute(&made->ordinal_, CudaDriver::kDeviceOf, address);
  const auto stream = driver.create_stream(&made->deliveries_, CudaDriver::kNonBlocking);
  if (stream != CudaDriver::kSuccess) return refuse(stream, "no stream for copies");
  return entered(made->context_, made);
}

GpuContext::~GpuContext() {
  const CudaDriver::Aside aside(driver_);
  if (deliveries_ != nullptr) {
    const Current current(*this);
    if (current.result() == CudaDriver::kSuccess) driver_.destroy_stream(deliveries_);
    fetches_.clear();
  }
  if (primary_of_ >= 0) driver_.release_primary(primary_of_);
}

// That of another GPU is not looked for: if there is none, it would be made.
bool GpuContext::has(const void* memory) const {
  int ordinal = -1;
  driver_.pointer_attribute(&ordinal, CudaDriver::kDeviceOf,
                            reinterpret_cast<CudaDriver::Address>(memory));
  if (ordinal != ordinal_) return false;
  const auto context = of(driver_, memory);
  return context && context->get() == this;
}

Status GpuContext::failed(CudaDriver::Result result, std::string_view what) const {
  return {Code::kInternal, fmt::format("{}: {}", what, driver_.in_words(result))};
}

}  // namespace gradring::client
