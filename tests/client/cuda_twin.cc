// Functions of libcuda.so.1, with the numbers and names of its cuda.h.
#include "tests/client/cuda_twin.h"

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kIllegalAddress = 700,
              kCaptureUnsupported = 900;
constexpr int kContextOf = 1, kMemoryTypeOf = 2, kDeviceOf = 9;
constexpr unsigned kDeviceMemory = 2;

struct Range {
  std::vector<char> bytes;
  bool pooled = false;
  void* addresses = nullptr;
};
struct Gpu {
  std::mutex mutex;
  std::map<uint64_t, Range> ranges;
  std::map<void*, std::vector<std::function<int()>>> work;  // by stream
  std::set<void*> streams = {nullptr};
  std::set<void*> capturing;
  std::set<void*> pinned;
  std::map<std::string, int> answers;
  int primaries = 0;
  int entered = 0;
  char context = 0;
};
Gpu& gpu() {
  static Gpu the_gpu;
  return the_gpu;
}
thread_local std::vector<void*> contexts;

// What lies there; null: not all of it is one range.
char* at(uint64_t address, size_t bytes) {
  auto after = gpu().ranges.upper_bound(address);
  if (after == gpu().ranges.begin()) return nullptr;
  auto& [base, range] = *std::prev(after);
  const uint64_t offset = address - base;
  const bool fits = offset <= range.bytes.size() && bytes <= range.bytes.size() - offset;
  return fits ? range.bytes.data() + offset : nullptr;
}

int told(const char* function) {
  const auto found = gpu().answers.find(function);
  return found == gpu().answers.end() ? kSuccess : found->second;
}

int enqueue(void* stream, std::function<int()> act) {
  if (contexts.empty()) return kInvalidContext;
  if (gpu().streams.count(stream) == 0) return kInvalidValue;
  gpu().work[stream].push_back(std::move(act));
  return kSuccess;
}

uint64_t twin_alloc(size_t bytes, bool pooled) {
  const std::lock_guard lock(gpu().mutex);
  // An address that is nobody else's, and that nobody can read.
  void* const base =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto address = reinterpret_cast<uint64_t>(base);
  gpu().ranges[address] = {std::vector<char>(bytes), pooled, base};
  return address;
}

void twin_free(uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  const Range& range = gpu().ranges.at(address);
  ::munmap(range.addresses, range.bytes.size());
  gpu().ranges.erase(address);
}

void twin_write_later(void* stream, uint64_t address, const void* data, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  const auto* first = static_cast<const char*>(data);
  gpu().work[stream].emplace_back([address, kept = std::vector<char>(first, first + bytes)] {
    std::memcpy(at(address, kept.size()), kept.data(), kept.size());
    return kSuccess;
  });
}

void twin_read(uint64_t address, void* data, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  std::memcpy(data, at(address, bytes), bytes);
}

void twin_capture(void* stream, bool on) {
  const std::lock_guard lock(gpu().mutex);
  if (on) {
    gpu().capturing.insert(stream);
  } else {
    gpu().capturing.erase(stream);
  }
}

void twin_answer(const char* function, int result) {
  const std::lock_guard lock(gpu().mutex);
  gpu().answers[function] = result;
}

int twin_held() {
  const std::lock_guard lock(gpu().mutex);
  return static_cast<int>(gpu().pinned.size() + gpu().streams.size()) - 1 + gpu().primaries +
         gpu().entered;
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

extern const gradring::test::CudaTwin gradring_cuda_twin;
const gradring::test::CudaTwin gradring_cuda_twin = {
    twin_alloc, twin_free, twin_write_later, twin_read, twin_capture, twin_answer, twin_held};

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

int cuMemHostRegister_v2(void* memory, size_t, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemHostRegister_v2"); result != kSuccess) return result;
  return gpu().pinned.insert(memory).second ? kSuccess : kInvalidValue;
}

int cuMemHostUnregister(void* memory) {
  const std::lock_guard lock(gpu().mutex);
  return gpu().pinned.erase(memory) == 1 ? kSuccess : kInvalidValue;
}

int cuStreamCreate(void** stream, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamCreate"); result != kSuccess) return result;
  *stream = new char;
  gpu().streams.insert(*stream);
  return kSuccess;
}

int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().streams.erase(stream) == 0) return kInvalidValue;
  gpu().work.erase(stream);
  delete static_cast<char*>(stream);
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().capturing.count(stream) > 0) return kCaptureUnsupported;
  int result = told("cuStreamSynchronize");
  for (const auto& act : std::exchange(gpu().work[stream], {})) {
    if (const int done = act(); result == kSuccess) result = done;
  }
  return result;
}

int cuStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard lock(gpu().mutex);
  *status = gpu().capturing.count(stream) > 0 ? 1 : 0;
  return told("cuStreamIsCapturing");
}

int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  return enqueue(stream, [=] {
    const char* const from = at(address, bytes);
    if (from == nullptr) return kIllegalAddress;
    std::memcpy(host, from, bytes);
    return kSuccess;
  });
}

int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  return enqueue(stream, [=] {
    char* const to = at(address, bytes);
    if (to == nullptr) return kIllegalAddress;
    std::memcpy(to, host, bytes);
    return kSuccess;
  });
}

int cuGetErrorName(int result, const char** name) {
  *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *name == nullptr ? kInvalidValue : kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
