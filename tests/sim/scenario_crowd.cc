// Several jobs on each node, whose daemons restart: what happens to one job is not to disturb
// another.

#include <algorithm>

#include "tests/sim/draw.h"
#include "tests/sim/scenario.h"
#include "tests/sim/trainer.h"

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

// From a generator of its own, as what happens to daemons meanwhile is the point.
void draw_going_back(Scenario* s) {
  Random random(s->seed ^ 0x676f6261636b0000u);
  if (chance(&random, 50)) return;
  for (JobSpec& job : s->jobs) {
    if (!job.join_points || chance(&random, 40)) continue;
    job.mismatch_rank.reset();
    const uint32_t times = between(&random, 1, 3);
    for (uint32_t i = 0; i < times; ++i) {
      GoBack back;
      back.rank = static_cast<uint32_t>(random.below(job.node_of_rank.size()));
      back.step = static_cast<uint32_t>(random.below(job.steps));
      back.op = static_cast<uint32_t>(random.below(job.ops.size()));
      if (chance(&random, 40)) back.op = Trainer::kJoinPoint;
      job.goes_back.push_back(back);
    }
  }
}

JobSpec draw_group(Random* random, const Scenario& s, uint32_t outer) {
  const JobSpec& of = s.jobs[outer];
  JobSpec group;
  GroupSpec within;
  within.outer = outer;
  for (uint32_t rank = 0; rank < of.node_of_rank.size(); ++rank) within.ranks.push_back(rank);
  for (size_t i = within.ranks.size(); i > 1; --i) {
    std::swap(within.ranks[i - 1], within.ranks[random->below(i)]);
  }
  within.ranks.resize(1 + random->below(within.ranks.size()));
  within.begins = between(random, 1, chance(random, 80) ? 20 : 300) * core::kMillisecond;
  if (chance(random, 30)) within.times = between(random, 2, 5);
  // How often one of the others has tried it in vain nobody knows.
  if (within.times > 1 || chance(random, 20)) {
    within.timeout = between(random, 10, 500) * core::kMillisecond;
  }
  for (const uint32_t rank : within.ranks) group.node_of_rank.push_back(of.node_of_rank[rank]);
  const auto size = static_cast<uint32_t>(within.ranks.size());
  group.name = of.name + "[" + std::to_string(s.jobs.size()) + "]";
  group.steps = between(random, 1, of.steps);
  const uint32_t ops = between(random, 1, 3);
  for (uint32_t i = 0; i < ops; ++i) {
    OpSpec op = of.ops[random->below(of.ops.size())];
    op.after.reset();
    op.signature.root %= size;
    group.ops.push_back(op);
  }
  group.within = within;
  return group;
}

// While ranks come and go, and daemons restart.
void draw_groups(Random* random, Scenario* s) {
  const auto jobs = static_cast<uint32_t>(s->jobs.size());
  for (uint32_t outer = 0; outer < jobs; ++outer) {
    if (!s->jobs[outer].goes_back.empty()) continue;  // to be made at all, or by none: by a barrier
    const uint32_t groups = chance(random, 50) ? between(random, 1, 3) : 0;
    for (uint32_t i = 0; i < groups; ++i) s->jobs.push_back(draw_group(random, *s, outer));
  }
}

// Some about as long as ranks are late for an op, daemons restart and views change.
void draw_deadlines(Scenario* s) {
  Random random(s->seed ^ 0x646561646c696e65u);
  if (chance(&random, 30)) return;
  for (JobSpec& job : s->jobs) {
    if (chance(&random, 30)) continue;
    const uint32_t most = chance(&random, 70) ? 4000 : 30000;
    job.op_deadline = between(&random, 300, most) * core::kMillisecond;
    const uint32_t dawdles = chance(&random, 80) ? between(&random, 1, 3) : 0;
    for (uint32_t i = 0; i < dawdles; ++i) {
      Dawdle dawdle;
      dawdle.rank = static_cast<uint32_t>(random.below(job.node_of_rank.size()));
      dawdle.step = static_cast<uint32_t>(random.below(job.steps));
      dawdle.op = static_cast<uint32_t>(random.below(job.ops.size()));
      dawdle.lasts = *job.op_deadline / 100 * between(&random, 20, 300);
      job.dawdles.push_back(dawdle);
    }
  }
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
  draw_going_back(&s);
  Random groups(seed ^ 0x67726f7570730000u);
  draw_groups(&groups, &s);
  draw_deadlines(&s);
  return s;
}

}  // namespace gradring::sim
