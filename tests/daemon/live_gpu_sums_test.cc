// Sums by the GPUs of real daemons, on a driver that the tests bring along; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/device_buffer.h"
#include "tests/daemon/live_ranks.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;
using testing::HasSubstr;

// The daemon has the GPU as well, and sums there what is registered and large.
class LiveGpuSums : public LiveRanks {
 protected:
  LiveGpuSums() : LiveGpuSums({}, "live", 0) {}
  LiveGpuSums(const std::vector<std::string>& flags, const std::string& node, int port)
      : LiveRanks(with_gpu_sums(flags), node, port) {
    test_gpu();
    set_stages("1024");
  }
  ~LiveGpuSums() override { unsetenv(kStages); }
  // MiB of GPU memory for what is not registered, of all ranks: they are one process.
  static void set_stages(const char* mebibytes) { setenv(kStages, mebibytes, 1); }
  static constexpr const char* kStages = "GRADRING_GPU_STAGE_MIB";
  static std::vector<std::string> with_gpu_sums(std::vector<std::string> flags) {
    if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemon
    flags.insert(flags.end(), {"--gpu-sums", "on"});
    return flags;
  }
  // What the daemon says that its GPUs did, once it says so.
  void expect_traffic(uint64_t inputs, uint64_t sums, uint64_t results) {
    constexpr int kLooks = 200;
    const auto all = [&] {
      return counted("gpu_input_bytes") >= inputs && counted("gpu_result_bytes") >= results;
    };
    for (int look = 0; look < kLooks && !all(); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_EQ(counted("gpu_input_bytes"), inputs);
    EXPECT_EQ(counted("gpu_sum_bytes"), sums);
    EXPECT_EQ(counted("gpu_result_bytes"), results);
  }
  uint64_t counted(const std::string& name) { return watcher_.counter(name); }
  static constexpr uint64_t kBytes = ((uint64_t{5} << 20) + 3) * sizeof(float);
  static constexpr size_t kCount = (size_t{5} << 20) + 3;  // ten parts of two MiB
  static void expect_sums(const DeviceBuffer& gradients) {
    const std::vector<float> sums = gradients.read();
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(sums[i], 10.0f * DeviceBuffer::number_at(i)) << i;
    }
  }
  static void sum_once(Communicator& job, DeviceBuffer& gradients) {
    gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    Request sum = job.start(gradients.sum());
    sum.wait_on_stream(gradients.stream());
    test_gpu().wait_for(gradients.stream());
    expect_sums(gradients);
    sum.wait();
  }

  RawTrainer watcher_{daemon_.runtime_dir()};
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
  const std::vector<float> sums = whole.read();
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(sums[i], 40.0f * DeviceBuffer::number_at(i)) << i;
  }
  for (Request& request : requests) request.wait();
}

TEST_F(LiveGpuSums, AreScatteredAndGathered) {
  constexpr uint64_t kWhole = kRanks * kShare * sizeof(float);
  for (const bool registered : {true, false}) {
    run("train", [registered](Communicator& job) { scatter_and_gather(job, registered); });
    const uint64_t times = registered ? 2 : 4;
    expect_traffic(times * kRanks * kWhole, times * kWhole, times * kWhole);
  }
}

struct TwoPorts {
  const int port_a = free_port(), port_b = free_port();
  static std::vector<std::string> to(int port) {
    return {"--peer", "127.0.0.1:" + std::to_string(port)};
  }
};
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

TEST_F(LiveGpuSumsOfNodes, AreScatteredAndGathered) {
  constexpr uint64_t kWhole = kRanks * kShare * sizeof(float);
  run("train", [](Communicator& job) { scatter_and_gather(job, job.rank() != 3); });
  expect_traffic(2 * 2 * kWhole, 2 * kWhole, 2 * kWhole);
}

}  // namespace
}  // namespace gradring::daemon
