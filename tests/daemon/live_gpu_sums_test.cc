// Sums by the GPUs of real daemons, on a driver that the tests bring along; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <gradring/gradring.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/daemon/live_gpu_ranks.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;
using testing::HasSubstr;
using testing::Not;

class LiveGpuSums : public LiveGpuRanks {
 protected:
  using LiveGpuRanks::LiveGpuRanks;
  // One rank has a block of NaN.
  static constexpr uint64_t kBad = 3 * DeviceBuffer::kBlock;
  static void sum_with_nan_of(Communicator& job, int rank) {
    DeviceBuffer gradients(job, kCount);
    gradients.write_later([&](size_t block) {
      return block == 3 && job.rank() == rank ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    });
    job.start(gradients.sum()).wait();
    EXPECT_TRUE(std::isnan(gradients.read()[kBad]));
  }
};

TEST_F(LiveGpuSums, AreThoseOfTheHost) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount);
    for (int step = 0; step < 3; ++step) {
      gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
      Request sum = job.start(gradients.sum());
      if (step < 2) {
        sum.wait_on_stream(gradients.stream());
        test_gpu().wait_for(gradients.stream());
        expect_sums(gradients);
        sum.wait();
      } else {
        sum.wait();  // without a stream: then it is there
        expect_sums(gradients);
      }
    }
  });
  expect_traffic(3 * kRanks * kBytes, 0, 0);  // none of it left the GPU
}

TEST_F(LiveGpuSums, AreScaledThere) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount, job.rank() != 2);
    gradients.write_later([&](size_t block) { return (1.0f + block) * 8; });
    gradring_op op = gradients.sum();
    op.prescale = 0.5 * (job.rank() + 1);
    op.postscale = 0.25;
    Request sum = job.start(op);
    sum.wait_on_stream(gradients.stream());
    test_gpu().wait_for(gradients.stream());
    expect_sums(gradients);
    sum.wait();
  });
  expect_traffic(kRanks * kBytes, 0, 0);
}

// What is registered as a whole may begin with elements of another type.
TEST_F(LiveGpuSums, AreMadeWhereverTheMemoryAroundThemBegins) {
  run("train", [](Communicator& job) {
    const Together together(job);
    constexpr uint64_t kAhead = 2, kFirst = 4;  // bytes
    const uint64_t whole = test_gpu().alloc(kFirst + kBytes, false);
    void* const memory = std::bit_cast<void*>(whole + kAhead);
    ASSERT_EQ(gradring_register(job.handle(), memory, kFirst - kAhead + kBytes), GRADRING_OK);
    for (const size_t count : {size_t{1000}, kCount}) {
      test_gpu().fill_later(nullptr, whole + kFirst, static_cast<float>(job.rank() + 1), count);
      gradring_op op{};
      op.struct_size = sizeof(op);
      op.collective = GRADRING_ALLREDUCE;
      op.dtype = GRADRING_FLOAT32;
      op.op = GRADRING_SUM;
      op.count = count;
      op.input = op.output = std::bit_cast<void*>(whole + kFirst);
      job.start(op).wait();
      std::vector<float> values(count);
      test_gpu().read(whole + kFirst, values.data(), count * sizeof(float));
      EXPECT_TRUE(values == std::vector<float>(count, 10)) << count;
    }
    EXPECT_EQ(gradring_unregister(job.handle(), memory), GRADRING_OK) << gradring_last_error();
    test_gpu().free(whole);
  });
  expect_traffic(kRanks * kBytes, 0, 0);
}

// As with PyTorch's tensors: whatever they lie in, they pass through memory of the library's.
TEST_F(LiveGpuSums, AreMadeOfWhatNobodyRegisteredToo) {
  run("train", [](Communicator& job) {
    const bool pooled = job.rank() % 2 == 1;
    DeviceBuffer gradients(job, kCount, false, pooled), sums(job, kCount, false, !pooled);
    for (int step = 0; step < 2; ++step) sum_once(job, gradients);
    gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    gradring_op elsewhere = gradients.sum();
    elsewhere.output = sums.sum().output;
    job.start(elsewhere).wait();  // without a stream: then it is there
    expect_sums(sums);
  });
  expect_traffic(3 * kRanks * kBytes, 0, 0);
}

// More of them than may pass at one time.
TEST_F(LiveGpuSums, OfWhatNobodyRegisteredGoByTheHostWhereTheyAreMany) {
  set_stages("100");
  run("train", [](Communicator& job) {
    DeviceBuffer first(job, kCount, false), second(job, kCount, false);
    std::vector<Request> sums;
    for (DeviceBuffer* const gradients : {&first, &second}) {
      gradients->write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
      sums.push_back(job.start(gradients->sum()));
      sums.back().wait_on_stream(gradients->stream());
    }
    for (DeviceBuffer* const gradients : {&first, &second}) {
      test_gpu().wait_for(gradients->stream());
      expect_sums(*gradients);
    }
    for (Request& sum : sums) sum.wait();
  });
  EXPECT_LT(counted("gpu_input_bytes"), 2 * kRanks * kBytes);
}

// Ops of any size; the first ones of a rank come before its rings do.
TEST_F(LiveGpuSums, AreSubmittedByTheRing) {
  constexpr uint64_t kOps = 30, kFirst = 5;
  uint64_t least = 0;
  for (const size_t count : {size_t{1}, size_t{1024}, size_t{600'000}}) {
    run("train", [count](Communicator& job) {
      DeviceBuffer gradients(job, count, false);
      for (uint64_t i = 0; i < kOps; ++i) {
        Request sum = job.start(gradients.sum());
        sum.wait_on_stream(gradients.stream());
        test_gpu().wait_for(gradients.stream());
        sum.wait();
      }
    });
    least += kRanks * (kOps - kFirst);
    wait_for_count("ring_submissions", least);
    EXPECT_GE(counted("ring_submissions"), least) << count;
  }
  EXPECT_GT(counted("gpu_input_bytes"), 0u) << "the large ones are for the daemon's GPUs";
}

// Of what is of a pool the daemon knows no handle.
TEST_F(LiveGpuSums, WhereSomeHaveNoneThereAllTheSame) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount, true, job.rank() == 2);
    sum_once(job, gradients);
  });
  constexpr uint64_t kEach = (kRanks - 1) * kBytes;
  expect_traffic(kEach, kEach, kEach);
}

// No other process can open such memory.
TEST_F(LiveGpuSums, WhatIsOfAPoolGoesByWayOfTheHost) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount, true, true);
    sum_once(job, gradients);
  });
  expect_traffic(0, 0, 0);
  EXPECT_THAT(daemon_.log(), HasSubstr("cudaMallocAsync")) << "the operator can see why";
}

TEST_F(LiveGpuSums, ASlowStreamIsWaitedFor) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount);
    if (job.rank() == 1) test_gpu().hold(gradients.stream(), true);
    gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    Request sum = job.start(gradients.sum());
    EXPECT_FALSE(sum.wait_for(std::chrono::milliseconds(20)));
    job.barrier();
    if (job.rank() == 1) test_gpu().hold(gradients.stream(), false);
    sum.wait_on_stream(gradients.stream());
    test_gpu().wait_for(gradients.stream());
    expect_sums(gradients);
    sum.wait();
  });
}

TEST_F(LiveGpuSums, SayWhoseNanItWas) {
  run("train", [](Communicator& job) { sum_with_nan_of(job, 2); });
  EXPECT_THAT(daemon_.log(), HasSubstr("first NaN of this node's ranks: rank 2"));
  EXPECT_THAT(daemon_.log(), HasSubstr("element " + std::to_string(kBad)));
}

// Memory of a group's parent is open for the group as well.
TEST_F(LiveGpuSums, OfAGroupTakeItsMemberMemory) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount);
    gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    Communicator group = job.group({0, 1, 2, 3});
    Request sum = group.start(gradients.sum());
    sum.wait_on_stream(gradients.stream());
    test_gpu().wait_for(gradients.stream());
    expect_sums(gradients);
    sum.wait();
    group.barrier();
  });
  expect_traffic(kRanks * kBytes, 0, 0);
}

// As FSDP has it: each rank's own part of the sum, and later all parts again.
constexpr size_t kShare = (size_t{1} << 20) + 3;
void scatter_and_gather(Communicator& job, bool registered) {
  const auto ranks = static_cast<size_t>(job.size());
  DeviceBuffer whole(job, ranks * kShare, registered), share(job, kShare, registered);
  whole.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
  gradring_op op = whole.sum();
  op.count = kShare;
  std::vector<Request> requests;
  for (int step = 0; step < 2; ++step) {
    op.collective = GRADRING_REDUCE_SCATTER;
    op.input = whole.pointer();
    op.output = share.pointer();
    requests.push_back(job.start(op));
    requests.back().wait_on_stream(whole.stream());
    op.collective = GRADRING_ALLGATHER;
    op.input = share.pointer();
    op.output = whole.pointer();
    requests.push_back(job.start(op));
    requests.back().wait_on_stream(whole.stream());
  }
  test_gpu().wait_for(whole.stream());
  EXPECT_TRUE(DeviceBuffer::are_numbers(whole.read(), 40));
  for (Request& request : requests) request.wait();
}

TEST_F(LiveGpuSums, AreScatteredAndGathered) {
  constexpr uint64_t kWhole = kRanks * kShare * sizeof(float);
  for (const bool registered : {true, false}) {
    run("train", [registered](Communicator& job) { scatter_and_gather(job, registered); });
    const uint64_t times = registered ? 2 : 4;
    expect_traffic(times * (kRanks + 1) * kWhole, 0, 0);  // none of it leaves the GPU
  }
}

// Ranks 0 and 1 on one node, 2 and 3 on another.
class LiveGpuSumsOfNodes : private TwoPorts, public LiveGpuSums {
 protected:
  LiveGpuSumsOfNodes() : LiveGpuSums(to(port_b), "a", port_a) {}
  const LiveDaemon& daemon_of(int rank) const override { return rank < 2 ? daemon_ : b_; }

  LiveDaemon b_{with_gpu_sums(to(port_a)), "b", port_b};
};

TEST_F(LiveGpuSumsOfNodes, LeaveEachNodeOnce) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount, job.rank() != 1);
    for (int step = 0; step < 3; ++step) {
      sum_once(job, gradients);
    }
  });
  expect_traffic(3 * 2 * kBytes, 3 * kBytes, 3 * kBytes);
}

TEST_F(LiveGpuSumsOfNodes, AreScaledOnce) {
  run("train", [](Communicator& job) {
    DeviceBuffer gradients(job, kCount);
    gradients.write_later([&](size_t block) { return (1.0f + block) * 8; });
    gradring_op op = gradients.sum();
    op.prescale = 0.5 * (job.rank() + 1);
    op.postscale = 0.25;
    job.start(op).wait();
    expect_sums(gradients);
  });
  expect_traffic(2 * kBytes, kBytes, kBytes);
}

TEST_F(LiveGpuSumsOfNodes, SayWhoseNanItWas) {
  run("train", [](Communicator& job) { sum_with_nan_of(job, 3); });
  EXPECT_THAT(b_.log(), HasSubstr("first NaN of this node's ranks: rank 3"));
  EXPECT_THAT(b_.log(), HasSubstr("element " + std::to_string(kBad)));
  EXPECT_THAT(daemon_.log(), Not(HasSubstr("first NaN"))) << "it came from elsewhere";
}

TEST_F(LiveGpuSumsOfNodes, AreScatteredAndGathered) {
  constexpr uint64_t kWhole = kRanks * kShare * sizeof(float);
  run("train", [](Communicator& job) { scatter_and_gather(job, job.rank() != 3); });
  expect_traffic(2 * 2 * kWhole, 2 * kWhole, 2 * kWhole);
}

// The daemon has sums of both under way before the last rank comes.
TEST_F(LiveGpuSumsOfNodes, OneInputMayBeScatteredTwiceAtOnce) {
  constexpr uint64_t kWhole = kRanks * kShare * sizeof(float);
  run("train", [this](Communicator& job) {
    const auto ranks = static_cast<size_t>(job.size());
    DeviceBuffer whole(job, ranks * kShare), sum(job, kShare), most(job, kShare);
    whole.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    if (job.rank() == 3) wait_for_count("gpu_sum_bytes", 2 * kWhole);
    gradring_op op = whole.sum();
    op.count = kShare;
    op.collective = GRADRING_REDUCE_SCATTER;
    op.output = sum.pointer();
    Request first = job.start(op);
    op.op = GRADRING_MAX;
    op.output = most.pointer();
    Request second = job.start(op);
    first.wait();
    second.wait();
    const size_t before = static_cast<size_t>(job.rank()) * kShare;
    const std::vector<float> sums = sum.read(), mosts = most.read();
    ASSERT_GE(std::min(sums.size(), mosts.size()), kShare);
    EXPECT_TRUE(DeviceBuffer::are_numbers({sums.begin(), sums.begin() + kShare}, 10, before));
    EXPECT_TRUE(DeviceBuffer::are_numbers({mosts.begin(), mosts.begin() + kShare}, 4, before));
  });
  expect_traffic(2 * 2 * kWhole, 2 * kWhole, 0);
}

}  // namespace
}  // namespace gradring::daemon
