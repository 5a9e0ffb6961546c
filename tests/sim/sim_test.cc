#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

TEST(Simulation, InvariantsHoldOverManySeeds) {
  Stats sum;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    World world(draw_scenario(seed, 0));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    sum.completions += world.stats().completions;
    sum.faults += world.stats().faults;
    sum.mismatches += world.stats().mismatches;
    sum.views += world.stats().views;
    sum.shrunk += world.stats().shrunk;
    sum.grown += world.stats().grown;
    sum.slow_reports += world.stats().slow_reports;
  }
  // The generator really makes work and trouble.
  EXPECT_GT(sum.completions, 2000u);
  EXPECT_GT(sum.faults, 200u);
  EXPECT_GT(sum.mismatches, 50u);
  EXPECT_GT(sum.views, 400u);
  EXPECT_GT(sum.shrunk, 400u);
  EXPECT_GT(sum.grown, 1u);
  EXPECT_GT(sum.slow_reports, 30u);
}

// Faults go on for as long as there is work, and trainers come again and again.
TEST(Simulation, InvariantsHoldWhereItIsRough) {
  Stats sum;
  const uint64_t seeds = kSanitized ? 40 : 400;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(draw_rough(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    sum.faults += world.stats().faults;
    sum.views += world.stats().views;
    sum.grown += world.stats().grown;
  }
  EXPECT_GT(sum.faults, seeds * 7);
  EXPECT_GT(sum.views, seeds * 4);
  EXPECT_GT(sum.grown, seeds / 5);
}

// Jobs end, form and change beside each other on nodes whose daemons restart.
TEST(Simulation, InvariantsHoldWhereNodesHaveSeveralJobs) {
  Stats sum;
  const uint64_t seeds = kSanitized ? 20 : 200;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(draw_crowded(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    sum.restarts += world.stats().restarts;
    sum.views += world.stats().views;
  }
  EXPECT_GT(sum.restarts, seeds * 2);
  EXPECT_GT(sum.views, seeds * 8);
}

// Each found something once, as the generator is now.
TEST(Simulation, SeedsThatFoundSomethingDoSoNoMore) {
  // A node is drained of its last rank when a view change that it wanted then ends the job there.
  for (const uint64_t seed : {389466u}) {
    World world(draw_scenario(seed, 0));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

TEST(Simulation, ASeedReplaysExactly) {
  for (uint64_t seed : {3u, 17u, 40u}) {
    World first(draw_scenario(seed, 0));
    World second(draw_scenario(seed, 0));
    first.run();
    second.run();
    EXPECT_EQ(first.stats().events, second.stats().events);
    EXPECT_EQ(first.stats().slices, second.stats().slices);
    EXPECT_EQ(first.events().now(), second.events().now());
  }
}

TEST(Simulation, SixtyFourNodesOfEight) {
  Scenario scenario = draw_scenario(5, 64);
  scenario.faults.clear();
  JobSpec job;
  job.name = "large";
  for (uint32_t rank = 0; rank < 64 * 8; ++rank) job.node_of_rank.push_back(rank / 8);
  OpSpec op;
  op.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kAverage, 0, 2500};
  job.ops = {op};
  scenario.jobs = {job};
  World world(scenario);
  EXPECT_EQ(world.run(), "");
  EXPECT_EQ(world.stats().trainers_done, 512u);
}

// No trainer makes trouble of its own, and no engine is too slow for the others.
Scenario well_behaved(uint64_t seed) {
  Scenario scenario = draw_scenario(seed, 0);
  scenario.slow_report_max = std::min(scenario.slow_report_max, 500 * core::kMillisecond);
  for (JobSpec& job : scenario.jobs) {
    job.mismatch_rank.reset();
    job.early_leavers.clear();
  }
  return scenario;
}

// Daemons that come back with their records within the grace are a pause: no op fails or shrinks.
TEST(Simulation, RestartsAreOnlyAPause) {
  uint64_t restarts = 0;
  const uint64_t seeds = kSanitized ? 30 : 300;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Scenario scenario = well_behaved(seed);
    for (Fault& fault : scenario.faults) {
      fault.kind = FaultKind::kRestart;
      fault.a %= scenario.nodes;
      fault.detected = 20 * core::kMillisecond;
      fault.lasts = 20 * core::kMillisecond + fault.lasts % (3 * core::kSecond);
    }
    World world(scenario);
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    if (world.stats().restarts_while_forming > 0) continue;  // of that nothing is remembered
    EXPECT_EQ(world.stats().jobs_failed, 0u) << "seed " << seed;
    EXPECT_EQ(world.stats().shrunk, 0u) << "seed " << seed;
    restarts += world.stats().restarts;
  }
  EXPECT_GT(restarts, seeds * 2 / 3);
}

// So is the loss of a lane where another is left.
TEST(Simulation, LostLanesAreOnlyAPause) {
  uint64_t lost = 0;
  const uint64_t seeds = kSanitized ? 30 : 300;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Scenario scenario = well_behaved(seed);
    for (Fault& fault : scenario.faults) {
      fault.kind = FaultKind::kLoseLane;
      fault.detected = std::max(fault.detected, core::kMillisecond);
      fault.a %= scenario.nodes;
      fault.b = (fault.a + 1 + fault.b % (scenario.nodes - 1)) % scenario.nodes;
    }
    World world(scenario);
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.stats().jobs_failed, 0u) << "seed " << seed;
    EXPECT_EQ(world.stats().shrunk, 0u) << "seed " << seed;
    lost += world.stats().lanes_lost;
  }
  EXPECT_GT(lost, seeds);
}

// Another table is only a pause, whatever is under way and however slow a node is: none is left out
// for its sake, no op fails or shrinks. Half of the runs have a node that does nothing for a while.
TEST(Simulation, AnotherTableIsOnlyAPause) {
  uint64_t retuned = 0;
  const uint64_t seeds = kSanitized ? 30 : 400;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(draw_retuned(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.stats().jobs_failed, 0u) << "seed " << seed;
    EXPECT_EQ(world.stats().shrunk, 0u) << "seed " << seed;
    retuned += world.stats().retuned;
  }
  EXPECT_GT(retuned, seeds * 2);
}

// Ops of which two ranks think differently fail, also while views change; others go on.
TEST(Simulation, RanksThatDifferInEveryStep) {
  uint64_t mismatches = 0;
  const uint64_t seeds = kSanitized ? 30 : 400;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(draw_mismatched(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    mismatches += world.stats().mismatches;
  }
  EXPECT_GT(mismatches, seeds * 5);
}

// The checks see damage: each kind is found within a few seeds.
class Damage : public testing::TestWithParam<Sabotage> {};

TEST_P(Damage, IsFound) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Scenario scenario = draw_scenario(seed, 3);
    scenario.faults.clear();
    scenario.sabotage = GetParam();
    for (JobSpec& job : scenario.jobs) job.early_leavers.clear();
    if (!World(scenario).run().empty()) return;
  }
  FAIL() << "sixty damaged runs passed every check";
}

INSTANTIATE_TEST_SUITE_P(Simulation, Damage,
                         testing::Values(Sabotage::kLoseReady, Sabotage::kLoseCredit,
                                         Sabotage::kCorruptPayload, Sabotage::kForgetDelivery,
                                         Sabotage::kLoseStandIn, Sabotage::kReuseLentBuffer));

}  // namespace
}  // namespace gradring::sim
