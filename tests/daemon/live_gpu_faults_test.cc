// GPUs that fail under a real daemon: errors of NVIDIA's driver, replayed by an NVML that is
// played, while ranks that are threads train on GPUs of a driver that the tests bring along.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/device_buffer.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/daemon/scratch.h"
#include "tests/transport/gpus_share.h"
#include "tests/transport/machine/gpu_script.h"

namespace gradring::daemon {
namespace {

using machine::GpuScript;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// Ranks 0 and 1 compute on the first GPU, rank 2 on the second.
class LiveGpuFaults : public testing::Test {
 protected:
  LiveGpuFaults() : LiveGpuFaults({}, "live", 0) {}
  LiveGpuFaults(const std::vector<std::string>& more, const std::string& node, int port)
      : daemon_(flags(more), node, port) {
    if (!test::is_real()) test::cuda_twin().have(2);
  }
  // Whose trainer this rank is.
  virtual const LiveDaemon& daemon_of(int /*rank*/) const { return daemon_; }
  ~LiveGpuFaults() override {
    unsetenv("GRADRING_TWIN_GPUS");
    if (!test::is_real()) test::cuda_twin().have(1);
  }
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPUs";
  }
  static std::vector<std::string> flags(std::vector<std::string> more) {
    setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemon
    setenv("GRADRING_TWIN_GPUS", "2", 1);
    more.insert(more.end(), {"--gpu-sums", "on", "--nvml-library", FAKE_NVML});
    return more;
  }

  static constexpr int kRanks = 3;
  static constexpr size_t kCount = 300'000;
  static constexpr const char* kElastic = "elastic min=1 max=3";
  static constexpr const char* kFellOff = "has fallen off the bus (Xid 79)";
  static int gpu_of(int rank) { return rank == 2 ? 1 : 0; }

  // Runs all ranks; what each throws is its word.
  void run(const std::string& name, const char* policy,
           const std::function<void(Communicator&, DeviceBuffer&)>& body) {
    errors_.assign(kRanks, "");
    blamed_.assign(kRanks, -1);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        gradring_options options{};
        options.struct_size = sizeof(options);
        options.runtime_dir = daemon_of(rank).runtime_dir().c_str();
        options.job = name.c_str();
        options.policy = policy;
        options.rank = rank;
        options.size = kRanks;
        options.local_rank = options.local_size = -1;
        const auto at = static_cast<size_t>(rank);
        try {
          Communicator job(options);
          DeviceBuffer gradients = DeviceBuffer::on(gpu_of(rank), job, kCount);
          try {
            body(job, gradients);
          } catch (const Error& error) {
            errors_[at] = error.what();
            blamed_[at] = error.result().blamed_rank;
          }
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  // A step; how many ranks were in it.
  static int step(Communicator& job, DeviceBuffer& gradients) {
    gradients.write_later(static_cast<float>(job.rank() + 1));
    const gradring_result result = job.start(gradients.sum()).wait();
    const float sum = result.ranks_max == kRanks ? 6 : 3;
    // Where some parts were final before the loss, and others were not, both are there.
    if (result.ranks_min == result.ranks_max) {
      EXPECT_THAT(gradients.read(), testing::Each(sum)) << "rank " << job.rank();
    }
    return static_cast<int>(result.ranks_max);
  }
  // Steps with all; then rank 0 lets that happen, and all go on until there were so many more.
  static auto train(const std::function<void()>& happens, int more) {
    return [happens, more](Communicator& job, DeviceBuffer& gradients) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(step(job, gradients), kRanks);
      if (job.rank() == 0) happens();
      // Those who are left agree on when.
      for (int shrunk = 0; shrunk < more;) {
        if (step(job, gradients) < kRanks) ++shrunk;
      }
    };
  }
  // One that hears of it between two ops is told in words alone, when it submits the next one.
  bool blames(size_t rank, int64_t other) const {
    return blamed_[rank] == other || blamed_[rank] == -1;
  }
  bool soon(const std::function<bool()>& holds) const {
    for (int look = 0; look < 400 && !holds(); ++look) std::this_thread::sleep_for(50ms);
    return holds();
  }
  bool says(const std::string& words) const {
    return soon([&] { return daemon_.log().find(words) != std::string::npos; });
  }
  wire::QueryReply ask(wire::Query::What what) {
    RawTrainer watcher{daemon_.runtime_dir()};
    wire::ClientMessage query;
    query.mutable_query()->set_what(what);
    return watcher.ask(query).reply();
  }
  pid_t watching_child() const {
    const std::string pid = std::to_string(daemon_.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    for (pid_t child = 0; children >> child;) {
      std::string name;
      std::ifstream("/proc/" + std::to_string(child) + "/comm") >> name;
      if (name == "gradringd-gpus") return child;
    }
    return -1;
  }

  const Scratch scratch_;
  const GpuScript script_{scratch_.path("events")};
  LiveDaemon daemon_;
  std::vector<std::string> errors_;
  std::vector<int64_t> blamed_;
};

TEST_F(LiveGpuFaults, WhoComputesOnALostOneLeavesAndTheOthersGoOn) {
  run("train", kElastic, train([this] { script_.happens("xid 1 79"); }, 5));
  EXPECT_EQ(errors_[0], "");
  EXPECT_EQ(errors_[1], "");
  EXPECT_THAT(errors_[2], AllOf(HasSubstr("rank 2"), HasSubstr("node live"),
                                HasSubstr(GpuScript::gpu(1)), HasSubstr(kFellOff)));
  EXPECT_TRUE(blames(2, 2));
  EXPECT_THAT(daemon_.log(), AllOf(HasSubstr("GPU " + GpuScript::gpu(1) + " (0000:a2:00.0) " +
                                             kFellOff + ": drain the node"),
                                   HasSubstr("trainer rank 2"), Not(HasSubstr("failed"))));
  EXPECT_TRUE(daemon_.runs());
}

// As a real one does: the kernel before it never ends.
TEST_F(LiveGpuFaults, WhatItNeverCameToEndsWithItsName) {
  run("train", kElastic, [this](Communicator& job, DeviceBuffer& gradients) {
    if (job.rank() != 2) {
      EXPECT_EQ(step(job, gradients), kRanks - 1);
      return;
    }
    test::test_gpu().hold(gradients.stream(), true);
    gradients.write_later(3);
    Request sum = job.start(gradients.sum());
    std::this_thread::sleep_for(50ms);
    script_.happens("xid 1 79");
    try {
      sum.wait();
    } catch (const Error&) {
      test::test_gpu().hold(gradients.stream(), false);
      throw;
    }
  });
  EXPECT_EQ(errors_[0], "");
  EXPECT_EQ(errors_[1], "");
  EXPECT_THAT(errors_[2], AllOf(HasSubstr("trainer died: rank 2"), HasSubstr(kFellOff)));
  EXPECT_TRUE(blames(2, 2));
}

TEST_F(LiveGpuFaults, UnderPolicyFailTheJobEndsAndNamesTheGpu) {
  run("train", "fail", train([this] { script_.happens("ecc 1"); }, 1));
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    EXPECT_THAT(errors_[at],
                AllOf(HasSubstr("trainer died: rank 2, node live, pid"),
                      HasSubstr("device " + GpuScript::gpu(1)), HasSubstr("double-bit ECC error")))
        << rank;
    EXPECT_TRUE(blames(at, 2)) << rank;
  }
  EXPECT_TRUE(daemon_.runs());
}

// Which GPU that is its trainers know; the daemon sums by way of the host for whoever still tries.
TEST_F(LiveGpuFaults, NothingIsOpenedOnALostOneAnyMore) {
  script_.happens("xid 1 119");
  ASSERT_TRUE(says("(Xid 119)"));
  run("again", "fail", [](Communicator& job, DeviceBuffer& gradients) {
    EXPECT_EQ(step(job, gradients), kRanks);
    job.barrier();
  });
  for (const std::string& error : errors_) EXPECT_EQ(error, "");
  EXPECT_THAT(daemon_.log(), HasSubstr("goes by way of its trainer: GPU " + GpuScript::gpu(1) +
                                       " has a system processor (GSP) that does not answer"));
}

// One whose job has yet to form is told at once, and may go on without that GPU.
TEST_F(LiveGpuFaults, WhoWaitsForItsJobIsRefused) {
  constexpr uint64_t kBytes = 1 << 16;
  RawTrainer trainer{daemon_.runtime_dir()};
  const uint64_t address = test::cuda_twin().alloc_on(1, kBytes);
  const transport::GpuShare share = test::share_of(address, 0, kBytes, 1);
  wire::ClientMessage message;
  wire::ShareGpuMemory* const to = message.mutable_share_gpu();
  to->set_segment(trainer.allocate(kBytes).segment);
  to->set_handle(share.handle.data(), share.handle.size());
  to->set_gpu(share.gpu.data(), share.gpu.size());
  to->set_bytes(share.bytes);
  ASSERT_TRUE(trainer.ask(message).has_gpu_shared());
  const uint64_t joins = trainer.begin_join("waits", 0, 2);
  ASSERT_TRUE(soon([this] { return ask(wire::Query::JOBS).jobs().jobs_size() == 1; }));
  script_.happens("xid 1 79");
  EXPECT_THAT(trainer.answer_to(joins).refused().message(),
              AllOf(HasSubstr("rank 0"), HasSubstr(GpuScript::gpu(1)), HasSubstr(kFellOff)));
  EXPECT_TRUE(soon([this] { return ask(wire::Query::JOBS).jobs().jobs_size() == 0; }));
  EXPECT_TRUE(trainer.join("alone", 0, 1).has_joined());
  test::cuda_twin().gpu.free(address);
}

TEST_F(LiveGpuFaults, AProgramsOwnErrorIsNotedAndNothingElse) {
  run("train", kElastic, [this](Communicator& job, DeviceBuffer& gradients) {
    if (job.rank() == 0) {
      script_.happens("xid 1 31");
      EXPECT_TRUE(says("(Xid 31)"));
    }
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step(job, gradients), kRanks);
    job.barrier();
  });
  for (const std::string& error : errors_) EXPECT_EQ(error, "");
  EXPECT_THAT(daemon_.log(), HasSubstr("look at the program that ran there"));
  const wire::GpuErrorsReport report = ask(wire::Query::TOPOLOGY).topology().gpu_errors();
  EXPECT_TRUE(report.watched());
  ASSERT_EQ(report.errors_size(), 1);
  EXPECT_EQ(report.errors(0).error(), "Xid 31");
  EXPECT_EQ(report.errors(0).verdict(), "note");
}

// Nor does a job notice that has nothing there.
TEST_F(LiveGpuFaults, OneThatNobodyUsesIsSaidAndShown) {
  run("host", "fail", [](Communicator& job, DeviceBuffer&) {
    auto memory = job.allocate<float>(100);
    job.allreduce(memory);
    job.barrier();
  });
  script_.happens("lost 0");
  script_.happens("xid 1 74");
  ASSERT_TRUE(says("(Xid 74)"));
  const wire::GpuErrorsReport report = ask(wire::Query::TOPOLOGY).topology().gpu_errors();
  EXPECT_TRUE(report.watched()) << "of the other";
  ASSERT_EQ(report.errors_size(), 2);
  EXPECT_EQ(report.errors(0).gpu(), GpuScript::gpu(0));
  EXPECT_EQ(report.errors(0).verdict(), "unusable");
  EXPECT_EQ(report.errors(1).verdict(), "look");
  std::vector<std::string> kinds;
  const wire::QueryReply happened = ask(wire::Query::EVENTS);
  for (const auto& event : happened.events().events()) kinds.push_back(event.kind());
  EXPECT_THAT(kinds, testing::IsSupersetOf({"gpu unusable", "gpu error"}));
}

TEST_F(LiveGpuFaults, TheWatchThatDiesIsSaidOnceAndJobsGoOn) {
  ASSERT_TRUE(soon([this] { return watching_child() > 0; }));
  kill(watching_child(), SIGKILL);
  ASSERT_TRUE(says("errors of GPUs are not heard of until gradringd is restarted"));
  run("train", "fail", [](Communicator& job, DeviceBuffer& gradients) {
    EXPECT_EQ(step(job, gradients), kRanks);
    job.barrier();
  });
  for (const std::string& error : errors_) EXPECT_EQ(error, "");
  const wire::GpuErrorsReport report = ask(wire::Query::TOPOLOGY).topology().gpu_errors();
  EXPECT_FALSE(report.watched());
  EXPECT_THAT(report.reason(), HasSubstr("signal 9"));
  const std::string log = daemon_.log();
  EXPECT_EQ(log.find("not heard of"), log.rfind("not heard of"));
  EXPECT_EQ(watching_child(), -1);
}

struct TwoPortsOfGpuNodes {
  const int port_a = free_port(), port_b = free_port();
  static std::vector<std::string> to(int port) {
    return {"--peer", "127.0.0.1:" + std::to_string(port)};
  }
};
// Rank 2 is alone on a node of its own.
class LiveGpuFaultsOfNodes : private TwoPortsOfGpuNodes, public LiveGpuFaults {
 protected:
  LiveGpuFaultsOfNodes() : LiveGpuFaults(to(port_b), "a", port_a) {}
  const LiveDaemon& daemon_of(int rank) const override { return rank < 2 ? daemon_ : b_; }

  const GpuScript script_b_{scratch_.path("events of b")};
  LiveDaemon b_{flags(to(port_a)), "b", port_b};
};

TEST_F(LiveGpuFaultsOfNodes, TheOthersGoOnWithoutThatNode) {
  run("train", kElastic, train([this] { script_b_.happens("xid 1 79"); }, 5));
  EXPECT_EQ(errors_[0], "");
  EXPECT_EQ(errors_[1], "");
  EXPECT_THAT(errors_[2], AllOf(HasSubstr("rank 2, node b"), HasSubstr(kFellOff)));
  EXPECT_TRUE(daemon_.runs() && b_.runs());
}

TEST_F(LiveGpuFaultsOfNodes, AllNodesNameTheGpuThatIsLostOnOne) {
  run("train", "fail", train([this] { script_b_.happens("xid 1 79"); }, 1));
  for (const std::string& error : errors_) {
    EXPECT_THAT(error, AllOf(HasSubstr("trainer died: rank 2, node b, pid"),
                             HasSubstr("device " + GpuScript::gpu(1)), HasSubstr(kFellOff)));
  }
}

// It is nobody's but the daemon's.
TEST_F(LiveGpuFaults, TheWatchEndsWithItsDaemon) {
  ASSERT_TRUE(soon([this] { return watching_child() > 0; }));
  const pid_t child = watching_child();
  daemon_.signal(SIGKILL);
  EXPECT_TRUE(soon([&] {
    std::string state;
    std::ifstream("/proc/" + std::to_string(child) + "/comm") >> state;
    return state != "gradringd-gpus";
  }));
}

}  // namespace
}  // namespace gradring::daemon
