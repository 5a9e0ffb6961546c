// Memory of a GPU through libgradring and a real daemon, on a driver that the tests bring along;
// each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_ranks.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using test::test_gpu;
using testing::Each;
using testing::HasSubstr;

// Of one rank, with a stream of its own.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const Communicator& job, size_t count = 50'000, bool registered = true,
                        bool pooled = false)
      : job_(job),
        count_(count),
        registered_(registered),
        address_(test_gpu().alloc(bytes(), pooled)) {
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
  // From 1 on, of the block in which this element lies.
  static float number_at(size_t element) {
    const size_t block = element / kBlock;
    return static_cast<float>(1 + block);
  }
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
  const uint64_t address_;
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
        ASSERT_EQ(sums[i], 10.0f * DeviceBuffer::number_at(i)) << i;
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

// The daemon has the GPU as well, and sums there what is registered and large.
class LiveGpuSums : public LiveRanks {
 protected:
  LiveGpuSums() : LiveGpuSums({}, "live", 0) {}
  LiveGpuSums(const std::vector<std::string>& flags, const std::string& node, int port)
      : LiveRanks(with_gpu_sums(flags), node, port) {
    test_gpu();
  }
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
  uint64_t counted(const std::string& name) {
    wire::ClientMessage query;
    query.mutable_query()->set_what(wire::Query::STATUS);
    const wire::StatusReport report = watcher_.ask(query).reply().status();
    for (const auto& counter : report.counters()) {
      if (counter.name() == name) return counter.value();
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
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
  setenv("GRADRING_GPU_STAGE_MIB", "100", 1);  // of all ranks, which are one process
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
  unsetenv("GRADRING_GPU_STAGE_MIB");
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

}  // namespace
}  // namespace gradring::daemon
