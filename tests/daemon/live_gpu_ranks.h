#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/device_buffer.h"
#include "tests/daemon/live_ranks.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {

// The daemon has the GPU as well, and sums there what is registered and large.
class LiveGpuRanks : public LiveRanks {
 protected:
  LiveGpuRanks() : LiveGpuRanks({}, "live", 0) {}
  LiveGpuRanks(const std::vector<std::string>& flags, const std::string& node, int port)
      : LiveRanks(with_gpu_sums(flags), node, port) {
    test::test_gpu();
    if (!test::is_real()) test::cuda_twin().settle(true);
    set_stages("1024");
  }
  ~LiveGpuRanks() override {
    unsetenv(kStages);
    if (!test::is_real()) test::cuda_twin().settle(false);
  }
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
  // Once the daemon has counted so much, if it does in time.
  void wait_for_count(const std::string& name, uint64_t wanted) {
    for (int look = 0; look < 200 && counted(name) < wanted; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  uint64_t counted(const std::string& name) { return watcher_.counter(name); }
  static constexpr uint64_t kBytes = ((uint64_t{5} << 20) + 3) * sizeof(float);
  static constexpr size_t kCount = (size_t{5} << 20) + 3;  // ten parts of two MiB
  static void expect_sums(const DeviceBuffer& gradients) {
    EXPECT_TRUE(DeviceBuffer::are_numbers(gradients.read(), 10));
  }
  static void sum_once(Communicator& job, DeviceBuffer& gradients) {
    gradients.write_later([&](size_t block) { return (1.0f + block) * (job.rank() + 1); });
    Request sum = job.start(gradients.sum());
    sum.wait_on_stream(gradients.stream());
    test::test_gpu().wait_for(gradients.stream());
    expect_sums(gradients);
    sum.wait();
  }

  RawTrainer watcher_{daemon_.runtime_dir()};
};

struct TwoPorts {
  const int port_a = free_port(), port_b = free_port();
  static std::vector<std::string> to(int port) {
    return {"--peer", "127.0.0.1:" + std::to_string(port)};
  }
};

}  // namespace gradring::daemon
