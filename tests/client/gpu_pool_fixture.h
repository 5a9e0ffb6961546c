#pragma once

#include <gmock/gmock.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "tests/client/gpu_memory_fixture.h"

namespace gradring::test {

// Memory of gradring_gpu_alloc, with a daemon that sums on the node's GPUs and a driver that copies
// nothing within one.
class GpuPool : public GpuMemory {
 protected:
  static constexpr int kFull = 2;     // CUDA_ERROR_OUT_OF_MEMORY
  static constexpr int kNever = 999;  // CUDA_ERROR_UNKNOWN
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  static constexpr uint64_t kBytes = 3 * kMiB;
  static constexpr uint64_t kOdd = 52;  // aligned to elements and to nothing else

  GpuPool() {
    daemon_.set([](Script& script) { script.sums_on_gpus = true; });
    job_.reset();
    job_ = open(daemon_);
    twin_.answer("cuMemcpyDtoDAsync_v2", kNever);
  }
  void TearDown() override {
    for (const uint64_t memory : all_) free(memory);
    GpuMemory::TearDown();
    twin_.answer("cuMemcpyDtoDAsync_v2", 0);
    twin_.have(1);
  }

  uint64_t allocate(uint64_t bytes = kBytes, int device = 0) {
    void* memory = nullptr;
    EXPECT_EQ(gradring_gpu_alloc(bytes, device, &memory), GRADRING_OK) << gradring_last_error();
    all_.push_back(std::bit_cast<uint64_t>(memory));
    return all_.back();
  }
  void free(uint64_t memory) {
    EXPECT_EQ(gradring_gpu_free(pointer(memory)), GRADRING_OK) << gradring_last_error();
    std::erase(all_, memory);
  }
  static gradring_op sum_of(uint64_t bytes, uint64_t input, uint64_t output) {
    gradring_op op = sum(input, output);
    op.count = bytes / sizeof(float);
    return op;
  }
  void fill(uint64_t memory, float value, uint64_t bytes = kBytes) {
    gpu_.fill_later(nullptr, memory, value, bytes / sizeof(float));
    gpu_.wait_for(nullptr);
  }
  std::vector<float> all_of(uint64_t memory, uint64_t bytes = kBytes) const {
    std::vector<float> values(bytes / sizeof(float));
    gpu_.read(memory, values.data(), bytes);
    return values;
  }
  wire::Operation last_operation() {
    ++operations_;
    return daemon_.wait_for_operations(operations_).at(operations_ - 1);
  }
  // Submits and waits; whether it was one for the daemon's GPUs.
  bool is_on_gpu(const gradring_op& op) {
    const gradring_request request = submit(job_, op);
    const bool there = last_operation().on_gpu();
    EXPECT_EQ(wait(request), GRADRING_OK) << gradring_last_error();
    return there;
  }
  size_t shared() { return daemon_.wait_for_messages(wire::ClientMessage::kShareGpu, 0).size(); }
  // Segments, by the daemon, which may answer before it counts.
  void expect_freed(size_t count) {
    EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kFree, count).size(), count);
  }
  bool is_there(uint64_t memory) const { return twin_.behind(memory) != nullptr; }

  std::vector<uint64_t> all_;
  size_t operations_ = 0;
};

}  // namespace gradring::test
