#include "tools/perf/gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace gradring::tools {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

// By the names and numbers of cuda.h.
class Cuda {
 public:
  using Stream = void*;
  Cuda() : library_(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    if (library_ == nullptr) {
      throw std::runtime_error(fmt::format(
          "there is no driver of NVIDIA's here ({}); measure --memory host", ::dlerror()));
    }
    find("cuGetErrorName", &name_of);
    find("cuInit", &init);
    find("cuDeviceGetCount", &count);
    find("cuDeviceGet", &get);
    find("cuDeviceGetName", &device_name);
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxPushCurrent_v2", &push);
    find("cuMemAlloc_v2", &allocate);
    find("cuMemFree_v2", &free);
    find("cuStreamCreate", &create_stream);
    find("cuStreamDestroy_v2", &destroy_stream);
    find("cuStreamSynchronize", &synchronize);
    find("cuMemcpyHtoDAsync_v2", &write);
    find("cuMemcpyDtoHAsync_v2", &read);
  }
  void check(int result, const char* what) const {
    if (result == 0) return;
    const char* name = nullptr;
    const bool named = name_of(result, &name) == 0 && name != nullptr;
    throw std::runtime_error(fmt::format(
        "CUDA {}: {}", what, named ? std::string(name) : fmt::format("error {}", result)));
  }

  int (*name_of)(int, const char**) = nullptr;
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*allocate)(uint64_t*, size_t) = nullptr;
  int (*free)(uint64_t) = nullptr;
  int (*create_stream)(Stream*, unsigned) = nullptr;
  int (*destroy_stream)(Stream) = nullptr;
  int (*synchronize)(Stream) = nullptr;
  int (*write)(uint64_t, const void*, size_t, Stream) = nullptr;
  int (*read)(void*, uint64_t, size_t, Stream) = nullptr;

 private:
  template <typename Function>
  void find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (*function == nullptr) {
      throw std::runtime_error(fmt::format("NVIDIA's driver has no {}: update it", name));
    }
  }

  void* const library_;  // stays: it has threads of its own
};

// In the primary context, which is the thread's from then on.
class CudaGpu : public Gpu {
 public:
  CudaGpu(int number, int local_rank) {
    cuda_.check(cuda_.init(0), "does not start");
    int count = 0, device = 0;
    cuda_.check(cuda_.count(&count), "does not count its GPUs");
    if (count == 0) throw std::runtime_error("CUDA has no GPU for this process");
    number_ = number >= 0 ? number : local_rank % count;
    if (number_ >= count) {
      throw std::runtime_error(
          fmt::format("--gpu {}: this process has {}, from 0 on", number_, count));
    }
    cuda_.check(cuda_.get(&device, number_), "does not give a GPU");
    std::array<char, 128> text{};
    if (cuda_.device_name(text.data(), static_cast<int>(text.size()) - 1, device) == 0) {
      kind_ = text.data();
    }
    void* context = nullptr;
    cuda_.check(cuda_.retain(&context, device), "gives no context");
    cuda_.check(cuda_.push(context), "does not let its context be entered");
    cuda_.check(cuda_.create_stream(&stream_, kNonBlocking), "has no stream");
  }
  ~CudaGpu() override { cuda_.destroy_stream(stream_); }
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  int number() const override { return number_; }
  std::string name() const override { return fmt::format("GPU {}, {}", number_, kind_); }
  uint64_t allocate(size_t bytes) override {
    uint64_t address = 0;
    cuda_.check(cuda_.allocate(&address, bytes), "has no memory left");
    return address;
  }
  void free(uint64_t address) override { cuda_.free(address); }
  void* stream() const override { return stream_; }
  void wait_for_stream() override { cuda_.check(cuda_.synchronize(stream_), "failed"); }
  void write(uint64_t to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    cuda_.check(cuda_.write(to, from, bytes, stream_), "takes nothing");
    wait_for_stream();
  }
  void read(void* to, uint64_t from, size_t bytes) override {
    if (bytes == 0) return;
    cuda_.check(cuda_.read(to, from, bytes, stream_), "gives nothing");
    wait_for_stream();
  }

 private:
  const Cuda cuda_;
  int number_ = 0;
  std::string kind_ = "without a name";
  void* stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Gpu> Gpu::open(int number, int local_rank) {
  return std::make_unique<CudaGpu>(number, local_rank);
}

}  // namespace gradring::tools
