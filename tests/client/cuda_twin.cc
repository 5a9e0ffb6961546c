// Functions of libcuda.so.1, with the numbers and names of its cuda.h.
#include "tests/client/cuda_twin.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/stream_word.h"

namespace {

using Clock = std::chrono::steady_clock;
using gradring::StreamWord;

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400,
              kIllegalAddress = 700, kCaptureUnsupported = 900;
constexpr int kContextOf = 1, kMemoryTypeOf = 2, kDeviceOf = 9;
constexpr unsigned kDeviceMemory = 2;
// What is put on a stream is done that much later, so that whoever does not wait sees nothing.
constexpr auto kLate = std::chrono::milliseconds(1);

// Nothing: it cannot be done yet.
using Act = std::function<std::optional<int>()>;

struct Range {
  std::vector<char> bytes;
  bool pooled = false;
  void* addresses = nullptr;
};
struct Stream {
  std::deque<std::pair<Clock::time_point, Act>> work;
  int error = kSuccess;  // of what was done since somebody waited for it
  bool held = false;
  bool made = false;  // by cuStreamCreate; others are the tests' own
};
struct Event {
  uint64_t recorded = 0;
  std::set<uint64_t> done;  // of those: streams may come to the later ones first
};
struct Gpu {
  std::mutex mutex;
  std::condition_variable done;
  std::map<uint64_t, Range> ranges;
  std::map<void*, Stream> streams = {{nullptr, {}}};
  std::map<void*, Event> events;
  std::set<void*> capturing;
  std::map<void*, size_t> pinned;
  std::map<std::string, int> answers;
  int primaries = 0;
  int entered = 0;
  char context = 0;
};

// What the streams have come to; in turns, as far as each can go.
[[noreturn]] void work_on(Gpu* gpu) {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(gpu->mutex);
    for (auto& [id, stream] : gpu->streams) {
      while (!stream.held && !stream.work.empty()) {
        const auto& [since, act] = stream.work.front();
        if (Clock::now() - since < kLate) break;
        const std::optional<int> result = act();
        if (!result) break;
        if (stream.error == kSuccess) stream.error = *result;
        stream.work.pop_front();
      }
    }
    gpu->done.notify_all();
  }
}

// Outlives everything: its thread never ends.
Gpu& gpu() {
  static Gpu* const kTheGpu = [] {
    auto* const made = new Gpu;
    std::thread(work_on, made).detach();
    return made;
  }();
  return *kTheGpu;
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

int enqueue(void* stream, Act act) {
  if (contexts.empty()) return kInvalidContext;
  const auto found = gpu().streams.find(stream);
  if (found == gpu().streams.end()) return kInvalidHandle;
  found->second.work.emplace_back(Clock::now(), std::move(act));
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

void* twin_make_stream() {
  const std::lock_guard lock(gpu().mutex);
  void* const stream = new char;
  gpu().streams[stream];
  return stream;
}

void twin_end_stream(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  gpu().streams.erase(stream);
  delete static_cast<char*>(stream);
}

void twin_fill_later(void* stream, uint64_t address, float value, size_t count) {
  const std::lock_guard lock(gpu().mutex);
  const auto fill = [=] {
    auto* const to = reinterpret_cast<float*>(at(address, count * sizeof(float)));
    if (to == nullptr) return kIllegalAddress;
    std::fill_n(to, count, value);
    return kSuccess;
  };
  gpu().streams.at(stream).work.emplace_back(Clock::now(), fill);
}

void twin_hold(void* stream, bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().streams.at(stream).held = on;
}

void twin_wait_for(void* stream) {
  std::unique_lock lock(gpu().mutex);
  Stream& waited = gpu().streams.at(stream);
  gpu().done.wait(lock, [&waited] { return waited.work.empty(); });
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
  const auto streams = std::count_if(gpu().streams.begin(), gpu().streams.end(),
                                     [](const auto& entry) { return entry.second.made; });
  return static_cast<int>(gpu().pinned.size() + gpu().events.size()) + static_cast<int>(streams) +
         gpu().primaries + gpu().entered;
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

extern const gradring::test::CudaTwin gradring_cuda_twin;
const gradring::test::CudaTwin gradring_cuda_twin = {
    {twin_alloc, twin_free, twin_make_stream, twin_end_stream, twin_fill_later, twin_hold,
     twin_wait_for, twin_read},
    twin_capture,
    twin_answer,
    twin_held};

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
    StreamWord{reinterpret_cast<uint32_t*>(address), value}.set();
    return kSuccess;
  });
}

int cuStreamWaitValue32_v2(void* stream, uint64_t address, uint32_t value, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuStreamWaitValue32_v2"); result != kSuccess) return result;
  return enqueue(stream, [=]() -> std::optional<int> {
    if (!StreamWord{reinterpret_cast<uint32_t*>(address), value}.has_come()) return std::nullopt;
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

int cuGetErrorName(int result, const char** name) {
  *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *name == nullptr ? kInvalidValue : kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
