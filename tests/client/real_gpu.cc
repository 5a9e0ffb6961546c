// The first GPU of this machine, by functions of libcuda.so.1 that are looked up: no toolkit is
// needed.
#include <dlfcn.h>

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/client/cuda_twin.h"

namespace gradring::test {
namespace {

using Stream = void*;

// A test that cannot go on: there is nothing to mend here.
void must(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "real_gpu: %s failed: error %d of CUDA\n", what, result);
  std::abort();
}

void* look_up(const char* name) {
  static void* const kDriver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* const found = kDriver == nullptr ? nullptr : ::dlsym(kDriver, name);
  if (found != nullptr) return found;
  std::fprintf(stderr, "real_gpu: there is no %s: %s\n", name, ::dlerror());
  std::abort();
}

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(look_up(name));
}

void* primary_context() {
  static void* const kContext = [] {
    int device = 0;
    void* context = nullptr;
    must(find<int(unsigned)>("cuInit")(0), "cuInit");
    must(find<int(int*, int)>("cuDeviceGet")(&device, 0), "cuDeviceGet");
    must(find<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), "the context");
    return context;
  }();
  return kContext;
}

void enter() { must(find<int(void*)>("cuCtxSetCurrent")(primary_context()), "cuCtxSetCurrent"); }

uint64_t real_alloc(size_t bytes, bool pooled) {
  enter();
  uint64_t address = 0;
  if (pooled) {
    must(find<int(uint64_t*, size_t, Stream)>("cuMemAllocAsync")(&address, bytes, nullptr),
         "alloc");
  } else {
    must(find<int(uint64_t*, size_t)>("cuMemAlloc_v2")(&address, bytes), "alloc");
  }
  return address;
}

void real_free(uint64_t address) {
  enter();
  must(find<int(uint64_t)>("cuMemFree_v2")(address), "free");
}

void* real_make_stream() {
  enter();
  constexpr unsigned kNonBlocking = 1;
  Stream stream = nullptr;
  must(find<int(Stream*, unsigned)>("cuStreamCreate")(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}

void real_end_stream(Stream stream) {
  enter();
  must(find<int(Stream)>("cuStreamDestroy_v2")(stream), "cuStreamDestroy");
}

void real_fill_later(Stream stream, uint64_t address, float value, size_t count) {
  enter();
  using Fill = int(uint64_t, uint32_t, size_t, Stream);
  must(find<Fill>("cuMemsetD32Async")(address, std::bit_cast<uint32_t>(value), count, stream),
       "cuMemsetD32Async");
}

// A word of the host's memory for each stream, which only grows.
struct Hold {
  uint32_t* word = nullptr;
  uint32_t value = 0;
};

void real_hold(Stream stream, bool on) {
  static std::mutex mutex;
  static std::map<Stream, Hold> holds;
  const std::lock_guard lock(mutex);
  enter();
  Hold& hold = holds[stream];
  if (!on) {
    if (hold.word != nullptr) std::atomic_ref(*hold.word).store(hold.value);
    return;
  }
  if (hold.word == nullptr) {
    constexpr unsigned kMapped = 2;
    void* memory = nullptr;
    must(find<int(void**, size_t, unsigned)>("cuMemHostAlloc")(&memory, 64, kMapped), "a word");
    hold.word = static_cast<uint32_t*>(memory);
    *hold.word = 0;
  }
  uint64_t address = 0;
  must(
      find<int(uint64_t*, void*, unsigned)>("cuMemHostGetDevicePointer_v2")(&address, hold.word, 0),
      "the address of a word");
  must(find<int(Stream, uint64_t, uint32_t, unsigned)>("cuStreamWaitValue32_v2")(stream, address,
                                                                                 ++hold.value, 0),
       "cuStreamWaitValue32");
}

void real_wait_for(Stream stream) {
  enter();
  must(find<int(Stream)>("cuStreamSynchronize")(stream), "cuStreamSynchronize");
}

void real_read(uint64_t address, void* data, size_t bytes) {
  enter();
  must(find<int(void*, uint64_t, size_t)>("cuMemcpyDtoH_v2")(data, address, bytes), "a copy");
}

void real_write(uint64_t address, const void* data, size_t bytes) {
  enter();
  must(find<int(uint64_t, const void*, size_t)>("cuMemcpyHtoD_v2")(address, data, bytes), "a copy");
  // It returns when it has read the data, and streams that do not wait for the default one would
  // still find what was there before.
  must(find<int(Stream)>("cuStreamSynchronize")(nullptr), "cuStreamSynchronize");
}

}  // namespace

const TestGpu& real_gpu() {
  static const TestGpu kReal = {real_alloc,      real_free,       real_make_stream,
                                real_end_stream, real_fill_later, real_hold,
                                real_wait_for,   real_read,       real_write};
  return kReal;
}

}  // namespace gradring::test
