#include "client/src/gpu/gpu_handle.h"

#include <fmt/format.h>

namespace gradring::client {

tl::expected<std::array<char, 16>, CudaDriver::Result> uuid_of(const CudaDriver& driver,
                                                               const void* memory) {
  int ordinal = 0, device = 0;
  std::array<char, 16> uuid{};
  auto result = driver.pointer_attribute(&ordinal, CudaDriver::kDeviceOf,
                                         reinterpret_cast<CudaDriver::Address>(memory));
  if (result == CudaDriver::kSuccess) result = driver.get_device(&device, ordinal);
  if (result == CudaDriver::kSuccess) result = driver.uuid_of(uuid.data(), device);
  if (result != CudaDriver::kSuccess) return tl::unexpected(result);
  return uuid;
}

tl::expected<GpuHandle, Status> handle_of(const GpuContext& context, const void* memory,
                                          uint64_t bytes) {
  constexpr auto kSuccess = CudaDriver::kSuccess;
  const CudaDriver& driver = context.driver();
  const auto address = reinterpret_cast<CudaDriver::Address>(memory);
  const auto refuse = [&](Code code, std::string_view why) {
    return tl::unexpected(
        Status(code, fmt::format("{} bytes at {} of the GPU cannot be opened by the daemon: {}",
                                 bytes, memory, why)));
  };
  if (!driver.shares()) return refuse(Code::kUnavailable, "the driver is too old");
  const GpuContext::Current current(context);
  auto result = current.result();
  unsigned may = 0;
  if (result == kSuccess) {
    result = driver.pointer_attribute(&may, CudaDriver::kMayBeOpened, address);
  }
  if (result == kSuccess && may == 0) {
    return refuse(Code::kUnavailable,
                  "it is of cudaMallocAsync, or of virtual memory as PyTorch's with "
                  "expandable_segments:True; memory of cudaMalloc can be");
  }
  CudaDriver::Address base = 0;
  size_t whole = 0;
  GpuHandle handle;
  if (result == kSuccess) result = driver.range_around(&base, &whole, address);
  if (result == kSuccess) result = driver.get_handle(handle.allocation.data(), base);
  if (result != kSuccess) return refuse(Code::kUnavailable, driver.in_words(result));
  const auto uuid = uuid_of(driver, memory);
  if (!uuid) return refuse(Code::kUnavailable, driver.in_words(uuid.error()));
  handle.gpu = *uuid;
  handle.offset = address - base;
  return handle;
}

}  // namespace gradring::client
