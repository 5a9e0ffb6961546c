// Functions of libcuda.so.1, with the numbers and names of its cuda.h.
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/stream_word.h"
#include "tests/client/cuda_twin_gpu.h"

namespace {

using gradring::StreamWord;
using namespace gradring::test::twin;  // NOLINT: this is the driver of that

constexpr int kContextOf = 1, kMemoryTypeOf = 2, kDeviceOf = 9;
constexpr unsigned kDeviceMemory = 2;

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  auto after = gpu().ranges.upper_bound(address);
  if (at(address, 1) == nullptr) return kInvalidValue;
  const Range& range = std::prev(after)->second;
  switch (attribute) {
    case kContextOf:
      *static_cast<void**>(value) = range.pooled ? nullptr : &gpu().context;
      return kSuccess;
    case kMemoryTypeOf:
      *static_cast<unsigned*>(value) = kDeviceMemory;
      return kSuccess;
    case kDeviceOf:
      *static_cast<int*>(value) = 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidValue;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuDevicePrimaryCtxRetain"); result != kSuccess) return result;
  ++gpu().primaries;
  *context = &gpu().context;
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(gpu().mutex);
  --gpu().primaries;
  return kSuccess;
}

int cuCtxPushCurrent_v2(void* context) {
  const std::lock_guard lock(gpu().mutex);
  if (context != &gpu().context) return kInvalidContext;
  contexts.push_back(context);
  ++gpu().entered;
  return kSuccess;
}

int cuCtxPopCurrent_v2(void** context) {
  const std::lock_guard lock(gpu().mutex);
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  --gpu().entered;
  return kSuccess;
}

int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemHostRegister_v2"); result != kSuccess) return result;
  return gpu().pinned.emplace(memory, bytes).second ? kSuccess : kInvalidValue;
}

int cuMemHostUnregister(void* memory) {
  const std::lock_guard lock(gpu().mutex);
  return gpu().pinned.erase(memory) == 1 ? kSuccess : kInvalidValue;
}

// Only of memory that is pinned; the GPU sees it where the host does.
int cuMemHostGetDevicePointer_v2(uint64_t* address, void* memory, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  for (const auto& [base, bytes] : gpu().pinned) {
    const auto offset = reinterpret_cast<uint64_t>(memory) - reinterpret_cast<uint64_t>(base);
    if (offset >= bytes) continue;
    *address = reinterpret_cast<uint64_t>(memory);
    return kSuccess;
  }
  return kInvalidValue;
}

int cuStreamCreate(void** stream, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamCreate"); result != kSuccess) return result;
  *stream = new char;
  gpu().streams[*stream].made = true;
  return kSuccess;
}

int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (stream == nullptr || gpu().streams.erase(stream) == 0) return kInvalidValue;
  delete static_cast<char*>(stream);
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  std::unique_lock lock(gpu().mutex);
  if (gpu().capturing.count(stream) > 0) return kCaptureUnsupported;
  if (gpu().streams.count(stream) == 0) return kInvalidHandle;
  Stream& waited = gpu().streams.at(stream);
  gpu().done.wait(lock, [&waited] { return waited.work.empty(); });
  const int result = std::exchange(waited.error, kSuccess);
  const int wanted = told("cuStreamSynchronize");
  return wanted != kSuccess ? wanted : result;
}

int cuEventCreate(void** event, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuEventCreate"); result != kSuccess) return result;
  *event = new char;
  gpu().events[*event];
  return kSuccess;
}

int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().events.erase(event) == 0) return kInvalidValue;
  delete static_cast<char*>(event);
  return kSuccess;
}

int cuEventRecord(void* event, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().events.count(event) == 0) return kInvalidHandle;
  return enqueue(stream, [event, number = ++gpu().events[event].recorded] {
    const auto known = gpu().events.find(event);
    if (known != gpu().events.end()) known->second.done.insert(number);
    return kSuccess;
  });
}

// For what was recorded until now.
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().events.count(event) == 0) return kInvalidHandle;
  return enqueue(stream, [event, number = gpu().events[event].recorded]() -> std::optional<int> {
    const auto known = gpu().events.find(event);
    const bool waits = known != gpu().events.end() && number > 0;
    if (waits && known->second.done.count(number) == 0) return std::nullopt;
    return kSuccess;
  });
}

int cuStreamWriteValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamWriteValue32_v2"); result != kSuccess) return result;
  return enqueue(stream, [=] {
    StreamWord{std::bit_cast<uint32_t*>(address), value}.set();
    return kSuccess;
  });
}

int cuStreamWaitValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamWaitValue32_v2"); result != kSuccess) return result;
  return enqueue(stream, [=]() -> std::optional<int> {
    if (!StreamWord{std::bit_cast<uint32_t*>(address), value}.has_come()) return std::nullopt;
    return kSuccess;
  });
}

int cuStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard lock(gpu().mutex);
  *status = gpu().capturing.count(stream) > 0 ? 1 : 0;
  return told("cuStreamIsCapturing");
}

int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (at(address, bytes) == nullptr) return kIllegalAddress;
  return enqueue(stream, [=] {
    const char* const from = at(address, bytes);
    if (from == nullptr) return kIllegalAddress;
    std::memcpy(host, from, bytes);
    return kSuccess;
  });
}

int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (at(address, bytes) == nullptr) return kIllegalAddress;
  return enqueue(stream, [=] {
    char* const to = at(address, bytes);
    if (to == nullptr) return kIllegalAddress;
    std::memcpy(to, host, bytes);
    return kSuccess;
  });
}

// It must not call the driver, which here as there would wait for the stream that it is on.
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  const std::lock_guard lock(gpu().mutex);
  return enqueue(stream, [=] {
    function(data);
    return kSuccess;
  });
}

int cuGetErrorName(int result, const char** name) {
  *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *name == nullptr ? kInvalidValue : kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
