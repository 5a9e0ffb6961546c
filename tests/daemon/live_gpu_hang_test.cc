// A GPU that stops to work and says nothing; the driver is the tests'.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/live_gpu_ranks.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

// The GPU of whichever daemon is started while it lives.
class HangingGpu {
 public:
  HangingGpu() {
    if (!test::is_real()) test::cuda_twin().have(1);  // that of this process goes on
    setenv("GRADRING_TWIN_HANGS", scratch_.path("hang").c_str(), 1);
    setenv("GRADRING_TWIN_SETTLES", "1", 1);
  }
  ~HangingGpu() {
    unsetenv("GRADRING_TWIN_HANGS");
    unsetenv("GRADRING_TWIN_SETTLES");
  }
  void hang() const { scratch_.write("hang", ""); }

 private:
  const Scratch scratch_;
};

class LiveGpuHang : private HangingGpu, public LiveGpuRanks {
 protected:
  LiveGpuHang() : LiveGpuRanks({"--drain-timeout", "1s"}, "live", 0) {}
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPU";
  }
  using HangingGpu::hang;
};

TEST_F(LiveGpuHang, KeepsNoDaemonThatIsToldToStop) {
  hang();
  gradring_options options{};
  options.struct_size = sizeof(options);
  options.runtime_dir = daemon_.runtime_dir().c_str();
  options.job = "train";
  options.rank = 0;
  options.size = 1;
  options.local_rank = options.local_size = -1;
  Communicator job(options);
  DeviceBuffer gradients(job, kCount, false);
  Request sum = job.start(gradients.sum());
  wait_for_count("gpu_input_bytes", 1);
  const Ended ended = daemon_.stop();
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("its memory is left to the system"));
  EXPECT_ANY_THROW(sum.wait());
}

}  // namespace
}  // namespace gradring::daemon
