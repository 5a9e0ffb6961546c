#include "tests/sim/scenario.h"

#include <algorithm>

#include "daemon/core/random.h"
#include "proto/reduction.h"
#include "tests/sim/draw.h"

namespace gradring::sim {
namespace {

using core::Random;

uint32_t draw_nodes(Random* random) {
  const uint64_t kind = random->below(1000);
  if (kind < 600) return 3;
  if (kind < 850) return 4;
  if (kind < 985) return between(random, 5, 8);
  if (kind < 998) return between(random, 9, 16);
  return between(random, 17, 64);
}

OpSpec draw_op(Random* random, uint32_t size, uint32_t elements) {
  static constexpr Dtype kTypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBfloat16,
                                     Dtype::kInt32};
  OpSpec op;
  Signature& s = op.signature;
  op.named = chance(random, 40);
  const uint64_t kind = random->below(10);
  if (kind == 0) return op;  // barrier
  s.dtype = kTypes[random->below(4)];
  s.count = chance(random, 5) ? 0 : 1 + random->below(elements);
  if (kind == 1) {
    s.collective = Collective::kBroadcast;
    s.root = static_cast<uint32_t>(random->below(size));
    return op;
  }
  s.collective = Collective::kAllreduce;
  static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                      ReduceOp::kMax, ReduceOp::kProduct};
  s.op = kOps[random->below(5)];
  if (s.op == ReduceOp::kAverage && is_integer(s.dtype)) s.op = ReduceOp::kSum;
  return op;
}

// `elsewhere`: jobs after the first are on some of the nodes even where these are few.
JobSpec draw_job(Random* random, uint32_t index, uint32_t nodes, bool elsewhere) {
  JobSpec job;
  job.name = "job" + std::to_string(index);
  const uint32_t per_node = nodes > 16 ? between(random, 1, 2) : chance(random, 60) ? 1 : 3;
  std::vector<uint32_t> hosts;
  for (uint32_t n = 0; n < nodes; ++n) {
    if ((nodes <= 4 && !elsewhere) || index == 0 || chance(random, 80)) hosts.push_back(n);
  }
  if (hosts.empty()) hosts.push_back(0);
  for (const uint32_t host : hosts) {
    const uint32_t ranks = between(random, 1, per_node);
    for (uint32_t r = 0; r < ranks; ++r) job.node_of_rank.push_back(host);
  }
  if (chance(random, 30)) {  // ranks scattered over the nodes instead of block by block
    for (size_t i = job.node_of_rank.size(); i > 1; --i) {
      std::swap(job.node_of_rank[i - 1], job.node_of_rank[random->below(i)]);
    }
  }
  const auto size = static_cast<uint32_t>(job.node_of_rank.size());
  const bool large = size > 24;
  const uint32_t elements = large ? 60 : chance(random, 90) ? 150 : 1500;
  const uint32_t ops = between(random, 3, 6);
  job.steps = (20 + ops - 1) / ops;
  for (uint32_t i = 0; i < ops; ++i) job.ops.push_back(draw_op(random, size, elements));
  if (chance(random,
             40)) {  // a chain that every trainer keeps to, in an order that is not the keys'
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < ops; ++i) order.push_back(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random->below(i)]);
    for (uint32_t i = 1; i < ops; ++i) {
      if (chance(random, 50)) job.ops[order[i]].after = order[i - 1];
    }
  }
  if (chance(random, 60)) {
    job.policy = "elastic min=" + std::to_string(chance(random, 80) ? 1 : between(random, 1, size));
    job.join_points = chance(random, 50);
  }
  return job;
}

void draw_trouble(Random* random, JobSpec* job) {
  const auto size = static_cast<uint32_t>(job->node_of_rank.size());
  if (chance(random, 15) && job->ops[0].signature.collective != Collective::kBarrier && size > 1) {
    job->mismatch_rank = static_cast<uint32_t>(random->below(size));
    job->mismatch_step = static_cast<uint32_t>(random->below(job->steps));
    job->mismatch_lasts = chance(random, 50);
  }
  if (chance(random, 10) && job->steps > 1 && size > 1) {
    job->early_leavers = {static_cast<uint32_t>(random->below(size))};
    job->leave_after = job->steps / 2;
  }
  job->lives = chance(random, 50) ? 2 : 1;
}

Fault draw_fault(Random* random, const Scenario& s, Time window) {
  Fault fault;
  fault.at =
      60 * core::kMillisecond + static_cast<Time>(random->below(static_cast<uint64_t>(window)));
  const uint64_t kind = random->below(100);
  fault.kind = kind < 24   ? FaultKind::kSuspect
               : kind < 36 ? FaultKind::kRestart
               : kind < 47 ? FaultKind::kCrashNode
               : kind < 55 ? FaultKind::kDieSpeaking
               : kind < 65 ? FaultKind::kBreakLink
               : kind < 73 ? FaultKind::kOneWay
               : kind < 80 ? FaultKind::kPartition
               : kind < 87 ? FaultKind::kPauseNode
                           : FaultKind::kKillTrainer;
  fault.a = static_cast<uint32_t>(random->below(s.nodes));
  fault.b = (fault.a + 1 + static_cast<uint32_t>(random->below(s.nodes - 1))) % s.nodes;
  fault.mask = random->next();
  fault.words = between(random, 0, 5 * s.nodes);
  fault.detected = chance(random, 70) ? between(random, 1, 40) * core::kMillisecond
                                      : between(random, 1000, 3500) * core::kMillisecond;
  fault.lasts = chance(random, 60) ? between(random, 1, 6000) * core::kMillisecond : 0;
  fault.remembers = chance(random, 50) &&
                    (fault.kind == FaultKind::kCrashNode || fault.kind == FaultKind::kDieSpeaking);
  if (fault.kind == FaultKind::kRestart) {
    fault.detected = between(random, 1, 40) * core::kMillisecond;  // its connections close
    fault.lasts = chance(random, 90) ? between(random, 20, 3000) * core::kMillisecond
                                     : between(random, 8, 14) * core::kSecond;
  }
  if (fault.kind == FaultKind::kKillTrainer) {
    fault.a = static_cast<uint32_t>(random->below(s.jobs.size()));
    fault.b = static_cast<uint32_t>(random->below(s.jobs[fault.a].node_of_rank.size()));
  }
  return fault;
}

// From a generator of their own, so that a seed's other troubles do not depend on these: some of
// the sums become ops of other kinds. Their blocks are small where there are many ranks, and then
// there is none with a block for each pair of them: a run has no end otherwise.
void draw_collectives(Scenario* s) {
  constexpr uint32_t kFew = 24;
  static constexpr Collective kOthers[] = {Collective::kAllgather, Collective::kReduceScatter,
                                           Collective::kReduce,    Collective::kGather,
                                           Collective::kScatter,   Collective::kAlltoall};
  Random random(s->seed ^ 0x636f6c6c65637400u);
  for (JobSpec& job : s->jobs) {
    const auto size = static_cast<uint32_t>(job.node_of_rank.size());
    for (OpSpec& op : job.ops) {
      Signature& signature = op.signature;
      if (signature.collective != Collective::kAllreduce || chance(&random, 60)) continue;
      signature.collective = kOthers[random.below(size > kFew ? 5 : 6)];
      if (!reduces(signature.collective)) signature.op = ReduceOp::kNone;
      if (has_root(signature.collective))
        signature.root = static_cast<uint32_t>(random.below(size));
      if (in_blocks(signature.collective) && signature.count > 0) {
        signature.count = 1 + signature.count * 2 / size;
      }
    }
  }
}

// Likewise: small ops go directly, of whatever sizes.
void draw_direct(Scenario* s) {
  Random random(s->seed ^ 0x6469726563740000u);
  if (chance(&random, 40)) return;
  core::PlanOptions& plan = s->engine.plan;
  plan.direct_members_max = between(&random, 3, 8);
  plan.direct_whole_max = 64u << random.below(4);
  plan.direct_part_max = 64u << random.below(4);
  plan.parts_members_max = plan.direct_members_max - (random.below(4) == 0 ? 1 : 0);
}

// Likewise: READY goes along a tree, often a deep one, and so do small sums.
void draw_tree(Scenario* s) {
  Random random(s->seed ^ 0x7472656500000000u);
  if (chance(&random, 50)) return;
  s->engine.ready_tree_above = between(&random, 1, 4);
  s->engine.ready_tree_arity = chance(&random, 60) ? between(&random, 1, 3) : 8;
  if (chance(&random, 30)) return;
  s->engine.plan.tree_max = 64u << random.below(5);
  s->engine.rising_most = between(&random, 1, 4);
}

// Likewise: some sums of float32 travel otherwise than they are.
void draw_wire(Scenario* s) {
  Random random(s->seed ^ 0x7769726500000000u);
  if (chance(&random, 50)) return;
  s->engine.plan.packed_bytes_min = 16u << random.below(6);
  for (JobSpec& job : s->jobs) {
    for (OpSpec& op : job.ops) {
      const bool may = may_pack(op.signature.collective, op.signature.dtype);
      if (!may || chance(&random, 30)) continue;
      op.signature.wire = chance(&random, 50) ? WireType::kBfloat16 : WireType::kInt8;
    }
  }
}

// Likewise: some sums of floats are scaled.
void draw_scale(Scenario* s) {
  static constexpr double kFactors[] = {0.5, -2, 0.1};
  Random random(s->seed ^ 0x7363616c65000000u);
  if (chance(&random, 60)) return;
  for (JobSpec& job : s->jobs) {
    for (OpSpec& op : job.ops) {
      if (!can_scale(op.signature.collective, op.signature.dtype, 0.5).ok()) continue;
      op.prescaled = chance(&random, 50);
      if (chance(&random, 50)) op.signature.postscale = kFactors[random.below(3)];
    }
  }
}

// Likewise: some blocks are not as long as others.
void draw_uneven(Scenario* s) {
  Random random(s->seed ^ 0x756e6576656e0000u);
  if (chance(&random, 60)) return;
  for (JobSpec& job : s->jobs) {
    for (OpSpec& op : job.ops) {
      if (!in_blocks(op.signature.collective) || op.signature.count == 0) continue;
      op.uneven = chance(&random, 60);
    }
  }
}

// Likewise: some ops are more urgent than others.
void draw_priorities(Scenario* s) {
  Random random(s->seed ^ 0x7072696f72000000u);
  if (chance(&random, 60)) return;
  for (JobSpec& job : s->jobs) {
    for (OpSpec& op : job.ops) op.priority = static_cast<int32_t>(random.below(5)) - 2;
  }
}

// Likewise: some ranks have less data than others.
void draw_uneven_data(Scenario* s) {
  Random random(s->seed ^ 0x6a6f696e65640000u);
  if (chance(&random, 75)) return;
  for (JobSpec& job : s->jobs) {
    if (job.join_points || !job.early_leavers.empty()) continue;
    for (size_t rank = 0; rank < job.node_of_rank.size(); ++rank) {
      const bool all = chance(&random, 50);
      job.own_steps.push_back(all ? job.steps : between(&random, 0, job.steps));
    }
  }
}

// Likewise: some inputs are still on their way when their ops are submitted.
void draw_coming(Scenario* s) {
  Random random(s->seed ^ 0x636f6d696e670000u);
  if (chance(&random, 50)) return;
  for (JobSpec& job : s->jobs) {
    for (OpSpec& op : job.ops) op.comes = chance(&random, 50);
  }
}

}  // namespace

Blocks draw_blocks(const OpSpec& op, uint32_t ranks) {
  const Signature& s = op.signature;
  const bool pairs = s.collective == Collective::kAlltoall;
  Random random(s.count * 1000 + ranks);
  std::vector<uint64_t> counts(pairs ? uint64_t{ranks} * ranks : ranks);
  for (uint64_t& count : counts) count = chance(&random, 25) ? 0 : random.below(s.count + 1);
  counts[random.below(counts.size())] = s.count;
  return *(pairs ? Blocks::of_pairs(counts, ranks) : Blocks::of_ranks(counts));
}

bool Scenario::keeps_records() const {
  return std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::kRestart || fault.kind == FaultKind::kRestartSpeaking;
  });
}

bool Scenario::restarts(uint32_t node) const {
  return std::any_of(faults.begin(), faults.end(), [node](const Fault& fault) {
    return fault.a == node &&
           (fault.kind == FaultKind::kRestart || fault.kind == FaultKind::kRestartSpeaking);
  });
}

Scenario draw(uint64_t seed, uint32_t nodes, bool crowded) {
  Random random(seed ^ 0x6772616472696e67u);
  Scenario s;
  s.seed = seed;
  s.nodes = nodes != 0 ? nodes : draw_nodes(&random);
  s.engine.slots = between(&random, 2, 4);
  s.engine.start_buffers = between(&random, 1, 3);
  s.engine.plan.slice_bytes_max = 64u << random.below(4);
  s.engine.plan.slice_bytes_min = 64;
  s.engine.stable_completion = chance(&random, 10);
  s.kept_max = chance(&random, 30) ? between(&random, 0, 4) : 1000;
  s.latency_max = static_cast<Time>(1 + random.below(5)) * core::kMillisecond;
  s.reorder_data = chance(&random, 50);
  s.duplicate_percent = chance(&random, 30) ? between(&random, 1, 20) : 0;
  s.stale_percent = chance(&random, 30) ? between(&random, 1, 20) : 0;
  const uint32_t jobs = crowded                              ? between(&random, 2, 5)
                        : s.nodes > 8 || chance(&random, 80) ? 1
                                                             : 2;
  for (uint32_t i = 0; i < jobs; ++i) {
    s.jobs.push_back(draw_job(&random, i, s.nodes, crowded));
    draw_trouble(&random, &s.jobs.back());
  }
  draw_collectives(&s);
  draw_direct(&s);
  draw_tree(&s);
  draw_wire(&s);
  draw_scale(&s);
  draw_uneven(&s);
  draw_priorities(&s);
  draw_uneven_data(&s);
  draw_tunings(&s, false);
  if (s.nodes < 2) return s;
  const uint32_t faults = between(&random, 1, 4);
  // Often close together: a view change, and something else during it.
  const Time window = (chance(&random, 50) ? 60 : 400) * core::kMillisecond;
  const Time shift = static_cast<Time>(random.below(200)) * core::kMillisecond;
  for (uint32_t i = 0; i < faults; ++i) {
    Fault fault = draw_fault(&random, s, window);
    if (window < 100 * core::kMillisecond) fault.at += shift;
    s.faults.push_back(fault);
  }
  draw_damage(&s);
  draw_stops(&s);
  draw_lanes(&s);
  draw_coming(&s);
  draw_slow_reports(&s);
  draw_relays(&s);
  return s;
}

Scenario draw_scenario(uint64_t seed, uint32_t nodes) { return draw(seed, nodes, false); }

Scenario draw_mismatched(uint64_t seed) {
  Scenario scenario = draw_scenario(seed, 0);
  for (JobSpec& job : scenario.jobs) {
    const auto size = static_cast<uint32_t>(job.node_of_rank.size());
    if (job.ops[0].signature.collective == Collective::kBarrier || size < 2) continue;
    job.mismatch_rank = static_cast<uint32_t>(seed % size);
    job.mismatch_step = 0;
    job.mismatch_lasts = true;
  }
  return scenario;
}

Scenario roughen(Scenario s) {
  const uint64_t seed = s.seed;
  Random random(seed ^ 0x726f756768000000u);
  for (JobSpec& job : s.jobs) {
    const auto size = static_cast<uint32_t>(job.node_of_rank.size());
    job.lives = between(&random, 1, 6);
    if (chance(&random, 80)) job.policy = "elastic min=1";
    if (s.nodes <= 8) job.steps *= between(&random, 1, 3);
    for (uint32_t& steps : job.own_steps) steps = between(&random, 0, job.steps);
    if (size < 2 || !job.own_steps.empty() || chance(&random, 40)) continue;
    // All ranks of some nodes, so that these are done before others are, or ranks here and there.
    const bool whole_nodes = chance(&random, 70);
    const uint32_t leavers = between(&random, 1, size / 2);
    for (uint32_t i = 0; i < leavers; ++i) {
      const auto leaver = static_cast<uint32_t>(random.below(size));
      for (uint32_t rank = 0; rank < size; ++rank) {
        const bool same = whole_nodes && job.node_of_rank[rank] == job.node_of_rank[leaver];
        if (rank == leaver || same) job.early_leavers.insert(rank);
      }
    }
    job.leave_after = between(&random, 0, job.steps);
  }
  // In bursts: a view change, something else during it, and again when that is barely over.
  const uint32_t bursts = between(&random, 2, 6);
  Time begin = 0;
  for (uint32_t burst = 0; burst < bursts; ++burst) {
    const Time window = between(&random, 5, 300) * core::kMillisecond;
    const uint32_t faults = between(&random, 1, 4);
    for (uint32_t i = 0; i < faults; ++i) {
      s.faults.push_back(draw_fault(&random, s, window));
      s.faults.back().at += begin;
    }
    begin += window + between(&random, 0, chance(&random, 70) ? 300 : 4000) * core::kMillisecond;
  }
  draw_partitions(&s);
  return s;
}

Scenario draw_rough(uint64_t seed) { return roughen(draw_scenario(seed, 0)); }

}  // namespace gradring::sim
