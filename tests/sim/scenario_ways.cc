// What befalls the ways between nodes, and how long engines take for their reports. Each from a
// generator of its own, so that a seed's other troubles do not depend on it.

#include "tests/sim/draw.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {
namespace {

using core::Random;

// Of the way from one node to another.
Fault draw_link_fault(Random* random, const Scenario& s, FaultKind kind) {
  Fault fault;
  fault.kind = kind;
  fault.at = static_cast<Time>(between(random, 60, 400)) * core::kMillisecond;
  fault.a = static_cast<uint32_t>(random->below(s.nodes));
  fault.b = (fault.a + 1 + static_cast<uint32_t>(random->below(s.nodes - 1))) % s.nodes;
  return fault;
}

}  // namespace

void draw_damage(Scenario* s) {
  Random random(s->seed ^ 0x64616d6167650000u);
  s->engine.checksum = chance(&random, 50);
  s->engine.verify = Random(s->seed ^ 0x7665726966790000u).below(10) < 3;
  if (!s->engine.checksum || s->nodes < 2 || chance(&random, 30)) return;
  const uint32_t links = between(&random, 1, 3);
  for (uint32_t i = 0; i < links; ++i) {
    Fault fault = draw_link_fault(&random, *s, FaultKind::kDamage);
    fault.percent = chance(&random, 60) ? between(&random, 2, 30) : between(&random, 50, 100);
    fault.lasts = static_cast<Time>(between(&random, 5, 200)) * core::kMillisecond;
    s->faults.push_back(fault);
  }
}

void draw_lanes(Scenario* s) {
  Random random(s->seed ^ 0x6c616e6573000000u);
  if (s->nodes < 2 || chance(&random, 60)) return;
  const uint32_t losses = between(&random, 1, 3);
  for (uint32_t i = 0; i < losses; ++i) {
    Fault fault = draw_link_fault(&random, *s, FaultKind::kLoseLane);
    fault.mask = random.next();
    fault.detected = chance(&random, 70) ? between(&random, 1, 40) * core::kMillisecond
                                         : between(&random, 1000, 3500) * core::kMillisecond;
    fault.lasts = chance(&random, 60) ? between(&random, 1, 6000) * core::kMillisecond : 0;
    s->faults.push_back(fault);
  }
}

void draw_stops(Scenario* s) {
  Random random(s->seed ^ 0x73746f7073000000u);
  if (s->nodes < 2 || chance(&random, 75)) return;
  const uint32_t stops = between(&random, 1, 2);
  for (uint32_t i = 0; i < stops; ++i) {
    Fault fault = draw_link_fault(&random, *s, FaultKind::kStop);
    fault.detected = between(&random, 1, 40) * core::kMillisecond;  // its connections close
    fault.lasts = chance(&random, 70) ? between(&random, 1, 6000) * core::kMillisecond : 0;
    s->faults.push_back(fault);
  }
}

void draw_partitions(Scenario* s) {
  Random random(s->seed ^ 0x7061727469747300u);
  if (s->nodes < 3 || chance(&random, 85)) return;
  const uint32_t partitions = between(&random, 2, 6);
  Time at = between(&random, 60, 400) * core::kMillisecond;
  for (uint32_t i = 0; i < partitions; ++i) {
    Fault fault;
    fault.kind = FaultKind::kPartition;
    fault.at = at;
    fault.mask = random.next();
    fault.detected = between(&random, 1, chance(&random, 60) ? 40 : 3500) * core::kMillisecond;
    fault.lasts = between(&random, 100, 6000) * core::kMillisecond;
    at += fault.lasts * between(&random, 60, 130) / 100;
    s->faults.push_back(fault);
  }
}

void draw_slow_reports(Scenario* s) {
  Random random(s->seed ^ 0x7265706f72740000u);
  for (Fault& fault : s->faults) {
    if (fault.kind != FaultKind::kRestart || chance(&random, 60)) continue;
    fault.kind = FaultKind::kRestartSpeaking;
    fault.words = between(&random, 0, 4 * s->nodes);
  }
  if (chance(&random, 75)) return;
  s->slow_reports_percent = between(&random, 10, 60);
  s->slow_report_max = between(&random, 5, chance(&random, 40) ? 100 : 4000) * core::kMillisecond;
  if (chance(&random, 50)) s->slow_node = static_cast<uint32_t>(random.below(s->nodes));
  if (s->faults.size() < 2 || chance(&random, 40)) return;
  // Whoever is the first to propose ends in the midst of that, before its own report is there, and
  // may be back before others take its place; with a report of its own, this time.
  s->slow_node = 0;
  s->slow_reports_percent = 50;
  s->slow_report_max = between(&random, 2000, 4000) * core::kMillisecond;
  Fault& fault = s->faults.front();
  fault = {};
  fault.kind = FaultKind::kRestartSpeaking;
  fault.at = 60 * core::kMillisecond;
  fault.words = between(&random, s->nodes, 2 * s->nodes - 2);
  fault.detected = between(&random, 1, 5) * core::kMillisecond;
  fault.lasts = between(&random, 5, 60) * core::kMillisecond;
  Fault reason = draw_link_fault(&random, *s, FaultKind::kLoseLane);
  reason.a = 0;
  reason.b = between(&random, 1, s->nodes - 1);
  reason.at = between(&random, 70, 250) * core::kMillisecond;
  reason.detected = between(&random, 1, 20) * core::kMillisecond;
  s->faults.push_back(reason);
}

}  // namespace gradring::sim
