// A trainer that needs first what it submits last, through a real daemon.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/daemon/live_ranks.h"
#include "tools/ctl/flight/file.h"

namespace gradring::daemon {
namespace {

using Names = std::vector<std::string>;

class LivePrioritiesTest : public LiveRanks {
 protected:
  // A long op, and behind it a short one that is waited for first.
  static void train(Communicator& job, size_t steps) {
    auto last_layer = job.allocate<float>(32 << 20);  // 128 MiB
    auto first_layer = job.allocate<float>(64 << 10);
    for (size_t step = 0; step < steps; ++step) {
      std::fill(last_layer.begin(), last_layer.end(), 1.0f);
      std::fill(first_layer.begin(), first_layer.end(), 2.0f);
      auto late = job.start_allreduce(last_layer, GRADRING_SUM, "last layer");
      auto early = job.start_allreduce(first_layer, GRADRING_SUM, "first layer");
      early.wait();
      late.wait();
      EXPECT_EQ(last_layer[last_layer.size() - 1], kRanks);
      EXPECT_EQ(first_layer[0], 2 * kRanks);
    }
  }
  // The named ops of a rank in the order in which they ended, as the flight recorder saw it.
  Names ended(uint32_t rank) const {
    std::ifstream file(daemon_.runtime_dir() + "/" + kFlightFile, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const auto life =
        tools::read_flight(bytes.size(), [&](uint64_t offset, std::span<std::byte> to) {
          if (offset > bytes.size() || to.size() > bytes.size() - offset) return false;
          std::memcpy(to.data(), bytes.data() + offset, to.size());
          return true;
        });
    EXPECT_TRUE(life) << life.error();
    std::map<uint64_t, std::string> names;
    Names ended;
    for (const tools::FlightEntry& entry : life->entries) {
      const FlightEvent& event = entry.event;
      if (event.rank != rank || event.key.space == 0) continue;
      if (event.kind == FlightKind::kOpSubmitted && !entry.name.empty()) {
        names[event.key.space] = entry.name;
      }
      if (event.kind == FlightKind::kOpDone) ended.push_back(names[event.key.space]);
    }
    return ended;
  }
};

// Which step is the first with priorities, need_order_test.cc says.
TEST_F(LivePrioritiesTest, WhatWasLearnedOvertakesALongOp) {
  priorities_ = "learned";
  run("learned", [](Communicator& job) {
    train(job, 6);
    const auto learned = job.learned_priorities();
    ASSERT_EQ(learned.size(), 2u);
    EXPECT_EQ(learned[0].name, "first layer");
  });
  Names expected;
  for (int step = 0; step < 4; ++step) {
    expected.insert(expected.end(), {"last layer", "first layer"});
  }
  for (int step = 4; step < 6; ++step) {
    expected.insert(expected.end(), {"first layer", "last layer"});
  }
  EXPECT_EQ(ended(0), expected);
}

TEST_F(LivePrioritiesTest, WithoutThatOpsEndInTheOrderOfSubmission) {
  run("given", [](Communicator& job) {
    train(job, 6);
    EXPECT_TRUE(job.learned_priorities().empty());
  });
  Names expected;
  for (int step = 0; step < 6; ++step) {
    expected.insert(expected.end(), {"last layer", "first layer"});
  }
  EXPECT_EQ(ended(0), expected);
}

}  // namespace
}  // namespace gradring::daemon
