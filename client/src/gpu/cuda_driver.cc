#include "client/src/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace gradring::client {
namespace {

// Takes a function from the driver's library.
struct Find {
  void* library;

  template <typename Function>
  bool operator()(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(::dlsym(library, name));
    return *function != nullptr;
  }
};

// Puts one in its place that does nothing.
struct Refuse {
  template <typename... Arguments>
  bool operator()(const char*, CudaDriver::Result (**function)(Arguments...)) const {
    if (*function != nullptr) {
      *function = [](Arguments...) { return CudaDriver::kNotInitialized; };
    }
    return true;
  }
};

template <typename Take>
bool each(const Take& take, CudaDriver* d) {
  return take("cuPointerGetAttribute", &d->pointer_attribute) &&
         take("cuDeviceGet", &d->get_device) &&
         take("cuDevicePrimaryCtxRetain", &d->retain_primary) &&
         take("cuDevicePrimaryCtxRelease_v2", &d->release_primary) &&
         take("cuCtxPushCurrent_v2", &d->push_context) &&
         take("cuCtxPopCurrent_v2", &d->pop_context) &&
         take("cuMemHostRegister_v2", &d->register_host) &&
         take("cuMemHostUnregister", &d->unregister_host) &&
         take("cuStreamCreate", &d->create_stream) &&
         take("cuStreamDestroy_v2", &d->destroy_stream) &&
         take("cuStreamSynchronize", &d->synchronize) &&
         take("cuStreamIsCapturing", &d->is_capturing) &&
         take("cuThreadExchangeStreamCaptureMode", &d->exchange_capture_mode) &&
         take("cuMemcpyDtoHAsync_v2", &d->copy_to_host) &&
         take("cuMemcpyHtoDAsync_v2", &d->copy_to_device) && take("cuGetErrorName", &d->name_of);
}

// All of them or none.
template <typename Take>
void each_of_order(const Take& take, CudaDriver* d) {
  const bool all =
      take("cuMemHostGetDevicePointer_v2", &d->device_address) &&
      take("cuEventCreate", &d->create_event) && take("cuEventDestroy_v2", &d->destroy_event) &&
      take("cuEventRecord", &d->record_event) && take("cuStreamWaitEvent", &d->wait_for_event) &&
      take("cuEventQuery", &d->query_event) && take("cuEventSynchronize", &d->wait_here) &&
      take("cuStreamWriteValue32_v2", &d->write_word) &&
      take("cuStreamWaitValue32_v2", &d->wait_for_word);
  if (!all) d->wait_for_word = nullptr;
}

template <typename Take>
void each_of_sharing(const Take& take, CudaDriver* d) {
  const bool all =
      take("cuMemGetAddressRange_v2", &d->range_around) &&
      take("cuIpcGetMemHandle", &d->get_handle) &&
      (take("cuDeviceGetUuid_v2", &d->uuid_of) || take("cuDeviceGetUuid", &d->uuid_of)) &&
      take("cuMemAlloc_v2", &d->allocate) && take("cuMemFree_v2", &d->free) &&
      take("cuMemcpyDtoDAsync_v2", &d->copy_within);
  if (!all) d->copy_within = nullptr;
}

template <typename Take>
void each_of_pages(const Take& take, CudaDriver* d) {
  const bool all = take("cuDeviceGetCount", &d->count_devices) &&
                   take("cuDeviceCanAccessPeer", &d->can_access_peer) &&
                   take("cuMemGetAllocationGranularity", &d->page_bytes) &&
                   take("cuMemCreate", &d->create_pages) &&
                   take("cuMemRelease", &d->release_pages) &&
                   take("cuMemAddressReserve", &d->reserve) &&
                   take("cuMemAddressFree", &d->unreserve) && take("cuMemMap", &d->map) &&
                   take("cuMemUnmap", &d->unmap) && take("cuMemSetAccess", &d->set_access) &&
                   take("cuMemExportToShareableHandle", &d->offer_pages);
  if (!all) d->offer_pages = nullptr;
}

}  // namespace

std::string CudaDriver::in_words(Result result) const {
  const char* name = nullptr;
  if (name_of(result, &name) == kSuccess && name != nullptr) return name;
  return "error " + std::to_string(result) + " of CUDA";
}

// Looked for again as long as there is none: a process may load it at any time.
const CudaDriver* cuda_driver() {
  static std::mutex mutex;
  static std::atomic<CudaDriver*> known = nullptr;
  if (const CudaDriver* const driver = known) return driver;
  const std::lock_guard lock(mutex);
  if (known != nullptr) return known;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto driver = std::make_unique<CudaDriver>();
  const Find find{library};
  if (!each(find, driver.get())) {
    ::dlclose(library);
    return nullptr;
  }
  each_of_order(find, driver.get());
  each_of_sharing(find, driver.get());
  each_of_pages(find, driver.get());
  known = driver.release();  // and the library stays
  // In a child the driver has nothing, and whoever asks it waits for threads that are not there.
  ::pthread_atfork(nullptr, nullptr, [] {
    each(Refuse(), known);
    each_of_order(Refuse(), known);
    each_of_sharing(Refuse(), known);
    each_of_pages(Refuse(), known);
  });
  return known;
}

}  // namespace gradring::client
