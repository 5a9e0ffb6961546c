// Random programs of collectives on real daemons, one or several; each rank is a thread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/daemon/live_daemon.h"
#include "tests/differential/runner.h"

namespace gradring::daemon {
namespace {

using testing::IsEmpty;
using namespace std::chrono_literals;

// Of a whole op on a busy machine under a sanitizer.
constexpr auto kPatience = 60s;
constexpr uint64_t kPrograms = kSanitized ? 8 : 25;

// The node of each rank.
using Placement = std::vector<size_t>;

class LiveDifferentialTest : public testing::TestWithParam<Placement> {
 protected:
  LiveDifferentialTest() {
    const size_t nodes = *std::ranges::max_element(GetParam()) + 1;
    std::vector<int> ports;
    for (size_t i = 0; i < nodes; ++i) ports.push_back(free_port());
    for (size_t i = 0; i < nodes; ++i) {
      std::vector<std::string> flags = {"--op-deadline", "30s"};
      for (size_t peer = 0; peer < nodes; ++peer) {
        if (peer == i) continue;
        flags.insert(flags.end(), {"--peer", "127.0.0.1:" + std::to_string(ports[peer])});
      }
      daemons_.push_back(std::make_unique<LiveDaemon>(flags, "node" + std::to_string(i), ports[i]));
    }
  }

  void run_rank(size_t rank, uint64_t first_seed) {
    gradring_options options{};
    options.struct_size = sizeof(options);
    options.runtime_dir = daemons_[GetParam()[rank]]->runtime_dir().c_str();
    options.job = "train";
    options.rank = static_cast<int>(rank);
    options.size = static_cast<int>(GetParam().size());
    options.local_rank = options.local_size = -1;
    options.join_timeout_ms = std::chrono::milliseconds(kPatience).count();
    const Communicator world(options);
    differential::Runner runner(world, kPatience);
    for (uint64_t seed = first_seed; seed < first_seed + kPrograms; ++seed) {
      EXPECT_THAT(runner.run(seed), IsEmpty());
    }
    world.barrier();  // nobody leaves while another is at work
  }

  std::vector<std::unique_ptr<LiveDaemon>> daemons_;
};

TEST_P(LiveDifferentialTest, ProgramsComeToWhatTheReferenceSays) {
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < GetParam().size(); ++rank) {
    ranks.emplace_back([this, rank] {
      try {
        run_rank(rank, 1000 * daemons_.size());
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " gave up: " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::string name_of(const testing::TestParamInfo<Placement>& placement) {
  std::string name = "RanksOnNodes";
  for (const size_t node : placement.param) name += "_" + std::to_string(node);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Random, LiveDifferentialTest,
                         testing::Values(Placement{0, 0, 0, 0}, Placement{0, 1, 0, 1, 0},
                                         Placement{2, 1, 0, 1, 2, 2}, Placement{0, 1, 2, 3}),
                         name_of);

}  // namespace
}  // namespace gradring::daemon
