#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/client/trainer.h"

namespace gradring::test {

inline constexpr size_t kGpuCount = 1000;
inline constexpr size_t kGpuBytes = kGpuCount * sizeof(float);

// A trainer with a GPU, beside a daemon that the test has in hand.
class GpuMemory : public ::testing::Test {
 protected:
  GpuMemory() { twin_.settle(true); }
  void TearDown() override {
    job_.reset();
    EXPECT_EQ(twin_.held(), 0) << "nothing stays pinned, open or entered";
  }

  static void* pointer(uint64_t address) { return std::bit_cast<void*>(address); }
  uint64_t registered(bool pooled = false) {
    const uint64_t address = gpu_.alloc(kGpuBytes, pooled);
    EXPECT_EQ(gradring_register(job_.get(), pointer(address), kGpuBytes), GRADRING_OK)
        << gradring_last_error();
    return address;
  }
  void write_later(uint64_t address, float value, void* stream = nullptr) {
    gpu_.fill_later(stream, address, value, kGpuCount);
  }
  std::vector<float> read(uint64_t address) const {
    std::vector<float> values(kGpuCount);
    gpu_.read(address, values.data(), kGpuBytes);
    return values;
  }
  static gradring_op sum(uint64_t input, uint64_t output, void* stream = nullptr) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.count = kGpuCount;
    op.input = pointer(input);
    op.output = pointer(output);
    op.stream = stream;
    return op;
  }
  // An op that the daemon does not answer by itself.
  gradring_request submit_alone(const gradring_op& op) {
    daemon_.set([](Script& script) { script.complete = false; });
    return submit(job_, op);
  }
  static wire::DaemonMessage completed(const wire::Operation& operation,
                                       const wire::Completion& end) {
    wire::DaemonMessage message;
    wire::Completion& told = *message.mutable_completed()->add_completions();
    told = end;
    told.set_ticket(operation.ticket());
    return message;
  }
  gradring_code wait(gradring_request request) {
    return gradring_wait(job_.get(), request, 10'000, nullptr);
  }

  const CudaTwin& twin_ = cuda_twin();
  const TestGpu& gpu_ = twin_.gpu;
  FakeDaemon daemon_;
  Comm job_ = open(daemon_);  // of two ranks, and all give the same
};

}  // namespace gradring::test
