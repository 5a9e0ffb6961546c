// Random programs of collectives on real daemons, one or several; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <ostream>
#include <thread>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/differential/runner.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

// Of a whole op on a busy machine under a sanitizer.
constexpr auto kPatience = 60s;
constexpr uint64_t kPrograms = kSanitized ? 8 : 25;
constexpr uint64_t kLargePrograms = kSanitized ? 8 : 12;  // that take a second each

// The node of each rank.
using Placement = std::vector<size_t>;

struct World {
  Placement placement;
  bool gpu = false;              // most buffers lie on one, which the tests bring along
  bool gpu_sums = false;         // and daemons sum there
  const char* engine = nullptr;  // by this, on two GPUs that ranks have in turn
};

void PrintTo(const World& world, std::ostream* out) {
  *out << (world.engine != nullptr ? world.engine : world.gpu_sums ? "gpu-sums" : "host");
}

// The second GPU of the tests.
const test::TestGpu& second_gpu() {
  static const test::TestGpu kSecond = [] {
    test::TestGpu gpu = test::test_gpu();
    gpu.alloc = [](size_t bytes, bool) { return test::cuda_twin().alloc_on(1, bytes); };
    gpu.make_stream = [] { return test::cuda_twin().make_stream_on(1); };
    return gpu;
  }();
  return kSecond;
}

class LiveDifferentialTest : public testing::TestWithParam<World> {
 protected:
  LiveDifferentialTest() {
    if (GetParam().gpu) options_.gpu = &test::test_gpu();
    if (GetParam().gpu_sums) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemons
    options_.patience = kPatience;
    options_.choice.large = options_.node_sums.may_be = GetParam().gpu_sums;
    std::vector<std::string> flags = {"--op-deadline", "30s"};
    if (GetParam().gpu_sums) flags.insert(flags.end(), {"--gpu-sums", "on"});
    if (GetParam().engine != nullptr) {
      flags.insert(flags.end(), {"--gpu-engine", GetParam().engine});
      options_.all_on_gpu = true;
      test::cuda_twin().have(2);
      setenv("GRADRING_TWIN_GPUS", "2", 1);  // of the daemons
      for (uint32_t rank = 0; rank < placement_.size(); ++rank) {
        options_.node_sums.gpus.push_back(rank % 2);
      }
    }
    daemons_ = live_nodes(*std::ranges::max_element(placement_) + 1, flags);
  }
  ~LiveDifferentialTest() override {
    unsetenv("GRADRING_TWIN_GPUS");
    if (GetParam().engine != nullptr) test::cuda_twin().have(1);
  }

  void run_rank(size_t rank, uint64_t first_seed) {
    gradring_options options{};
    options.struct_size = sizeof(options);
    options.runtime_dir = daemons_[placement_[rank]]->runtime_dir().c_str();
    options.job = "train";
    options.rank = static_cast<int>(rank);
    options.size = static_cast<int>(placement_.size());
    options.local_rank = options.local_size = -1;
    options.join_timeout_ms = std::chrono::milliseconds(kPatience).count();
    const Communicator world(options);
    differential::RunnerOptions how = options_;
    if (GetParam().engine != nullptr && rank % 2 == 1) {
      how.gpu = &second_gpu();
      how.device = 1;
    }
    differential::Runner runner(world, how);
    const uint64_t programs = options_.choice.large ? kLargePrograms : kPrograms;
    for (uint64_t seed = first_seed; seed < first_seed + programs; ++seed) {
      EXPECT_THAT(runner.run(seed), IsEmpty());
    }
    world.barrier();  // nobody leaves while another is at work
  }

  const Placement placement_ = GetParam().placement;
  differential::RunnerOptions options_;
  std::vector<std::unique_ptr<LiveDaemon>> daemons_;
};

TEST_P(LiveDifferentialTest, ProgramsComeToWhatTheReferenceSays) {
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < placement_.size(); ++rank) {
    ranks.emplace_back([this, rank] {
      try {
        run_rank(rank, 1000 * daemons_.size());
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " gave up: " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& daemon : daemons_) {
    if (!GetParam().gpu_sums) break;
    RawTrainer watcher(daemon->runtime_dir());
    EXPECT_GT(watcher.counter("gpu_input_bytes"), 0u) << "all of it went by way of the host";
    const bool nccl = GetParam().engine != nullptr && GetParam().engine == std::string("nccl");
    EXPECT_THAT(daemon->log(), HasSubstr(nccl ? "by NCCL 2.28.9" : "by kernels"));
  }
}

std::string name_of(const testing::TestParamInfo<World>& world) {
  std::string name = "RanksOnNodes";
  for (const size_t node : world.param.placement) name += "_" + std::to_string(node);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Random, LiveDifferentialTest,
                         testing::Values(World{{0, 0, 0, 0}}, World{{0, 1, 0, 1, 0}},
                                         World{{2, 1, 0, 1, 2, 2}}, World{{0, 1, 2, 3}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OnAGpu, LiveDifferentialTest,
                         testing::Values(World{{0, 0, 0, 0}, true}, World{{0, 1, 0, 1, 0}, true}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SummedByGpus, LiveDifferentialTest,
                         testing::Values(World{{0, 0, 0}, true, true},
                                         World{{0, 1, 0, 1}, true, true}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(OfTwoGpusByKernels, LiveDifferentialTest,
                         testing::Values(World{{0, 0, 0, 0}, true, true, "kernels"}), name_of);
INSTANTIATE_TEST_SUITE_P(OfTwoGpusByNccl, LiveDifferentialTest,
                         testing::Values(World{{0, 0, 0, 0}, true, true, "nccl"},
                                         World{{0, 0, 1, 1}, true, true, "nccl"}),
                         name_of);

}  // namespace
}  // namespace gradring::daemon
