// gradring-perf on memory of GPUs, with a real daemon; the driver is the tests'.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/tools/process.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

// For whoever is started while it lives.
struct TwoGpus {
  TwoGpus() {
    setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);
    setenv("GRADRING_TWIN_GPUS", "2", 1);
  }
  ~TwoGpus() { unsetenv("GRADRING_TWIN_GPUS"); }
};

class LivePerf : public testing::Test {
 protected:
  tools::Outcome perf(std::vector<std::string> words) {
    words.insert(words.begin(), GRADRING_PERF);
    words.insert(words.end(), {"--runtime-dir", daemon_.runtime_dir(), "--iters", "2"});
    return tools::run(words);
  }
  // What GPUs summed, once there is more of it; the daemon's threads tell one another now and then.
  uint64_t inputs_beyond(uint64_t before) {
    RawTrainer watcher(daemon_.runtime_dir());
    for (int look = 0; look < 200; ++look) {
      if (const uint64_t now = watcher.counter("gpu_input_bytes"); now > before) return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return before;
  }

  const TwoGpus gpus_;
  LiveDaemon daemon_{{"--gpu-sums", "on"}};
};

TEST_F(LivePerf, IsRightWhereverOnGpusBuffersLie) {
  uint64_t before = 0;
  for (const char* where : {"gpu", "gpu-registered", "gpu-pool"}) {
    const tools::Outcome ended = perf({"allreduce", "--ranks", "3", "--min", "4K", "--max", "4M",
                                       "--factor", "32", "--check", "--memory", where});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr(std::string("on GPU 0, ")));
    EXPECT_THAT(ended.out, HasSubstr(std::string("(") + where + ")"));
    EXPECT_THAT(ended.out, HasSubstr("# Wrong values: 0 OK"));
    const uint64_t inputs = inputs_beyond(before);
    EXPECT_GT(inputs, before) << where << ": none of it was summed by GPUs";
    before = inputs;
  }
}

TEST_F(LivePerf, EveryCollectiveIsRight) {
  for (const char* collective : {"broadcast", "reduce", "allgather", "reduce-scatter", "gather",
                                 "scatter", "alltoall", "barrier"}) {
    const tools::Outcome ended = perf({collective, "--ranks", "2", "--min", "6M", "--max", "6M",
                                       "--together", "2", "--check", "--memory", "gpu-pool"});
    EXPECT_EQ(ended.exit_code, 0) << collective << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("# Wrong values: 0 OK")) << collective;
  }
}

TEST_F(LivePerf, WhatGpusDoIsInTheTrace) {
  const tools::Outcome ended = perf(
      {"allreduce", "--ranks", "2", "--min", "4M", "--max", "4M", "--memory", "gpu-registered"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const tools::TemporaryFolder folder;
  const std::string file = folder.path() + "/trace.json";
  const tools::Outcome dumped = tools::run(
      {GRADRINGCTL, "--runtime-dir", daemon_.runtime_dir(), "trace", "dump", "-o", file});
  ASSERT_EQ(dumped.exit_code, 0) << dumped.err;
  std::ifstream trace(file);
  const std::string text(std::istreambuf_iterator<char>(trace), {});
  EXPECT_THAT(text, HasSubstr(R"("name":"GPUs")"));
  EXPECT_THAT(text, HasSubstr(R"("task":"stay")"));
}

TEST_F(LivePerf, AGpuThatIsNotThereIsRefusedInWords) {
  const tools::Outcome ended = perf({"allreduce", "--ranks", "1", "--memory", "gpu", "--gpu", "2"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("--gpu 2: this process has 2, from 0 on"));
}

}  // namespace
}  // namespace gradring::daemon
