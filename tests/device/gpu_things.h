#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "tests/device/answers.h"

namespace gradring::device {

// Memory of the GPU.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) { check(cudaMalloc(&at_, bytes), "cudaMalloc"); }
  ~DeviceMemory() { cudaFree(at_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return at_; }
  float* floats() const { return static_cast<float*>(at_); }

 private:
  void* at_ = nullptr;
};

// Memory of the host that copy engines reach.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes) {
    check(cudaHostAlloc(&at_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  }
  ~PinnedMemory() { cudaFreeHost(at_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* get() const { return at_; }

 private:
  void* at_ = nullptr;
};

class Stream {
 public:
  enum class Priority { kUsual, kHighest };
  explicit Stream(Priority priority = Priority::kUsual) {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                       priority == Priority::kHighest ? highest : lowest),
          "cudaStreamCreateWithPriority");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace gradring::device
