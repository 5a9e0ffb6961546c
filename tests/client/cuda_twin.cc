// Functions of libcuda.so.1, with the numbers and names of its cuda.h: contexts, streams and
// events. Memory is in cuda_twin_memory.cc, kernels in cuda_twin_kernels.cc.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/stream_word.h"
#include "tests/client/cuda_twin_gpu.h"

namespace {

using gradring::StreamWord;
using namespace gradring::test::twin;  // NOLINT: this is the driver of that

// Attributes of a device.
constexpr int kCountsMultiprocessors = 16, kLendsDmabufs = 124;
constexpr int kUnderMps = 133;  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

int cuInit(unsigned) {
  const std::lock_guard lock(gpu().mutex);
  return told("cuInit");
}

int cuDeviceGetCount(int* count) {
  const std::lock_guard lock(gpu().mutex);
  *count = gpu().count;
  return told("cuDeviceGetCount");
}

int cuDeviceGet(int* device, int ordinal) {
  const std::lock_guard lock(gpu().mutex);
  *device = ordinal;
  return ordinal >= 0 && ordinal < gpu().count ? kSuccess : kInvalidValue;
}

int cuDeviceGetName(char* name, int bytes, int) {
  return std::snprintf(name, static_cast<size_t>(bytes), "Twin") > 0 ? kSuccess : kInvalidValue;
}

// The same in all processes.
int cuDeviceGetUuid_v2(void* uuid, int device) {
  std::array<char, 16> made = {'g', 'r', 'a', 'd', 'r', 'i', 'n', 'g',
                               ' ', 't', 'w', 'i', 'n', ' ', '#'};
  made.back() = static_cast<char>('0' + device);
  std::memcpy(uuid, made.data(), made.size());
  return kSuccess;
}

int cuDeviceGetUuid(void* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const std::lock_guard lock(gpu().mutex);
  *value = attribute == kCountsMultiprocessors ? kMultiprocessors : 1;
  if (attribute == kLendsDmabufs) return told("cuDeviceGetAttribute");
  if (attribute == kUnderMps) {
    *value = gpu().under_mps ? 1 : 0;
    return kSuccess;
  }
  return attribute == kCountsMultiprocessors ? kSuccess : kInvalidValue;
}

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  const std::lock_guard lock(gpu().mutex);
  *can = device != peer && told("cuDeviceCanAccessPeer") == kSuccess ? 1 : 0;
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuDevicePrimaryCtxRetain"); result != kSuccess) return result;
  if (device < 0 || device >= gpu().count) return kInvalidValue;
  ++gpu().primaries;
  *context = &gpu().contexts.at(static_cast<size_t>(device));
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(gpu().mutex);
  if (--gpu().primaries > 0) return kSuccess;
  gpu().peers.clear();
  gpu().stack_bytes = 1024;
  return kSuccess;
}

int cuCtxSetLimit(int limit, size_t value) {
  const std::lock_guard lock(gpu().mutex);
  if (contexts.empty() || limit != 0) return kInvalidValue;
  gpu().stack_bytes = value;
  return kSuccess;
}

int cuCtxPushCurrent_v2(void* context) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu_of(context) < 0) return kInvalidContext;
  contexts.push_back(context);
  ++gpu().entered;
  ++gpu().entries;
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

// From the current context to that one.
int cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return kSuccess;
}

int cuCtxEnablePeerAccess(void* context, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (contexts.empty() || gpu_of(context) < 0) return kInvalidContext;
  const bool fresh = gpu().peers.emplace(gpu_of(contexts.back()), gpu_of(context)).second;
  return fresh ? kSuccess : kPeerAlready;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  const auto lock = entered("cuStreamCreate");
  if (const int result = told_unsafe("cuStreamCreate"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  *stream = new char;
  Stream& made = add_stream(*stream);
  made.made = true;
  made.blocking = flags == 0;
  made.gpu = gpu_of(contexts.back());
  return kSuccess;
}

int cuStreamCreate(void** stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (stream == nullptr || gpu().streams.count(stream) == 0) return kInvalidValue;
  end_stream(stream);
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  std::unique_lock lock(gpu().mutex);
  const auto captured = gpu().captures.find(stream);
  if (captured != gpu().captures.end()) captured->second.spoilt = true;
  if (captured != gpu().captures.end()) return kCaptureUnsupported;
  if (const int told = told_unsafe("cuStreamSynchronize"); told != kSuccess) return told;
  if (gpu().streams.count(stream) == 0) return kInvalidHandle;
  Stream& waited = gpu().streams.at(stream);
  gpu().done.wait(lock, [&waited] { return waited.work.empty(); });
  const int result = std::exchange(waited.error, kSuccess);
  return result;
}

int cuStreamQuery(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (const int told = told_unsafe("cuStreamQuery"); told != kSuccess) return told;
  const auto found = gpu().streams.find(stream);
  if (found == gpu().streams.end()) return kInvalidHandle;
  if (const int fault = fault_here(); fault != kSuccess) return fault;
  return found->second.work.empty() ? found->second.error : kNotReady;
}

int cuEventCreate(void** event, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuEventCreate"); result != kSuccess) return result;
  *event = new char;
  gpu().events[*event].gpu = contexts.empty() ? 0 : gpu_of(contexts.back());
  return kSuccess;
}

int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().events.erase(event) == 0) return kInvalidValue;
  delete static_cast<char*>(event);
  return kSuccess;
}

int cuEventRecord(void* event, void* stream) {
  std::unique_lock lock(gpu().mutex);
  gpu().done.wait(lock, [stream] {
    const auto known = gpu().streams.find(stream);
    return known == gpu().streams.end() || !known->second.full;
  });
  if (gpu().events.count(event) == 0 || contexts.empty()) return kInvalidHandle;
  const auto found = gpu().streams.find(stream);
  if (found == gpu().streams.end() || found->second.ended) return kInvalidHandle;
  // The default stream is that of the current context.
  const int on = stream == nullptr ? gpu_of(contexts.back()) : found->second.gpu;
  if (gpu().events.at(event).gpu != on) return kInvalidHandle;
  return enqueue(stream, [event, stream, number = ++gpu().events[event].recorded] {
    const auto known = gpu().events.find(event);
    if (known == gpu().events.end()) return kSuccess;
    known->second.done.insert(number);
    known->second.error = gpu().streams.at(stream).error;
    return kSuccess;
  });
}

int cuEventQuery(void* event) {
  const std::lock_guard lock(gpu().mutex);
  if (const int told = told_unsafe("cuEventQuery"); told != kSuccess) return told;
  const auto known = gpu().events.find(event);
  if (known == gpu().events.end()) return kInvalidHandle;
  if (const int fault = fault_here(); fault != kSuccess) return fault;
  const uint64_t last = known->second.recorded;
  if (last > 0 && known->second.done.count(last) == 0) return kNotReady;
  return known->second.error;
}

int cuEventSynchronize(void* event) {
  std::unique_lock lock(gpu().mutex);
  if (const int told = told_unsafe("cuEventSynchronize"); told != kSuccess) return told;
  if (gpu().events.count(event) == 0) return kInvalidHandle;
  Event& waited = gpu().events.at(event);
  const uint64_t last = waited.recorded;
  gpu().done.wait(lock, [&] { return last == 0 || waited.done.count(last) > 0; });
  return waited.error;
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

// Whatever is there.
int cuStreamWriteValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamWriteValue32_v2"); result != kSuccess) return result;
  if (word_at(address) == nullptr) return kInvalidValue;
  return enqueue(stream, [=] {
    uint32_t* const word = word_at(address);
    if (word == nullptr) return kIllegalAddress;
    std::atomic_ref(*word).store(value, std::memory_order_release);
    return kSuccess;
  });
}

int cuStreamWaitValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  const auto lock = entered("cuStreamWaitValue32_v2");
  if (const int result = told("cuStreamWaitValue32_v2"); result != kSuccess) return result;
  if (word_at(address) == nullptr) return kInvalidValue;
  return enqueue(stream, [=]() -> std::optional<int> {
    uint32_t* const word = word_at(address);
    if (word == nullptr) return kIllegalAddress;
    if (!StreamWord{word, value}.has_come()) return std::nullopt;
    return kSuccess;
  });
}

int cuStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().captures.find(stream);
  *status = found == gpu().captures.end() ? 0 : found->second.spoilt ? 2 : 1;
  for (auto& [other, capture] : gpu().captures) {
    if (stream == nullptr && other != stream && gpu().streams.at(other).blocking) {
      capture.spoilt = true;
      return kCaptureImplicit;
    }
  }
  return told("cuStreamIsCapturing");
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < kGlobal || *mode > kRelaxed) return kInvalidValue;
  std::swap(*mode, capture_mode);
  return kSuccess;
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
