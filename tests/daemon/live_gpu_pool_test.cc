// Sums by the GPUs of real daemons in memory of gradring_gpu_alloc; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <gradring/gradring.hpp>
#include <string>
#include <vector>

#include "tests/daemon/live_gpu_ranks.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;

// No memory of the library's own stands for it: what is summed on GPUs is summed where it is.
class LiveGpuPool : public LiveGpuRanks {
 protected:
  LiveGpuPool() : LiveGpuPool({}, "live", 0) {}
  LiveGpuPool(const std::vector<std::string>& flags, const std::string& node, int port)
      : LiveGpuRanks(flags, node, port) {
    set_stages("0");
    forbid_copies_within(true);
  }
  ~LiveGpuPool() override { forbid_copies_within(false); }
  static void forbid_copies_within(bool on) {
    constexpr int kUnknown = 999;  // CUDA_ERROR_UNKNOWN
    if (!test::is_real()) test::cuda_twin().answer("cuMemcpyDtoDAsync_v2", on ? kUnknown : 0);
  }
};

// Of one rank, with a stream of its own.
class PoolGradients {
 public:
  explicit PoolGradients(size_t count) : buffer_(kBefore + count, 0), count_(count) {}
  ~PoolGradients() { test_gpu().end_stream(stream_); }
  // The k-th element is this times the number of its block.
  void write_later(float value) {
    for (size_t at = 0; at < count_; at += DeviceBuffer::kBlock) {
      test_gpu().fill_later(stream_, address() + at * sizeof(float),
                            value * DeviceBuffer::number_at(at),
                            std::min(DeviceBuffer::kBlock, count_ - at));
    }
  }
  void expect(float times) const {
    test_gpu().wait_for(stream_);
    std::vector<float> values(count_);
    test_gpu().read(address(), values.data(), count_ * sizeof(float));
    EXPECT_TRUE(DeviceBuffer::are_numbers(values, times));
  }
  float* data() const { return buffer_.data() + kBefore; }
  size_t count() const { return count_; }
  void* stream() const { return stream_; }

 private:
  static constexpr size_t kBefore = 1'001;  // as a tensor that lies behind another one
  uint64_t address() const { return std::bit_cast<uint64_t>(data()); }

  const GpuBuffer<float> buffer_;
  const size_t count_;
  void* const stream_ = test_gpu().make_stream();
};

gradring_op op_in_pool(const PoolGradients& input, const PoolGradients& output) {
  gradring_op op{};
  op.struct_size = sizeof(op);
  op.collective = GRADRING_ALLREDUCE;
  op.dtype = GRADRING_FLOAT32;
  op.op = GRADRING_SUM;
  op.count = input.count();
  op.input = input.data();
  op.output = output.data();
  op.stream = input.stream();
  return op;
}

constexpr float kPoolSum = 1 + 2 + 3 + 4;  // of what the ranks give

void sum_in_pool(const Communicator& job, PoolGradients& input, PoolGradients& output) {
  input.write_later(static_cast<float>(job.rank() + 1));
  Request request = job.start(op_in_pool(input, output));
  request.wait_on_stream(output.stream());
  output.expect(kPoolSum);
  request.wait();
}

TEST_F(LiveGpuPool, IsSummedWhereItIs) {
  constexpr int kSteps = 3;
  run("train", [](Communicator& job) {
    PoolGradients gradients(kCount), sums(kCount);
    for (int step = 0; step < kSteps; ++step) sum_in_pool(job, gradients, gradients);
    sum_in_pool(job, gradients, sums);
  });
  expect_traffic((kSteps + 1) * kRanks * kBytes, 0, 0);  // none of it left the GPU
}

TEST_F(LiveGpuPool, IsAllocatedAndFreedWithEachStep) {
  constexpr int kSteps = 4;
  run("train", [](Communicator& job) {
    for (int step = 0; step < kSteps; ++step) {
      const Together together(job);
      PoolGradients gradients(kCount);
      sum_in_pool(job, gradients, gradients);
      job.barrier();
    }
  });
  expect_traffic(kSteps * kRanks * kBytes, 0, 0);
}

TEST_F(LiveGpuPool, ThatIsFreedWhileItIsSummedGoesLater) {
  run("train", [](Communicator& job) {
    Request request;
    {
      PoolGradients gradients(kCount);
      gradients.write_later(static_cast<float>(job.rank() + 1));
      request = job.start(op_in_pool(gradients, gradients));
      test_gpu().wait_for(gradients.stream());
    }
    request.wait();
    job.barrier();
    PoolGradients gradients(kCount);
    sum_in_pool(job, gradients, gradients);
  });
  expect_traffic(2 * kRanks * kBytes, 0, 0);
}

TEST_F(LiveGpuPool, IsOpenForJobAndGroups) {
  run("train", [](Communicator& job) {
    PoolGradients gradients(kCount);
    Communicator group = job.group({3, 2, 1, 0});
    sum_in_pool(job, gradients, gradients);
    sum_in_pool(group, gradients, gradients);
    sum_in_pool(job, gradients, gradients);
  });
  expect_traffic(3 * kRanks * kBytes, 0, 0);
}

// Blocks stand for the memory of two of the ranks.
TEST_F(LiveGpuPool, OfSomeRanksMeetsOtherMemoryOfOthers) {
  forbid_copies_within(false);
  set_stages("1024");
  run("train", [](Communicator& job) {
    if (job.rank() % 2 == 0) {
      PoolGradients gradients(kCount);
      sum_in_pool(job, gradients, gradients);
    } else {
      DeviceBuffer gradients(job, kCount, false);
      sum_once(job, gradients);
    }
  });
  expect_traffic(kRanks * kBytes, 0, 0);
}

// As FSDP has it: each rank's own part of the sum, and later all parts again.
void scatter_and_gather_in_pool(Communicator& job) {
  constexpr size_t kShare = (size_t{1} << 20) + 3;
  const auto ranks = static_cast<size_t>(job.size());
  PoolGradients whole(ranks * kShare), share(kShare);
  whole.write_later(static_cast<float>(job.rank() + 1));
  gradring_op op = op_in_pool(whole, share);
  op.count = kShare;
  op.collective = GRADRING_REDUCE_SCATTER;
  std::vector<Request> requests;
  requests.push_back(job.start(op));
  requests.back().wait_on_stream(whole.stream());
  op = op_in_pool(share, whole);
  op.stream = whole.stream();
  op.collective = GRADRING_ALLGATHER;
  requests.push_back(job.start(op));
  requests.back().wait_on_stream(whole.stream());
  whole.expect(kPoolSum);
  for (Request& request : requests) request.wait();
}

TEST_F(LiveGpuPool, IsScatteredAndGathered) {
  run("train", scatter_and_gather_in_pool);
  constexpr uint64_t kWhole = kRanks * ((uint64_t{1} << 20) + 3) * sizeof(float);
  expect_traffic((kRanks + 1) * kWhole, 0, 0);  // none of it leaves the GPU
}

TEST_F(LiveGpuPool, OfFewBytesGoesByTheHost) {
  run("train", [](Communicator& job) {
    PoolGradients gradients(1000);
    sum_in_pool(job, gradients, gradients);
  });
  expect_traffic(0, 0, 0);
}

class LiveGpuPoolOfNodes : private TwoPorts, public LiveGpuPool {
 protected:
  LiveGpuPoolOfNodes() : LiveGpuPool(to(port_b), "a", port_a) {}
  const LiveDaemon& daemon_of(int rank) const override { return rank < 2 ? daemon_ : b_; }

  LiveDaemon b_{with_gpu_sums(to(port_a)), "b", port_b};
};

TEST_F(LiveGpuPoolOfNodes, LeavesEachNodeOnce) {
  constexpr int kSteps = 3;
  run("train", [](Communicator& job) {
    PoolGradients gradients(kCount);
    for (int step = 0; step < kSteps; ++step) sum_in_pool(job, gradients, gradients);
  });
  expect_traffic(kSteps * 2 * kBytes, kSteps * kBytes, kSteps * kBytes);
}

TEST_F(LiveGpuPoolOfNodes, IsScatteredAndGathered) {
  run("train", scatter_and_gather_in_pool);
  constexpr uint64_t kWhole = kRanks * ((uint64_t{1} << 20) + 3) * sizeof(float);
  expect_traffic(2 * kWhole, kWhole, kWhole);
}

}  // namespace
}  // namespace gradring::daemon
