// The trainer: kernels that fill every multiprocessor, one after another, until the pipe is closed.
#include <cuda_runtime.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <deque>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

constexpr int kThreads = 256;
// As a trainer has them: long enough that a launch costs nothing beside it, a step has hundreds.
constexpr double kKernelUs = 1000;
// Enough under way that the GPU never waits for this process.
constexpr size_t kUnderWay = 8;

__global__ void burn(float* out, int rounds) {
  float a = static_cast<float>(threadIdx.x), b = 1.0001f;
  for (int i = 0; i < rounds; ++i) a = a * b + 0.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

class Load {
 public:
  Load() : blocks_(blocks_that_fill()), out_(sizeof(float) * kThreads * blocks_) {
    constexpr int kTried = 100'000;
    const Spread tried = spread_of(time_each(10, [&] {
      launch(kTried);
      stream_.synchronize();
    }));
    rounds_ = static_cast<int>(kTried * kKernelUs / tried.median);
  }

  // Keeps the queue full; true: one has ended.
  bool turn() {
    while (ends_.size() < kUnderWay) {
      cudaEvent_t end = nullptr;
      check(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), "cudaEventCreate");
      launch(rounds_);
      check(cudaEventRecord(end, stream_.get()), "cudaEventRecord");
      ends_.push_back(end);
    }
    const cudaError_t state = cudaEventQuery(ends_.front());
    if (state == cudaErrorNotReady) return false;
    check(state, "a kernel of the trainer");
    cudaEventDestroy(ends_.front());
    ends_.pop_front();
    return true;
  }

 private:
  static int blocks_that_fill() {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int each = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, burn, kThreads, 0), "occupancy");
    return each * properties.multiProcessorCount;
  }
  void launch(int rounds) {
    burn<<<blocks_, kThreads, 0, stream_.get()>>>(out_.floats(), rounds);
    check(cudaGetLastError(), "a launch of the trainer");
  }

  const int blocks_;
  DeviceMemory out_;
  Stream stream_;
  int rounds_ = 1;
  std::deque<cudaEvent_t> ends_;
};

}  // namespace

// Each byte from the parent is answered with the kernels a second since the last one.
void be_a_trainer() {
  Load load;
  uint64_t ended = 0;
  auto since = std::chrono::steady_clock::now();
  while (true) {
    if (load.turn()) ++ended;
    pollfd asked{STDIN_FILENO, POLLIN, 0};
    if (::poll(&asked, 1, 0) <= 0) continue;
    char byte = 0;
    if (!hear_from_parent(&byte, sizeof byte)) return;
    const auto now = std::chrono::steady_clock::now();
    const double rate =
        static_cast<double>(ended) / std::chrono::duration<double>(now - since).count();
    tell_parent(&rate, sizeof rate);
    ended = 0;
    since = now;
  }
}

}  // namespace gradring::device
