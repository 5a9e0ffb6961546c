#include "transport/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>

namespace gradring::transport::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_devices(void* library, Driver* d) {
  return find(library, "cuInit", &d->init) && find(library, "cuGetErrorName", &d->name_of) &&
         find(library, "cuDeviceGetCount", &d->count_devices) &&
         find(library, "cuDeviceGet", &d->get_device) &&
         find(library, "cuDeviceGetName", &d->device_name) &&
         (find(library, "cuDeviceGetUuid_v2", &d->device_uuid) ||  // since CUDA 11.4
          find(library, "cuDeviceGetUuid", &d->device_uuid)) &&
         find(library, "cuDeviceGetAttribute", &d->device_attribute) &&
         find(library, "cuDeviceCanAccessPeer", &d->can_access_peer) &&
         find(library, "cuDevicePrimaryCtxRetain", &d->retain_primary) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", &d->release_primary) &&
         find(library, "cuCtxPushCurrent_v2", &d->push_context) &&
         find(library, "cuCtxPopCurrent_v2", &d->pop_context) &&
         find(library, "cuCtxSetLimit", &d->set_limit) &&
         find(library, "cuCtxEnablePeerAccess", &d->enable_peer) &&
         find(library, "cuCtxGetStreamPriorityRange", &d->priority_range);
}

bool find_memory(void* library, Driver* d) {
  return find(library, "cuIpcOpenMemHandle_v2", &d->open_handle) &&
         find(library, "cuIpcCloseMemHandle", &d->close_handle) &&
         find(library, "cuPointerGetAttribute", &d->pointer_attribute) &&
         find(library, "cuMemGetAddressRange_v2", &d->address_range) &&
         find(library, "cuMemAlloc_v2", &d->allocate) && find(library, "cuMemFree_v2", &d->free) &&
         find(library, "cuMemHostRegister_v2", &d->register_host) &&
         find(library, "cuMemHostUnregister", &d->unregister_host) &&
         find(library, "cuMemHostGetDevicePointer_v2", &d->host_pointer);
}

bool find_pages(void* library, Driver* d) {
  return find(library, "cuMemImportFromShareableHandle", &d->take_pages) &&
         find(library, "cuMemRelease", &d->release_pages) &&
         find(library, "cuMemGetAllocationPropertiesFromHandle", &d->kind_of_pages) &&
         find(library, "cuMemGetAllocationGranularity", &d->page_bytes) &&
         find(library, "cuMemAddressReserve", &d->reserve) &&
         find(library, "cuMemAddressFree", &d->unreserve) && find(library, "cuMemMap", &d->map) &&
         find(library, "cuMemUnmap", &d->unmap) && find(library, "cuMemSetAccess", &d->set_access);
}

bool find_work(void* library, Driver* d) {
  return find(library, "cuStreamCreateWithPriority", &d->create_stream) &&
         find(library, "cuStreamDestroy_v2", &d->destroy_stream) &&
         find(library, "cuStreamQuery", &d->query_stream) &&
         find(library, "cuEventCreate", &d->create_event) &&
         find(library, "cuEventDestroy_v2", &d->destroy_event) &&
         find(library, "cuEventRecord", &d->record_event) &&
         find(library, "cuEventQuery", &d->query_event) &&
         find(library, "cuMemcpyDtoHAsync_v2", &d->copy_to_host) &&
         find(library, "cuMemcpyHtoDAsync_v2", &d->copy_to_device) &&
         find(library, "cuMemcpyAsync", &d->copy_between) &&
         find(library, "cuModuleLoadData", &d->load_module) &&
         find(library, "cuModuleUnload", &d->unload_module) &&
         find(library, "cuModuleGetFunction", &d->get_function) &&
         find(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &d->blocks_at_once) &&
         find(library, "cuLaunchKernel", &d->launch);
}

}  // namespace

std::string Driver::in_words(Result result) const {
  const char* name = nullptr;
  if (name_of(result, &name) == kSuccess && name != nullptr) return name;
  return fmt::format("error {} of CUDA", result);
}

// Looked for again as long as there is none.
tl::expected<const Driver*, std::string> driver() {
  static std::mutex mutex;
  static std::unique_ptr<const Driver> known;
  const std::lock_guard lock(mutex);
  if (known != nullptr) return known.get();
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return tl::unexpected(fmt::format("there is no driver of NVIDIA's here ({})", ::dlerror()));
  }
  // It stays from here on: a driver that is taken away from under its threads ends the process.
  auto found = std::make_unique<Driver>();
  if (!find_devices(library, found.get()) || !find_memory(library, found.get()) ||
      !find_pages(library, found.get()) || !find_work(library, found.get())) {
    return tl::unexpected(
        fmt::format("{} lacks functions of CUDA 11: update NVIDIA's driver", kLibrary));
  }
  find(library, "cuStreamWriteValue32_v2", &found->write_word);
  find(library, "cuFuncLoad", &found->load_function);
  if (const auto result = found->init(0); result != Driver::kSuccess) {
    return tl::unexpected(fmt::format(
        "NVIDIA's driver does not start ({}): see what nvidia-smi says", found->in_words(result)));
  }
  known = std::move(found);
  return known.get();
}

}  // namespace gradring::transport::cuda
