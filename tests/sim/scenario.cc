#include "tests/sim/scenario.h"

#include <algorithm>

#include "daemon/core/random.h"

namespace gradring::sim {
namespace {

using core::Random;

uint32_t between(Random* random, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(random->below(high - low + 1));
}
bool chance(Random* random, uint32_t percent) { return random->below(100) < percent; }

uint32_t draw_nodes(Random* random) {
  const uint64_t kind = random->below(100);
  if (kind < 70) return between(random, 1, 6);
  if (kind < 95) return between(random, 7, 16);
  return between(random, 17, 64);
}

OpSpec draw_op(Random* random, uint32_t size, bool small) {
  static constexpr Dtype kTypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBfloat16,
                                     Dtype::kInt32};
  OpSpec op;
  Signature& s = op.signature;
  op.named = chance(random, 40);
  const uint64_t kind = random->below(10);
  if (kind == 0) return op;  // barrier
  s.dtype = kTypes[random->below(4)];
  s.count = chance(random, 5) ? 0 : 1 + random->below(small ? 300 : 3000);
  if (kind <= 2) {
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

JobSpec draw_job(Random* random, uint32_t index, uint32_t nodes) {
  JobSpec job;
  job.name = "job" + std::to_string(index);
  const uint32_t per_node = nodes > 16 ? between(random, 1, 8) : between(random, 1, 4);
  std::vector<uint32_t> hosts;
  for (uint32_t n = 0; n < nodes; ++n) {
    if (nodes <= 2 || chance(random, 80)) hosts.push_back(n);
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
  const bool large = size > 48;
  job.steps = between(random, 1, large ? 2 : 5);
  const uint32_t ops = between(random, 1, large ? 3 : 6);
  for (uint32_t i = 0; i < ops; ++i) job.ops.push_back(draw_op(random, size, large));
  return job;
}

void draw_trouble(Random* random, Scenario* s) {
  for (JobSpec& job : s->jobs) {
    const auto size = static_cast<uint32_t>(job.node_of_rank.size());
    if (chance(random, 15) && job.ops[0].signature.collective != Collective::kBarrier && size > 1) {
      job.mismatch_rank = static_cast<uint32_t>(random->below(size));
      job.mismatch_step = static_cast<uint32_t>(random->below(job.steps));
    }
    if (chance(random, 10) && job.steps > 1 && size > 1) {
      job.early_leaver = static_cast<uint32_t>(random->below(size));
    }
    job.restart = chance(random, 50);
  }
  if (chance(random, 40)) return;
  const uint32_t faults = between(random, 1, 3);
  for (uint32_t i = 0; i < faults; ++i) {
    Fault fault;
    fault.at = static_cast<Time>(random->below(300)) * core::kMillisecond;
    fault.kind = static_cast<FaultKind>(random->below(3));
    fault.a = static_cast<uint32_t>(random->below(s->nodes));
    fault.b = static_cast<uint32_t>(random->below(s->nodes));
    fault.heals = chance(random, 60);
    if (fault.kind == FaultKind::kBreakLink && fault.a == fault.b)
      fault.kind = FaultKind::kKillTrainer;
    if (fault.kind == FaultKind::kKillTrainer) {
      fault.a = static_cast<uint32_t>(random->below(s->jobs.size()));
      fault.b = static_cast<uint32_t>(random->below(s->jobs[fault.a].node_of_rank.size()));
    }
    s->faults.push_back(fault);
  }
}

}  // namespace

Scenario draw_scenario(uint64_t seed, uint32_t nodes) {
  Random random(seed ^ 0x6772616472696e67u);
  Scenario s;
  s.seed = seed;
  s.nodes = nodes != 0 ? nodes : draw_nodes(&random);
  s.engine.slots = between(&random, 2, 6);
  s.engine.start_buffers = between(&random, 1, 4);
  s.engine.plan.slice_bytes_max = 64u << random.below(5);
  s.engine.plan.slice_bytes_min = 64;
  s.latency_max = static_cast<Time>(1 + random.below(5)) * core::kMillisecond;
  s.reorder_data = chance(&random, 50);
  s.duplicate_percent = chance(&random, 50) ? between(&random, 1, 20) : 0;
  const uint32_t jobs = s.nodes > 16 ? 1 : between(&random, 1, 3);
  for (uint32_t i = 0; i < jobs; ++i) s.jobs.push_back(draw_job(&random, i, s.nodes));
  draw_trouble(&random, &s);
  return s;
}

}  // namespace gradring::sim
