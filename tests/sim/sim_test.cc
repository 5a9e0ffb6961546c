#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// Runs what `draw` makes of the seeds from 1 on. Each must hold; `look` is shown what each saw.
template <typename Draw, typename Look>
void run_seeds(uint64_t seeds, Draw draw, Look look) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    World world(draw(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    look(world.stats());
  }
}

// The limits below say that the generator really makes work and trouble. They are well under what
// it makes, for a change to it may move any of these.

TEST(Simulation, InvariantsHoldOverManySeeds) {
  Stats sum;
  run_seeds(
      200, [](uint64_t seed) { return draw_scenario(seed, 0); },
      [&sum](const Stats& stats) {
        sum.completions += stats.completions;
        sum.faults += stats.faults;
        sum.mismatches += stats.mismatches;
        sum.views += stats.views;
        sum.shrunk += stats.shrunk;
        sum.grown += stats.grown;
        sum.slow_reports += stats.slow_reports;
        sum.stops += stats.stops;
      });
  EXPECT_GT(sum.completions, 2000u);
  EXPECT_GT(sum.faults, 200u);
  EXPECT_GT(sum.mismatches, 50u);
  EXPECT_GT(sum.views, 400u);
  EXPECT_GT(sum.shrunk, 400u);
  EXPECT_GT(sum.grown, 1u);
  EXPECT_GT(sum.slow_reports, 30u);
  EXPECT_GT(sum.stops, 20u);
}

// Faults go on for as long as there is work, and trainers come again and again.
TEST(Simulation, InvariantsHoldWhereItIsRough) {
  Stats sum;
  const uint64_t seeds = kSanitized ? 40 : 400;
  run_seeds(seeds, draw_rough, [&sum](const Stats& stats) {
    sum.faults += stats.faults;
    sum.views += stats.views;
    sum.grown += stats.grown;
  });
  EXPECT_GT(sum.faults, seeds * 7);
  EXPECT_GT(sum.views, seeds * 4);
  EXPECT_GT(sum.grown, seeds / 5);
}

// Jobs end, form and change beside each other on nodes whose daemons restart.
TEST(Simulation, InvariantsHoldWhereNodesHaveSeveralJobs) {
  Stats sum;
  const uint64_t seeds = kSanitized ? 20 : 200;
  run_seeds(seeds, draw_crowded, [&sum](const Stats& stats) {
    sum.restarts += stats.restarts;
    sum.views += stats.views;
    sum.in_groups += stats.in_groups;
    sum.expired += stats.expired_names_rank;
    sum.gone_back += stats.gone_back;
  });
  EXPECT_GT(sum.restarts, seeds);
  EXPECT_GT(sum.in_groups, seeds);
  EXPECT_GT(sum.expired, seeds / 4);
  EXPECT_GT(sum.gone_back, seeds / 2);
  EXPECT_GT(sum.views, seeds * 4);
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
  const auto draw = [](uint64_t seed) {
    Scenario scenario = well_behaved(seed);
    for (Fault& fault : scenario.faults) {
      fault.kind = FaultKind::kRestart;
      fault.a %= scenario.nodes;
      fault.detected = 20 * core::kMillisecond;
      fault.lasts = 20 * core::kMillisecond + fault.lasts % (3 * core::kSecond);
    }
    return scenario;
  };
  run_seeds(seeds, draw, [&restarts](const Stats& stats) {
    if (stats.restarts_while_forming > 0) return;  // of that nothing is remembered
    EXPECT_EQ(stats.jobs_failed, 0u);
    EXPECT_EQ(stats.shrunk, 0u);
    restarts += stats.restarts;
  });
  EXPECT_GT(restarts, seeds * 2 / 3);
}

// So is the loss of a lane where another is left.
TEST(Simulation, LostLanesAreOnlyAPause) {
  uint64_t lost = 0;
  const uint64_t seeds = kSanitized ? 30 : 300;
  const auto draw = [](uint64_t seed) {
    Scenario scenario = well_behaved(seed);
    for (Fault& fault : scenario.faults) {
      fault.kind = FaultKind::kLoseLane;
      fault.detected = std::max(fault.detected, core::kMillisecond);
      fault.a %= scenario.nodes;
      fault.b = (fault.a + 1 + fault.b % (scenario.nodes - 1)) % scenario.nodes;
    }
    return scenario;
  };
  run_seeds(seeds, draw, [&lost](const Stats& stats) {
    EXPECT_EQ(stats.jobs_failed, 0u);
    EXPECT_EQ(stats.shrunk, 0u);
    lost += stats.lanes_lost;
  });
  EXPECT_GT(lost, seeds);
}

// Another table is only a pause, whatever is under way and however slow a node is: none is left out
// for its sake, no op fails or shrinks. Half of the runs have a node that does nothing for a while.
TEST(Simulation, AnotherTableIsOnlyAPause) {
  uint64_t retuned = 0;
  const uint64_t seeds = kSanitized ? 30 : 400;
  run_seeds(seeds, draw_retuned, [&retuned](const Stats& stats) {
    EXPECT_EQ(stats.jobs_failed, 0u);
    EXPECT_EQ(stats.shrunk, 0u);
    retuned += stats.retuned;
  });
  EXPECT_GT(retuned, seeds * 2);
}

// Ops of which two ranks think differently fail, also while views change; others go on.
TEST(Simulation, RanksThatDifferInEveryStep) {
  uint64_t mismatches = 0;
  const uint64_t seeds = kSanitized ? 30 : 400;
  run_seeds(seeds, draw_mismatched,
            [&mismatches](const Stats& stats) { mismatches += stats.mismatches; });
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
