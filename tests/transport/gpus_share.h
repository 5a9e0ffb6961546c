#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/client/cuda_twin.h"
#include "transport/gpus.h"

namespace gradring::test {

// By the driver's own functions; a test that cannot go on ends here.
template <typename... Parameters>
void call_driver(const char* name, Parameters... parameters) {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(::dlsym(RTLD_DEFAULT, name));
  const int result = function == nullptr ? -1 : function(parameters...);
  if (result == 0) return;
  std::fprintf(stderr, "%s failed: error %d of CUDA\n", name, result);
  std::abort();
}

// What a trainer tells its daemon of memory that begins an allocation of cuda_twin().
inline transport::GpuShare share_of(uint64_t address, uint64_t offset, uint64_t bytes,
                                    int gpu = 0) {
  cuda_twin();
  transport::GpuShare share;
  call_driver("cuIpcGetMemHandle", static_cast<void*>(&share.handle), address);
  call_driver("cuDeviceGetUuid_v2", static_cast<void*>(&share.gpu), gpu);
  share.offset = offset;
  share.bytes = bytes;
  return share;
}

}  // namespace gradring::test
