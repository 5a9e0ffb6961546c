// Several jobs on each node, whose daemons restart: what happens to one job is not to disturb
// another.

#include <algorithm>

#include "tests/sim/draw.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {

using core::Random;
namespace {

// Trainers die and come back until the job is over, and even then: some find nothing to do.
void draw_late_guests(Random* random, uint32_t index, Scenario* s) {
  JobSpec& job = s->jobs[index];
  if (!job.join_points) return;
  const auto size = static_cast<uint32_t>(job.node_of_rank.size());
  job.lives += 3;
  job.joins_last = job.own_steps.empty() && chance(random, 70);
  const uint32_t deaths = job.joins_last ? between(random, 0, 4) : 0;
  for (uint32_t i = 0; i < deaths; ++i) {
    Fault fault;
    fault.at = between(random, 60, 600) * core::kMillisecond;
    fault.a = index;
    fault.b = static_cast<uint32_t>(random->below(size));
    s->faults.push_back(fault);
  }
  if (chance(random, 50)) return;
  for (uint32_t rank = 0; rank < size; ++rank) {
    if (chance(random, 40)) job.visitors.insert(rank);
  }
}

// What a daemon says to one comes after what it says to another later.
void draw_late_words(Random* random, Scenario* s) {
  if (chance(random, 30)) return;
  s->late_percent = between(random, 1, 40);
  s->late_max = between(random, 20, chance(random, 70) ? 200 : 1500) * core::kMillisecond;
}

}  // namespace

Scenario draw_crowded(uint64_t seed) {
  Random late(seed ^ 0x6c61746500000000u);
  Random random(seed ^ 0x63726f7764000000u);
  Scenario s = roughen(draw(seed, between(&random, 2, 5), true));
  for (JobSpec& job : s.jobs) {
    if (chance(&random, 40)) job.steps = 1 + job.steps / between(&random, 2, 8);
    for (uint32_t& steps : job.own_steps) steps = std::min(steps, job.steps);
    job.leave_after = std::min(job.leave_after, job.steps);
  }
  for (Fault& fault : s.faults) {
    const bool taken =
        fault.kind == FaultKind::kDamage || fault.kind == FaultKind::kRestartSpeaking;
    if (taken || chance(&random, 40)) continue;
    if (chance(&random, 30)) {
      fault.kind = FaultKind::kStall;
      fault.a = static_cast<uint32_t>(random.below(s.nodes));
      fault.b = (fault.a + between(&random, 1, s.nodes - 1)) % s.nodes;
      fault.lasts = between(&random, 20, chance(&random, 50) ? 300 : 2500) * core::kMillisecond;
      continue;
    }
    fault.kind = FaultKind::kRestart;
    fault.a = static_cast<uint32_t>(random.below(s.nodes));
    fault.detected = between(&random, 1, 40) * core::kMillisecond;
    fault.lasts = chance(&random, 85) ? between(&random, 20, 1000) * core::kMillisecond
                                      : between(&random, 8, 14) * core::kSecond;
  }
  // Another fault often mends what a late word has broken.
  if (chance(&late, 15)) s.faults.clear();
  for (uint32_t i = 0; i < s.jobs.size(); ++i) draw_late_guests(&late, i, &s);
  draw_late_words(&late, &s);
  return s;
}

}  // namespace gradring::sim
