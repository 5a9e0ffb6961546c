#include "client/src/gpu/cuda_driver.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

namespace gradring::client {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, CudaDriver* d) {
  return find(library, "cuPointerGetAttribute", &d->pointer_attribute) &&
         find(library, "cuDeviceGet", &d->get_device) &&
         find(library, "cuDevicePrimaryCtxRetain", &d->retain_primary) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", &d->release_primary) &&
         find(library, "cuCtxPushCurrent_v2", &d->push_context) &&
         find(library, "cuCtxPopCurrent_v2", &d->pop_context) &&
         find(library, "cuMemHostRegister_v2", &d->register_host) &&
         find(library, "cuMemHostUnregister", &d->unregister_host) &&
         find(library, "cuStreamCreate", &d->create_stream) &&
         find(library, "cuStreamDestroy_v2", &d->destroy_stream) &&
         find(library, "cuStreamSynchronize", &d->synchronize) &&
         find(library, "cuStreamIsCapturing", &d->is_capturing) &&
         find(library, "cuThreadExchangeStreamCaptureMode", &d->exchange_capture_mode) &&
         find(library, "cuMemcpyDtoHAsync_v2", &d->copy_to_host) &&
         find(library, "cuMemcpyHtoDAsync_v2", &d->copy_to_device) &&
         find(library, "cuGetErrorName", &d->name_of);
}

// All of them or none.
void find_those_of_order(void* library, CudaDriver* d) {
  const bool all = find(library, "cuMemHostGetDevicePointer_v2", &d->device_address) &&
                   find(library, "cuEventCreate", &d->create_event) &&
                   find(library, "cuEventDestroy_v2", &d->destroy_event) &&
                   find(library, "cuEventRecord", &d->record_event) &&
                   find(library, "cuStreamWaitEvent", &d->wait_for_event) &&
                   find(library, "cuEventQuery", &d->query_event) &&
                   find(library, "cuEventSynchronize", &d->wait_here) &&
                   find(library, "cuStreamWriteValue32_v2", &d->write_word) &&
                   find(library, "cuStreamWaitValue32_v2", &d->wait_for_word);
  if (!all) d->wait_for_word = nullptr;
}

void find_those_of_sharing(void* library, CudaDriver* d) {
  const bool all = find(library, "cuMemGetAddressRange_v2", &d->range_around) &&
                   find(library, "cuIpcGetMemHandle", &d->get_handle) &&
                   (find(library, "cuDeviceGetUuid_v2", &d->uuid_of) ||
                    find(library, "cuDeviceGetUuid", &d->uuid_of)) &&
                   find(library, "cuMemAlloc_v2", &d->allocate) &&
                   find(library, "cuMemFree_v2", &d->free) &&
                   find(library, "cuMemcpyDtoDAsync_v2", &d->copy_within);
  if (!all) d->copy_within = nullptr;
}

void find_those_of_pages(void* library, CudaDriver* d) {
  const bool all = find(library, "cuDeviceGetCount", &d->count_devices) &&
                   find(library, "cuDeviceCanAccessPeer", &d->can_access_peer) &&
                   find(library, "cuMemGetAllocationGranularity", &d->page_bytes) &&
                   find(library, "cuMemCreate", &d->create_pages) &&
                   find(library, "cuMemRelease", &d->release_pages) &&
                   find(library, "cuMemAddressReserve", &d->reserve) &&
                   find(library, "cuMemAddressFree", &d->unreserve) &&
                   find(library, "cuMemMap", &d->map) && find(library, "cuMemUnmap", &d->unmap) &&
                   find(library, "cuMemSetAccess", &d->set_access) &&
                   find(library, "cuMemExportToShareableHandle", &d->offer_pages);
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
  static std::unique_ptr<const CudaDriver> known;
  const std::lock_guard lock(mutex);
  if (known != nullptr) return known.get();
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto driver = std::make_unique<CudaDriver>();
  if (!find_all(library, driver.get())) {
    ::dlclose(library);
    return nullptr;
  }
  find_those_of_order(library, driver.get());
  find_those_of_sharing(library, driver.get());
  find_those_of_pages(library, driver.get());
  known = std::move(driver);  // and the library stays
  return known.get();
}

}  // namespace gradring::client
