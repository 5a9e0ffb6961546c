// Memory of a GPU through libgradring and a real daemon, on a driver that the tests bring along;
// each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <gradring/gradring.hpp>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;
using testing::Each;

// Of one rank, with a stream of its own.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const Communicator& job, size_t count = 50'000, bool registered = true)
      : job_(job), count_(count), registered_(registered) {
    if (!registered_) return;
    EXPECT_EQ(gradring_register(job.handle(), pointer(), bytes()), GRADRING_OK)
        << gradring_last_error();
  }
  ~DeviceBuffer() {
    if (registered_) {
      EXPECT_EQ(gradring_unregister(job_.handle(), pointer()), GRADRING_OK)
          << gradring_last_error();
    }
    test_gpu().free(address_);
    test_gpu().end_stream(stream_);
  }
  void write_later(float value) { test_gpu().fill_later(stream_, address_, value, count_); }
  // Other values in each block.
  static constexpr size_t kBlock = 100'000;
  void write_later(const std::function<float(size_t block)>& value) {
    for (size_t at = 0; at < count_; at += kBlock) {
      test_gpu().fill_later(stream_, address_ + at * sizeof(float), value(at / kBlock),
                            std::min(kBlock, count_ - at));
    }
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    test_gpu().read(address_, values.data(), bytes());
    return values;
  }
  gradring_op sum() {
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

 private:
  void* pointer() const { return std::bit_cast<void*>(address_); }

  size_t bytes() const { return count_ * sizeof(float); }

  const Communicator& job_;
  const size_t count_;
  const bool registered_;
  const uint64_t address_ = test_gpu().alloc(bytes(), false);
  void* const stream_ = test_gpu().make_stream();
};

class LiveGpu : public LiveRanks {
 protected:
  void SetUp() override { test_gpu(); }
};

// A training loop that never waits for its GPU: what is put on the stream is in order by itself.
TEST_F(LiveGpu, ManyStepsArePutOnAStreamAtOnce) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job);
    std::vector<Request> steps;
    for (int step = 1; step <= 20; ++step) {
      gradients.write_later(static_cast<float>(step * (job.rank() + 1)));
      steps.push_back(job.start(gradients.sum()));
      steps.back().wait_on_stream(gradients.stream());
    }
    for (Request& step : steps) step.wait();
    test_gpu().wait_for(gradients.stream());
    EXPECT_THAT(gradients.read(), Each(200)) << "20 times 1 + 2 + 3 + 4";
  });
}

TEST_F(LiveGpu, EverySizeIsSummed) {
  run("train", [](Communicator& job) {
    for (const size_t count : {1, 3, 1023, 65'536, (1 << 18) + 1}) {
      for (const bool registered : {true, false}) {
        DeviceBuffer gradients(job, count, registered);
        gradients.write_later(static_cast<float>(job.rank() + 1));
        Request sum = job.start(gradients.sum());
        sum.wait_on_stream(gradients.stream());
        test_gpu().wait_for(gradients.stream());
        EXPECT_THAT(gradients.read(), Each(10)) << count << (registered ? ", registered" : "");
        sum.wait();
      }
    }
  });
}

// In parts, each of which has values of its own.
TEST_F(LiveGpu, WhatIsLargeIsSummedInParts) {
  run("train", [](Communicator& job) {
    constexpr size_t kCount = (size_t{5} << 20) + 3;
    DeviceBuffer gradients(job, kCount, job.rank() % 2 == 0);
    for (int step = 0; step < 3; ++step) {
      gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
      Request sum = job.start(gradients.sum());
      sum.wait_on_stream(gradients.stream());
      test_gpu().wait_for(gradients.stream());
      const std::vector<float> sums = gradients.read();
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(sums[i], 10.0f * (1 + i / DeviceBuffer::kBlock)) << i;
      }
      sum.wait();
    }
  });
}

TEST_F(LiveGpu, ASlowStreamHoldsUpItsOwnOpAlone) {
  run("train", [](Communicator& job) {
    DeviceBuffer slow(job), quick(job);
    if (job.rank() == 0) test_gpu().hold(slow.stream(), true);
    slow.write_later(1);
    quick.write_later(2);
    Request late = job.start(slow.sum());
    job.start(quick.sum()).wait();
    EXPECT_THAT(quick.read(), Each(8));
    EXPECT_FALSE(late.wait_for(std::chrono::milliseconds(20)));
    job.barrier();
    if (job.rank() == 0) test_gpu().hold(slow.stream(), false);
    late.wait();
    EXPECT_THAT(slow.read(), Each(4));
  });
}

}  // namespace
}  // namespace gradring::daemon
