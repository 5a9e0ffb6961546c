// Several jobs on each node, whose daemons restart: what happens to one job is not to disturb
// another.

#include <algorithm>

#include "tests/sim/draw.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {

using core::Random;

Scenario draw_crowded(uint64_t seed) {
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
  return s;
}

}  // namespace gradring::sim
