#include <cuda_runtime.h>

#include <cstdlib>
#include <string>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

__global__ void touch(float* out) { out[threadIdx.x] = 1; }

// What the other process does, one after the other.
struct Step {
  const char* words;
  void (*take)();
};
constexpr Step kSteps[] = {
    {"a context", [] { check(cudaFree(nullptr), "a context"); }},
    {"its first kernel",
     [] {
       static const DeviceMemory memory(4096);
       static const Stream stream(Stream::Priority::kHighest);
       touch<<<1, 32, 0, stream.get()>>>(memory.floats());
       stream.synchronize();
     }},
    {"with stacks of 256 B instead of 1 KiB",
     [] { check(cudaDeviceSetLimit(cudaLimitStackSize, 256), "cudaLimitStackSize"); }},
    {"with a heap of 64 KiB instead of 8 MiB",
     [] {
       check(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 10), "cudaLimitMallocHeapSize");
     }},
    {"with 64 KiB for what kernels print instead of 1 MiB",
     [] {
       check(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 64 << 10), "cudaLimitPrintfFifoSize");
     }},
};

double free_mib() {
  size_t now = 0, total = 0;
  check(cudaMemGetInfo(&now, &total), "cudaMemGetInfo");
  return static_cast<double>(now) / (1 << 20);
}

}  // namespace

// What this process itself has does not change meanwhile.
void ask_context() {
  check(cudaFree(nullptr), "a context");
  for (const char* connections : {"1", "2", "8", "32"}) {
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    const double before = free_mib();
    OtherProcess other("context");
    for (const Step& step : kSteps) {
      char done = 0;
      other.tell(&done, sizeof done);
      other.hear(&done, sizeof done);
      say(std::string(step.words) + ", connections: " + connections, before - free_mib(), "MiB");
    }
  }
}

void be_a_context() {
  char turn = 0;
  for (const Step& step : kSteps) {
    if (!hear_from_parent(&turn, sizeof turn)) return;
    step.take();
    tell_parent(&turn, sizeof turn);
  }
  hear_from_parent(&turn, sizeof turn);  // until it is closed
}

}  // namespace gradring::device
