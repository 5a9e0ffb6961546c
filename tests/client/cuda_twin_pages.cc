// Functions of libcuda.so.1 for memory that is made of pages, which whoever has a descriptor of may
// map: with the numbers and names of its cuda.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <string>

#include "proto/cuda_pages.h"
#include "tests/client/cuda_twin_gpu.h"

namespace {

using namespace gradring::test::twin;  // NOLINT: this is the driver of that
using gradring::CudaAccess, gradring::CudaLocation, gradring::CudaPagesKind;
using gradring::kCudaDescriptor;

constexpr size_t kPage = size_t{2} << 20;
constexpr const char* kName = "pages of GPU ";

bool is_of_pages(size_t bytes) { return bytes > 0 && bytes % kPage == 0; }

bool is_right(const CudaPagesKind* kind) {
  return kind->kind == 1 && kind->at.kind == 1 && kind->at.device >= 0 &&
         kind->at.device < gpu().count && (kind->handles == 0 || kind->handles == kCudaDescriptor);
}

uint64_t keep(const Pages& pages) {
  const uint64_t handle = ++gpu().buffers;
  gpu().pages[handle] = pages;
  return handle;
}

// The file says whose it is, as a descriptor of the driver's does.
int gpu_in_name(int file) {
  std::array<char, 64> name{};
  const std::string link = fmt::format("/proc/self/fd/{}", file);
  if (::readlink(link.c_str(), name.data(), name.size() - 1) <= 0) return -1;
  const std::string_view found(name.data());
  const std::string begin = fmt::format("/memfd:{}", kName);
  return found.substr(0, begin.size()) == begin ? found[begin.size()] - '0' : -1;
}

}  // namespace

// The names are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

// Of all streams of the context: whoever captures one of them has lost that, in any mode.
int cuCtxSynchronize() {
  auto lock = entered("cuCtxSynchronize");
  if (const int result = told_unsafe("cuCtxSynchronize"); result != kSuccess) return result;
  if (contexts.empty()) return kInvalidContext;
  const int number = gpu_of(contexts.back());
  bool captured = false;
  for (auto& [stream, capture] : gpu().captures) {
    if (gpu().streams.at(stream).gpu != number) continue;
    captured = capture.spoilt = true;
  }
  if (captured) return kCaptureUnsupported;
  settle(&lock, number);
  return kSuccess;
}

int cuMemGetAllocationGranularity(size_t* bytes, const CudaPagesKind* kind, int) {
  const std::lock_guard lock(gpu().mutex);
  if (!is_right(kind)) return kInvalidValue;
  *bytes = kPage;
  return kSuccess;
}

int cuMemCreate(uint64_t* handle, size_t bytes, const CudaPagesKind* kind, uint64_t flags) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemCreate"); result != kSuccess) return result;
  if (!is_of_pages(bytes) || !is_right(kind) || flags != 0) return kInvalidValue;
  const std::string name = fmt::format("{}{}", kName, kind->at.device);
  const int file = ::memfd_create(name.c_str(), MFD_CLOEXEC);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) return kInvalidValue;
  *handle = keep({file, bytes, kind->at.device, kind->handles == kCudaDescriptor});
  return kSuccess;
}

int cuMemRelease(uint64_t handle) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().pages.find(handle);
  if (found == gpu().pages.end()) return kInvalidValue;
  ::close(found->second.file);
  gpu().pages.erase(found);
  return kSuccess;
}

int cuMemExportToShareableHandle(void* to, uint64_t handle, int kind, uint64_t flags) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemExportToShareableHandle"); result != kSuccess) return result;
  const auto found = gpu().pages.find(handle);
  if (found == gpu().pages.end() || kind != kCudaDescriptor || flags != 0) return kInvalidValue;
  if (!found->second.offered) return kInvalidValue;
  *static_cast<int*>(to) = ::fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
  return kSuccess;
}

int cuMemImportFromShareableHandle(uint64_t* handle, void* descriptor, int kind) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemImportFromShareableHandle"); result != kSuccess) return result;
  const auto given = static_cast<int>(std::bit_cast<intptr_t>(descriptor));
  const int file = ::fcntl(given, F_DUPFD_CLOEXEC, 0);
  const int of = gpu_in_name(file);
  struct stat known {};
  const bool is_ours = kind == kCudaDescriptor && of >= 0 && ::fstat(file, &known) == 0;
  if (!is_ours && file >= 0) ::close(file);
  if (!is_ours) return kInvalidValue;
  *handle = keep({file, static_cast<size_t>(known.st_size), of, true});
  return kSuccess;
}

int cuMemGetAllocationPropertiesFromHandle(CudaPagesKind* kind, uint64_t handle) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().pages.find(handle);
  if (found == gpu().pages.end()) return kInvalidValue;
  *kind = {};
  kind->at.device = found->second.gpu;
  return kSuccess;
}

int cuMemAddressReserve(uint64_t* address, size_t bytes, size_t, uint64_t, uint64_t flags) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemAddressReserve"); result != kSuccess) return result;
  if (!is_of_pages(bytes) || flags != 0) return kInvalidValue;
  *address = reserve(bytes);
  gpu().addresses[*address] = bytes;
  return kSuccess;
}

// Not while something is mapped there.
int cuMemAddressFree(uint64_t address, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().addresses.find(address);
  if (found == gpu().addresses.end() || found->second != bytes) return kInvalidValue;
  if (gpu().ranges.count(address) != 0) return kInvalidValue;
  ::munmap(std::bit_cast<void*>(address), bytes);
  gpu().addresses.erase(found);
  return kSuccess;
}

// Nobody has access before that is said.
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemMap"); result != kSuccess) return result;
  const auto reserved = gpu().addresses.find(address);
  const auto found = gpu().pages.find(handle);
  if (reserved == gpu().addresses.end() || reserved->second != bytes) return kInvalidValue;
  if (found == gpu().pages.end() || gpu().ranges.count(address) != 0) return kInvalidValue;
  const Pages& pages = found->second;
  if (offset != 0 || flags != 0 || bytes > pages.size) return kInvalidValue;
  Range range{.size = bytes,
              .file = ::fcntl(pages.file, F_DUPFD_CLOEXEC, 0),
              .gpu = pages.gpu,
              .mapped = true};
  return add_range(std::move(range), address) == address ? kSuccess : kMapFailed;
}

int cuMemUnmap(uint64_t address, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  const auto found = gpu().ranges.find(address);
  if (found == gpu().ranges.end() || !found->second.mapped || found->second.size != bytes) {
    return kInvalidValue;
  }
  end_range(address);
  return kSuccess;
}

int cuMemSetAccess(uint64_t address, size_t bytes, const CudaAccess* all, size_t count) {
  const std::lock_guard lock(gpu().mutex);
  if (const int result = told("cuMemSetAccess"); result != kSuccess) return result;
  const auto found = gpu().ranges.find(address);
  if (found == gpu().ranges.end() || !found->second.mapped || found->second.size != bytes) {
    return kInvalidValue;
  }
  Range& range = found->second;
  for (size_t i = 0; i < count; ++i) {
    const CudaLocation& by = all[i].by;
    if (by.kind != 1 || by.device < 0 || by.device >= gpu().count) return kInvalidValue;
    const bool far = by.device != range.gpu;
    if (far && told("cuDeviceCanAccessPeer") != kSuccess) return kNoPeer;
    const unsigned bit = 1U << by.device;
    range.readers = all[i].kind == 0 ? range.readers & ~bit : range.readers | bit;
  }
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
