#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/step_times.h"
#include "daemon/core/time.h"
#include "daemon/data/op_stats.h"
#include "proto/types.h"

// What the data thread counts for those who watch from afar, and hands over once a second.
namespace gradring::daemon {

// A rank of this node in one job.
struct RankFigures {
  uint32_t rank = 0;
  uint64_t submitted = 0;
  uint64_t nonfinite = 0;          // values of its inputs that were NaN or infinite
  core::Time last_submission = 0;  // 0: none yet, or it is not there any more
  core::StepTotals steps;
};

struct JobFigures {
  JobId job{};
  std::string name;
  uint64_t epoch = 0;
  uint32_t size = 0;   // ranks of its view
  uint32_t nodes = 0;  // members of it
  OpStats ops;
  uint64_t slices_damaged = 0;  // came here so
  uint64_t slices_resent = 0;
  std::vector<RankFigures> ranks;
  uint32_t ops_open = 0;
  core::Time oldest_open = 0;  // submitted then; 0: none is open
  uint64_t staging_bytes = 0;
  uint64_t feedback_bytes = 0;
};

// What this node's GPUs did for ranks here, in bytes.
struct GpuTraffic {
  uint64_t inputs = 0;   // that they summed, or copied where there was nothing to sum
  uint64_t sums = 0;     // of them, brought to the host's memory
  uint64_t results = 0;  // taken from the host's memory to the ranks'
  uint64_t sent = 0;     // straight from them to other nodes
};

// How a thread spends its time, turn by turn of its loop.
struct LoopFigures {
  core::Time busy = 0;     // of all turns in which it did something
  core::Time longest = 0;  // of those since the last of these
};

struct DataFigures {
  std::vector<JobFigures> jobs;   // live
  std::vector<JobFigures> ended;  // the last of those that are gone since the last of these
  LoopFigures loop;
};

}  // namespace gradring::daemon
