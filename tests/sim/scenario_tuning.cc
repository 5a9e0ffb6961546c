// Tables of a run: where the tuner of a real daemon would measure, these are drawn.

#include "daemon/core/random.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {
namespace {

using core::Choice;
using core::Random;
using core::Tuning;

Choice draw_choice(Random* random) {
  static constexpr Choice::Way kWays[] = {Choice::Way::kDefault, Choice::Way::kRing,
                                          Choice::Way::kWhole, Choice::Way::kParts};
  Choice choice;
  choice.way = kWays[random->below(4)];
  if (choice.way == Choice::Way::kRing && random->below(4) > 0) {
    choice.slice_bytes = 64u << random->below(4);
  }
  return choice;
}

Tuning draw_tuning(Random* random) {
  constexpr uint32_t kClasses = 5;  // that ops of these sizes fall into
  Tuning tuning;
  for (uint32_t size_class = 0; size_class < kClasses; ++size_class) {
    if (random->below(4) == 0) continue;
    core::TunedClass entry{size_class, draw_choice(random), {}};
    if (random->below(2) == 0) entry.tried = draw_choice(random);
    tuning.set(entry);
  }
  return tuning;
}

}  // namespace

void draw_tunings(Scenario* s, bool often) {
  Random random(s->seed ^ 0x74756e696e670000u);
  if (!often && random.below(100) < 50) return;
  if (random.below(2) == 0) s->first_tuning = draw_tuning(&random);
  const uint64_t changes = 1 + random.below(often ? 6 : 3);
  for (uint64_t i = 0; i < changes; ++i) {
    Retune retune;
    retune.at = static_cast<Time>(62 + random.below(often ? 200 : 400)) * core::kMillisecond;
    retune.node = static_cast<uint32_t>(random.below(s->nodes));
    retune.tuning = draw_tuning(&random);
    s->retunes.push_back(retune);
  }
}

Scenario draw_retuned(uint64_t seed) {
  Scenario scenario = draw_scenario(seed, 0);
  for (JobSpec& job : scenario.jobs) {
    job.mismatch_rank.reset();
    job.early_leavers.clear();
  }
  scenario.retunes.clear();
  draw_tunings(&scenario, true);
  if (seed % 2 == 0) scenario.faults.clear();
  for (Fault& fault : scenario.faults) {
    fault.kind = FaultKind::kPauseNode;
    fault.a %= scenario.nodes;
    fault.detected = 1'000'000 * core::kSecond;
    fault.lasts = 500 * core::kMillisecond + fault.lasts % (2 * core::kSecond);
  }
  return scenario;
}

}  // namespace gradring::sim
