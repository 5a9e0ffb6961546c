#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"
#include "tools/ctl/flight/file.h"

namespace gradring::tools {

// What one daemon wrote down, and by how much its clock is behind the one that the timeline has.
struct NodeFlight {
  std::string node;
  FlightLife life;
  int64_t behind = 0;  // ns: added to its times
  int64_t since = 0;   // by its own clock: what is older is left out
};

// A rank's part in an op. Times in ns of the timeline's clock; 0: not seen.
struct OpSpan {
  std::string job;
  std::string node;
  uint32_t rank = 0;
  std::string name;        // "op 17", "conv1 use 3"
  std::string collective;  // "allreduce"
  uint64_t bytes = 0;
  int64_t submitted = 0;
  int64_t moved = 0;  // every rank was ready
  int64_t ended = 0;
  bool failed = false;
  std::string end;    // "OK", or why it failed
  uint64_t flow = 0;  // the same for all that belongs to this op, on all nodes
};

// A slice's stay at a node: from where it came in, or began, until it went on or was done with.
struct SliceSpan {
  std::string job;
  std::string node;
  uint32_t lane = 0;
  std::string op;
  uint32_t slice = 0;
  std::string phase;  // "partial", "final", "direct", "rising"; "start" where it begins
  uint64_t hop = 0;
  int64_t from = 0;
  int64_t to = 0;
  uint64_t flow = 0;
};

// What the GPUs of a node do for an op: bring inputs to the host, add what stays on them, or spread
// a result.
struct GpuSpan {
  std::string job;
  std::string node;
  std::string op;
  std::string task;  // "bring", "stay", "spread"
  uint64_t bytes = 0;
  int64_t from = 0;
  int64_t to = 0;  // 0: not seen
  bool failed = false;
  uint64_t flow = 0;
};

// Something that happened to a node or a job at one moment.
struct Moment {
  std::string job;  // empty: to the node
  std::string node;
  int64_t at = 0;
  std::string text;
  bool bad = false;
};

struct Timeline {
  std::vector<OpSpan> ops;  // each list by time
  std::vector<SliceSpan> slices;
  std::vector<GpuSpan> gpus;
  std::vector<Moment> moments;
  uint64_t lost = 0;  // events that were overwritten before they were read
};

// Whether any of them wrote down anything of the job that people call so; if not, which jobs there
// are.
Status fault_of_job(const std::vector<NodeFlight>& nodes, const std::string& job);

// Puts together what all nodes wrote down. `job`: a name or digits of an
// incarnation; empty: all. An op whose beginning or end was not seen lacks that time, and is left
// out if it has neither.
Timeline timeline_of(const std::vector<NodeFlight>& nodes, const std::string& job);

}  // namespace gradring::tools
