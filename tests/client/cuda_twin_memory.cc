// Functions of libcuda.so.1 for memory, with the numbers and names of its cuda.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/client/cuda_twin_gpu.h"
#include "transport/cuda/driver.h"

namespace {

using namespace gradring::test::twin;  // NOLINT: this is the driver of that

// Attributes of an address.
constexpr int kContextOf = 1, kMemoryTypeOf = 2, kAddressOf = 3, kBufferOf = 7, kDeviceOf = 9,
              kCanBeOpened = 10;
constexpr unsigned kDeviceMemory = 2;

using gradring::transport::cuda::Driver;

// CUipcMemHandle: where another process finds the file. What is freed and allocated anew has
// another one, as the number of a file alone would not.
struct Handle {
  std::array<char, 8> magic;
  int process;
  int file;
  int gpu;
  int unused;
  uint64_t size;
  uint64_t buffer;
  std::array<char, 24> rest;
};
static_assert(sizeof(Handle) == 64);
constexpr std::array<char, 8> kMagic = {'t', 'w', 'i', 'n', ' ', 'i', 'p', 'c'};

// Memory of a pool cannot, and what is another process's is for that one to give.
bool can_be_opened(const Range& range) {
  return !range.pooled && !range.mapped && range.handle.empty();
}

// Where a copy in the current context finds that memory; null: nowhere.
char* found_here(uint64_t address, size_t bytes) {
  const bool here = contexts.empty() || is_imported_for(gpu_of(contexts.back()), address);
  return here ? at(address, bytes) : nullptr;
}

// Either one: whoever copies within the GPUs' memory need not say whose it is.
int copy_within(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (found_here(to, bytes) == nullptr || found_here(from, bytes) == nullptr) {
    return kIllegalAddress;
  }
  return enqueue_work(stream, [=] {
    const char* const source = at(from, bytes);
    char* const target = at(to, bytes);
    if (source == nullptr || target == nullptr) return kIllegalAddress;
    std::memmove(target, source, bytes);
    return kSuccess;
  });
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  if (at(address, 1) == nullptr) return kInvalidValue;
  const Range& range = range_of(address)->second;
  switch (attribute) {
    case kContextOf:
      *static_cast<void**>(value) = range.pooled || range.mapped
                                        ? nullptr
                                        : &gpu().contexts.at(static_cast<size_t>(range.gpu));
      return kSuccess;
    case kMemoryTypeOf:
      *static_cast<unsigned*>(value) = kDeviceMemory;
      return kSuccess;
    case kDeviceOf:
      *static_cast<int*>(value) = range.gpu;
      return kSuccess;
    case kAddressOf: {
      if (contexts.empty()) return kInvalidContext;
      const int number = gpu_of(contexts.back());
      const bool near = range.gpu == number || gpu().peers.count({number, range.gpu}) > 0;
      if (!near || !is_imported_for(number, address)) return kInvalidValue;
      *static_cast<uint64_t*>(value) = address;
      return kSuccess;
    }
    case kBufferOf:
      *static_cast<uint64_t*>(value) = range.buffer;
      return kSuccess;
    case kCanBeOpened:
      *static_cast<int*>(value) = can_be_opened(range) ? 1 : 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  const auto lock = entered("cuMemAlloc_v2");
  if (const int result = told_unsafe("cuMemAlloc_v2"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  *address = allocate(gpu_of(contexts.back()), bytes);
  gpu().ranges.at(*address).allocated = true;
  return kSuccess;
}

int cuMemFree_v2(uint64_t address) {
  auto lock = entered("cuMemFree_v2");
  if (const int result = told_unsafe("cuMemFree_v2"); result != kSuccess) return result;
  const auto found = gpu().ranges.find(address);
  if (found == gpu().ranges.end() || !found->second.allocated) return kInvalidValue;
  settle(&lock, found->second.gpu);
  end_range(address);
  return kSuccess;
}

int cuMemGetAddressRange_v2(uint64_t* base, size_t* bytes, uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemGetAddressRange_v2"); result != kSuccess) return result;
  if (at(address, 1) == nullptr) return kNotFound;
  if (base != nullptr) *base = range_of(address)->first;
  if (bytes != nullptr) *bytes = range_of(address)->second.size;
  return kSuccess;
}

int cuIpcGetMemHandle(void* handle, uint64_t address) {
  const auto lock = entered("cuIpcGetMemHandle");
  if (const int result = told_unsafe("cuIpcGetMemHandle"); result != kSuccess) return result;
  const auto found = gpu().ranges.find(address);
  if (found == gpu().ranges.end() || !can_be_opened(found->second)) return kInvalidValue;
  const Range& range = found->second;
  const Handle made = {kMagic, ::getpid(), range.file, range.gpu, 0, range.size, range.buffer, {}};
  std::memcpy(handle, &made, sizeof(made));
  return kSuccess;
}

// The one who has it may be gone soon after. In each context once, and then it is counted; of one's
// own process it is refused by a driver, and done here.
int cuIpcOpenMemHandle_v2(uint64_t* address, Driver::IpcHandle given, unsigned flags) {
  Handle handle;
  std::memcpy(&handle, &given, sizeof(handle));
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuIpcOpenMemHandle_v2"); result != kSuccess) return result;
  constexpr unsigned kLazyPeers = 1;
  if (handle.magic != kMagic || flags != kLazyPeers) return kInvalidValue;
  if (contexts.empty()) return kInvalidContext;
  const int here = gpu_of(contexts.back());
  if (here != handle.gpu) {
    if (const int result = told("cuIpcOpenMemHandle_v2 elsewhere"); result != kSuccess) {
      return result;
    }
    if (told("cuDeviceCanAccessPeer") != kSuccess) return kNoPeer;
    gpu().peers.emplace(here, handle.gpu);
  }
  const std::string name(reinterpret_cast<const char*>(&handle), sizeof(handle));
  for (auto& [base, range] : gpu().ranges) {
    if (range.handle != name || range.opened_on != here) continue;
    *address = base;
    ++range.opens;
    return kSuccess;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.file);
  Range range{.size = handle.size,
              .file = ::open(path.c_str(), O_RDWR | O_CLOEXEC),
              .gpu = handle.gpu,
              .handle = name,
              .opened_on = here,
              .opens = 1};
  struct stat known {};
  const bool whole = range.file >= 0 && ::fstat(range.file, &known) == 0 &&
                     static_cast<uint64_t>(known.st_size) == handle.size;
  if (whole) *address = add_range(range);
  if (whole && *address != 0) return kSuccess;
  if (range.file >= 0) ::close(range.file);
  return kMapFailed;
}

int cuIpcCloseMemHandle(uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().ranges.find(address);
  if (found == gpu().ranges.end() || found->second.handle.empty()) return kInvalidValue;
  if (--found->second.opens == 0) end_range(address);
  return kSuccess;
}

int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  const auto lock = entered("cuMemHostRegister_v2");
  if (const int result = told_unsafe("cuMemHostRegister_v2"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  const auto first = reinterpret_cast<uint64_t>(memory);
  for (const auto& [base, pinned] : gpu().pinned) {
    const auto other = reinterpret_cast<uint64_t>(base);
    if (first < other + pinned.size && other < first + bytes) return kAlreadyRegistered;
  }
  // An address that is nobody else's.
  void* const seen =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  gpu().pinned[memory] = {bytes, reinterpret_cast<uint64_t>(seen)};
  return kSuccess;
}

int cuMemHostUnregister(void* memory) {
  auto lock = entered("cuMemHostUnregister");
  if (const int result = told_unsafe("cuMemHostUnregister"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  settle(&lock, gpu_of(contexts.back()));
  const auto found = gpu().pinned.find(memory);
  if (found == gpu().pinned.end()) return kNotRegistered;
  ::munmap(std::bit_cast<void*>(found->second.address), found->second.size);
  gpu().pinned.erase(found);
  return kSuccess;
}

// Only of memory that is pinned; the GPU sees it elsewhere.
int cuMemHostGetDevicePointer_v2(uint64_t* address, void* memory, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  for (const auto& [base, pinned] : gpu().pinned) {
    const auto offset = reinterpret_cast<uint64_t>(memory) - reinterpret_cast<uint64_t>(base);
    if (offset >= pinned.size) continue;
    *address = pinned.address + offset;
    return kSuccess;
  }
  return kInvalidValue;
}

int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void* stream) {
  const std::lock_guard lock(gpu().mutex);
  if (found_here(address, bytes) == nullptr) return kIllegalAddress;
  return enqueue_work(stream, [=] {
    const char* const from = at(address, bytes);
    if (from == nullptr) return kIllegalAddress;
    std::memcpy(host, from, bytes);
    return kSuccess;
  });
}

int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void* stream) {
  const auto lock = entered("cuMemcpyHtoDAsync_v2");
  if (found_here(address, bytes) == nullptr) return kIllegalAddress;
  return enqueue_work(stream, [=] {
    char* const to = at(address, bytes);
    if (to == nullptr) return kIllegalAddress;
    std::memcpy(to, host, bytes);
    return kSuccess;
  });
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return copy_within(to, from, bytes, stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  {
    const std::lock_guard lock(gpu().mutex);
    if (const int result = told("cuMemcpyDtoDAsync_v2"); result != kSuccess) return result;
  }
  return copy_within(to, from, bytes, stream);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
