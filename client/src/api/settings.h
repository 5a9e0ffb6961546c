#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"

namespace gradring::client {

// Of a group or a pair: its ranks in the job that it is made from, as that one is since it grew
// last.
struct Within {
  std::string incarnation;
  uint64_t grown = 0;
  std::vector<uint32_t> ranks;

  // All of them come to the same by themselves.
  std::string token() const;
};

// gradring_options, checked and owned.
struct Settings {
  std::string runtime_dir;
  std::string job;
  std::string token;
  std::string policy;
  WireType wire = WireType::kNative;  // of ops that do not say their own
  bool learns_priorities = false;     // likewise
  bool deterministic = false;
  uint32_t rank = 0;
  uint32_t size = 0;
  int32_t local_rank = -1;  // -1: by position among the job's ranks on the node
  int64_t join_timeout_ms = 0;
  std::optional<Within> within;
  uint64_t gpu_stage_bytes = 0;  // of GPUs' memory, of this process, for GpuBlocks
  bool rings = true;             // submissions go through shared memory where the daemon can

  // What it means in full, the daemon reads out of it.
  bool elastic() const { return policy.rfind("elastic", 0) == 0; }
};

// What is missing is an error that names the variables to set.
tl::expected<Settings, Status> settings_from(const gradring_options* options);

}  // namespace gradring::client
