// Memory of a GPU through libgradring and a real daemon, on a driver that the tests bring along;
// each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <gradring/gradring.hpp>
#include <vector>

#include "tests/daemon/device_buffer.h"
#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;
using testing::Each;

class LiveGpu : public LiveRanks {
 protected:
  void SetUp() override {
    test_gpu();
    if (!test::is_real()) test::cuda_twin().settle(true);
  }
  void TearDown() override {
    if (!test::is_real()) test::cuda_twin().settle(false);
  }
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
        const Together together(job);
        DeviceBuffer gradients(job, count, registered);
        gradients.write_later(static_cast<float>(job.rank() + 1));
        Request sum = job.start(gradients.sum());
        sum.wait_on_stream(gradients.stream());
        test_gpu().wait_for(gradients.stream());
        EXPECT_THAT(gradients.read(), Each(10)) << count << (registered ? ", registered" : "");
        sum.wait();
        job.barrier();
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
      ASSERT_TRUE(DeviceBuffer::are_numbers(gradients.read(), 10));
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
