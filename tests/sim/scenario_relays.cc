// More nodes than links: words between members of jobs go by others, which come to harm as well.

#include <algorithm>

#include "daemon/core/overlay.h"
#include "tests/sim/draw.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {
namespace {

using core::Random;

// More would say more to one another than a run has time for.
constexpr uint32_t kMembersMost = 16;

// Most are in no job: so jobs go on while they end.
Fault draw_relay_fault(Random* random, const Scenario& s, uint32_t members) {
  static constexpr FaultKind kKinds[] = {
      FaultKind::kCrashNode, FaultKind::kCrashNode, FaultKind::kRestart,   FaultKind::kRestart,
      FaultKind::kPauseNode, FaultKind::kPauseNode, FaultKind::kBreakLink, FaultKind::kOneWay,
      FaultKind::kPartition, FaultKind::kStall};
  Fault fault;
  fault.kind = kKinds[random->below(10)];
  fault.at = between(random, 60, chance(random, 70) ? 500 : 3000) * core::kMillisecond;
  const bool idle = members < s.nodes && chance(random, 70);
  fault.a = between(random, idle ? members : 0, s.nodes - 1);
  fault.b = (fault.a + between(random, 1, s.nodes - 1)) % s.nodes;
  fault.mask = uint64_t{1} << fault.a | uint64_t{chance(random, 40)} << fault.b;
  const bool closes = fault.kind == FaultKind::kRestart || chance(random, 60);
  fault.detected =
      (closes ? between(random, 1, 40) : between(random, 1000, 3500)) * core::kMillisecond;
  fault.lasts = between(random, 20, chance(random, 70) ? 2500 : 8000) * core::kMillisecond;
  if (fault.kind == FaultKind::kCrashNode && chance(random, 50)) fault.lasts = 0;
  return fault;
}

}  // namespace

void draw_relays(Scenario* s) {
  Random random(s->seed ^ 0x72656c6179730000u);
  if (s->nodes > kMembersMost) return;
  if (!chance(&random, 12)) return;
  const uint32_t members = s->nodes;
  s->nodes = std::max(s->nodes + between(&random, 0, 4), between(&random, 6, 12));
  s->links_max = core::Overlay::kLinksLeast + (chance(&random, 70) ? 0 : between(&random, 0, 2));
  s->links_max = std::min(s->links_max, s->nodes - 2);
  for (uint32_t i = 0; i < s->nodes; ++i) s->places.push_back(i);
  for (size_t i = s->nodes; i > 1; --i) std::swap(s->places[i - 1], s->places[random.below(i)]);
  s->begins = (chance(&random, 80) ? between(&random, 400, 800) : 0) * core::kMillisecond;
  if (chance(&random, 50)) s->parcels_lost_percent = between(&random, 1, 15);
  const uint32_t faults = between(&random, 0, 4);
  for (uint32_t i = 0; i < faults; ++i) s->faults.push_back(draw_relay_fault(&random, *s, members));
}

}  // namespace gradring::sim
