#include <fmt/format.h>
#include <gradring/gradring.h>

#include <exception>
#include <new>

#include "client/src/api/error.h"
#include "client/src/gpu/gpu_pool.h"

// The part of the C interface that needs no communicator.

using gradring::client::GpuPool;
using gradring::client::remember;

gradring_code gradring_gpu_alloc(size_t bytes, int device, void** memory) {
  if (memory == nullptr) return remember(GRADRING_ERR_INVALID, "memory is NULL");
  *memory = nullptr;
  try {
    const auto allocated = GpuPool::get().alloc(device, bytes);
    if (!allocated) return remember(allocated.error());
    *memory = *allocated;
    return GRADRING_OK;
  } catch (const std::bad_alloc&) {
    return remember(GRADRING_ERR_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return remember(GRADRING_ERR_INTERNAL, error.what());
  }
}

gradring_code gradring_gpu_free(void* memory) {
  if (memory == nullptr) return GRADRING_OK;
  try {
    return remember(GpuPool::get().free(memory));
  } catch (const std::bad_alloc&) {
    return remember(GRADRING_ERR_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return remember(GRADRING_ERR_INTERNAL, error.what());
  }
}

void* gradring_torch_alloc(ptrdiff_t bytes, int device, void*) {
  void* memory = nullptr;
  if (bytes < 0) {
    static_cast<void>(remember(GRADRING_ERR_INVALID, "bytes is negative"));
    return nullptr;
  }
  static_cast<void>(gradring_gpu_alloc(static_cast<size_t>(bytes), device, &memory));
  return memory;
}

void gradring_torch_free(void* memory, ptrdiff_t, int, void*) {
  static_cast<void>(gradring_gpu_free(memory));
}
