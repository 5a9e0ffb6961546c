#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <gradring/gradring.hpp>
#include <vector>

#include "tests/client/cuda_twin.h"

namespace gradring::daemon {

// Ranks here are threads, and a driver that gives memory back may wait for all streams of the
// process, some of which may wait for this rank's next op. So where ranks give memory back between
// ops, all of them do before any goes on: made before that memory, and a barrier of the job is the
// last that is done with it.
class Together {
 public:
  explicit Together(Communicator& job) : job_(job) {}
  ~Together() { job_.barrier(); }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

 private:
  Communicator& job_;
};

// Of one rank, with a stream of its own.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const Communicator& job, size_t count = 50'000, bool registered = true,
                        bool pooled = false)
      : DeviceBuffer(job, count, registered, test::test_gpu().alloc(count * sizeof(float), pooled),
                     test::test_gpu().make_stream()) {}
  // On another GPU of the tests.
  static DeviceBuffer on(int gpu, const Communicator& job, size_t count) {
    const test::CudaTwin& twin = test::cuda_twin();
    return DeviceBuffer(job, count, true, twin.alloc_on(gpu, count * sizeof(float)),
                        twin.make_stream_on(gpu));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (registered_) {
      EXPECT_EQ(gradring_unregister(job_.handle(), pointer()), GRADRING_OK)
          << gradring_last_error();
    }
    test::test_gpu().free(address_);
    test::test_gpu().end_stream(stream_);
  }
  void write_later(float value) { test::test_gpu().fill_later(stream_, address_, value, count_); }
  // Other values in each block.
  static constexpr size_t kBlock = 100'000;
  // From 1 on, of the block in which this element lies.
  static float number_at(size_t element) {
    const size_t block = element / kBlock;
    return static_cast<float>(1 + block);
  }
  // Each is so many times the number at its place, of which the first is `before`. Asked of all at
  // once, since an assertion for each is what millions of them take longest for.
  static testing::AssertionResult are_numbers(const std::vector<float>& values, float times,
                                              size_t before = 0) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float wanted = times * number_at(before + i);
      if (values[i] == wanted) continue;
      return testing::AssertionFailure()
             << "element " << i << " is " << values[i] << ", not " << wanted;
    }
    return testing::AssertionSuccess();
  }
  void write_later(const std::function<float(size_t block)>& value) {
    for (size_t at = 0; at < count_; at += kBlock) {
      test::test_gpu().fill_later(stream_, address_ + at * sizeof(float), value(at / kBlock),
                                  std::min(kBlock, count_ - at));
    }
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    test::test_gpu().read(address_, values.data(), bytes());
    return values;
  }
  gradring_op sum() const {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = GRADRING_ALLREDUCE;
    op.dtype = GRADRING_FLOAT32;
    op.op = GRADRING_SUM;
    op.count = count_;
    op.input = op.output = pointer();
    op.stream = stream_;
    return op;
  }
  void* stream() const { return stream_; }
  void* pointer() const { return std::bit_cast<void*>(address_); }

 private:
  DeviceBuffer(const Communicator& job, size_t count, bool registered, uint64_t address,
               void* stream)
      : job_(job), count_(count), registered_(registered), address_(address), stream_(stream) {
    if (!registered_) return;
    EXPECT_EQ(gradring_register(job.handle(), pointer(), bytes()), GRADRING_OK)
        << gradring_last_error();
  }
  size_t bytes() const { return count_ * sizeof(float); }

  const Communicator& job_;
  const size_t count_;
  const bool registered_;
  const uint64_t address_;
  void* const stream_;
};

}  // namespace gradring::daemon
