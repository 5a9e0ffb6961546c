// Jobs whose ranks are on GPUs of their own, as a scheduler of jobs has them: what befalls one GPU
// is nothing to the others' jobs. The driver is the tests'.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <gradring/gradring.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/live_gpu_ranks.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

// Of whichever daemon is started while it lives; this process has as many, which go on.
class TwoGpus {
 public:
  TwoGpus() {
    if (!test::is_real()) test::cuda_twin().have(2);
    setenv("GRADRING_TWIN_GPUS", "2", 1);
    setenv("GRADRING_TWIN_HANGS", scratch.path("hangs").c_str(), 1);
    setenv("GRADRING_TWIN_LOST", scratch.path("lost").c_str(), 1);
    setenv("GRADRING_TWIN_SETTLES", "1", 1);
  }
  ~TwoGpus() {
    unsetenv("GRADRING_TWIN_GPUS");
    unsetenv("GRADRING_TWIN_HANGS");
    unsetenv("GRADRING_TWIN_LOST");
    unsetenv("GRADRING_TWIN_SETTLES");
    if (!test::is_real()) test::cuda_twin().have(1);
  }

  const Scratch scratch;
};

class LiveGpuApart : private TwoGpus, public LiveGpuRanks {
 protected:
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPUs";
  }
  void TearDown() override { go_on(); }
  // A job of one rank, whose memory is on one GPU.
  struct Job {
    Job(const LiveDaemon& daemon, const char* name, int number)
        : gpu(number), job(options_of(daemon, name)) {}
    static gradring_options options_of(const LiveDaemon& daemon, const char* name) {
      gradring_options options{};
      options.struct_size = sizeof(options);
      options.runtime_dir = daemon.runtime_dir().c_str();
      options.job = name;
      options.rank = 0;
      options.size = 1;
      options.local_rank = options.local_size = -1;
      return options;
    }
    DeviceBuffer buffer() const { return DeviceBuffer::on(gpu, job, kCount); }
    void step(DeviceBuffer& gradients) {
      gradients.write_later(3);
      job.start(gradients.sum()).wait();
      const std::vector<float> sums = gradients.read();
      EXPECT_TRUE(std::ranges::all_of(sums, [](float sum) { return sum == 3; }));
    }
    std::string words_of_step(DeviceBuffer& gradients) {
      try {
        job.start(gradients.sum()).wait();
        return "well";
      } catch (const Error& error) {
        return error.what();
      }
    }

    const int gpu;
    Communicator job;
  };
  void hang(int gpu) const { scratch.write("hangs", std::to_string(gpu)); }
  void lose(int gpu) const { scratch.write("lost", std::to_string(gpu)); }
  void go_on() const { std::filesystem::remove(scratch.path("hangs")); }
};

// Nor is it kept by what is given back of the memory there, for which a driver waits.
TEST_F(LiveGpuApart, AJobGoesOnBesideAGpuThatHangs) {
  constexpr auto kSoon = 20s;  // whoever waits for the daemon does so for 30 s
  Job left(daemon_, "left", 0), right(daemon_, "right", 1);
  const DeviceBuffer stuck = left.buffer();
  auto idle = std::make_unique<DeviceBuffer>(left.job, kCount);
  DeviceBuffer theirs = right.buffer();
  right.step(theirs);
  hang(0);
  Request sum = left.job.start(stuck.sum());
  wait_for_count("gpu_input_bytes", 2 * kBytes);
  const auto frees = std::async(std::launch::async, [&idle] { idle.reset(); });
  std::this_thread::sleep_for(200ms);
  const auto since = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) right.step(theirs);
  {
    DeviceBuffer more = right.buffer();
    right.step(more);
  }
  {
    Job third(daemon_, "third", 1);
    DeviceBuffer other = third.buffer();
    third.step(other);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - since, kSoon);
  wait_for_count("gpu_input_bytes", 9 * kBytes);
  EXPECT_EQ(counted("gpu_input_bytes"), 9 * kBytes) << "none of it by the host";
  EXPECT_EQ(frees.wait_for(0s), std::future_status::timeout) << "its GPU hangs still";
  go_on();
  frees.wait();
  sum.wait();
}

// After an error of CUDA the process may use no GPU; a daemon that is started anew uses those that
// work.
TEST_F(LiveGpuApart, OfAGpuThatFailsAllHearAndANewDaemonUsesTheOthers) {
  {
    Job left(daemon_, "left", 0), right(daemon_, "right", 1);
    DeviceBuffer mine = left.buffer(), theirs = right.buffer();
    left.step(mine);
    right.step(theirs);
    lose(0);
    for (const std::string& words : {left.words_of_step(mine), right.words_of_step(theirs)}) {
      EXPECT_THAT(words, AllOf(HasSubstr("device GPU: Twin (GPU-"), HasSubstr("has failed"),
                               HasSubstr("uses no GPU any more until it is started anew")));
    }
  }
  {
    Job again(daemon_, "again", 1);
    DeviceBuffer gradients = again.buffer();
    again.step(gradients);
    EXPECT_THAT(daemon_.log(), HasSubstr("goes by way of its trainer: Twin (GPU-"));
  }
  EXPECT_EQ(daemon_.stop().status, 0);
  daemon_.start();
  RawTrainer watcher{daemon_.runtime_dir()};
  Job last(daemon_, "last", 1);
  DeviceBuffer gradients = last.buffer();
  last.step(gradients);
  for (int look = 0; look < 200 && watcher.counter("gpu_input_bytes") == 0; ++look) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(watcher.counter("gpu_input_bytes"), kBytes);
}

}  // namespace
}  // namespace gradring::daemon
