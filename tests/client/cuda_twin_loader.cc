#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "tests/client/cuda_twin.h"
#include "tests/client/nccl_twin.h"

namespace gradring::test {

const CudaTwin& cuda_twin() {
  static const CudaTwin* const kTwin = [] {
    void* const library = ::dlopen(CUDA_TWIN, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) ADD_FAILURE() << ::dlerror();
    return static_cast<const CudaTwin*>(::dlsym(library, "gradring_cuda_twin"));
  }();
  return *kTwin;
}

const NcclTwin& nccl_twin() {
  static const NcclTwin* const kTwin = [] {
    cuda_twin();
    void* const library = ::dlopen(NCCL_TWIN, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) ADD_FAILURE() << ::dlerror();
    return static_cast<const NcclTwin*>(::dlsym(library, "gradring_nccl_twin"));
  }();
  return *kTwin;
}

bool is_real() {
  const char* const wanted = std::getenv("GRADRING_TEST_GPU");
  return wanted != nullptr && wanted == std::string_view("real");
}

const TestGpu& test_gpu() { return is_real() ? real_gpu() : cuda_twin().gpu; }

}  // namespace gradring::test
