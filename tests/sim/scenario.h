#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/time.h"
#include "proto/types.h"

namespace gradring::sim {

using core::Time;

struct OpSpec {
  Signature signature;
  bool named = false;
};

// What a trainer does: `steps` times all ops in an order of its own, then wait for all of them.
struct JobSpec {
  std::string name;
  std::vector<uint32_t> node_of_rank;
  uint32_t steps = 1;
  std::vector<OpSpec> ops;
  bool restart = false;  // when a life of the job fails, each surviving trainer starts over, once
  std::optional<uint32_t> mismatch_rank;  // submits another count ...
  uint32_t mismatch_step = 0;             // ... for op 0 of this step
  std::optional<uint32_t> early_leaver;   // leaves after half of the steps
};

enum class FaultKind : uint8_t { kCrashNode, kBreakLink, kKillTrainer };
struct Fault {
  FaultKind kind = FaultKind::kKillTrainer;
  Time at = 0;
  uint32_t a = 0;  // node, or job
  uint32_t b = 0;  // other node, or rank
  bool heals = false;
};

// Deliberate damage beside the core, to show that the checks see it.
enum class Sabotage : uint8_t {
  kNone,
  kLoseReady,
  kLoseCredit,
  kCorruptPayload,
  kForgetDelivery,
  kReuseLentBuffer
};

// One run, drawn from a seed: everything in it follows from the seed alone.
struct Scenario {
  uint64_t seed = 0;
  uint32_t nodes = 2;
  core::EngineOptions engine;
  Time latency_max = 2 * core::kMillisecond;
  bool reorder_data = false;
  uint32_t duplicate_percent = 0;
  std::vector<JobSpec> jobs;
  std::vector<Fault> faults;
  Sabotage sabotage = Sabotage::kNone;
};

// `nodes` fixes the number of nodes; 0 draws 1 to 64, small ones more often.
Scenario draw_scenario(uint64_t seed, uint32_t nodes);

}  // namespace gradring::sim
