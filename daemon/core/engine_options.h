#pragma once

#include <cstdint>

#include "daemon/core/eager.h"
#include "daemon/core/plan.h"
#include "daemon/core/ready_tree.h"
#include "daemon/core/time.h"

namespace gradring::core {

struct EngineOptions {
  PlanOptions plan;
  // Receive slots of the lane, at least two: a slice may be forwarded with one free slot at the
  // successor, a new one is started only with two (rule D2). More than two keep the wire busy while
  // slices are summed.
  uint32_t slots = 16;
  // Buffers in which slices that start here are summed before they leave.
  uint32_t start_buffers = 4;
  // An op completes only when every member is known to have all of its slices (rule D7).
  bool stable_completion = false;
  // The results of an op are compared with one another, on this node and with the predecessor's.
  bool verify = false;
  // Slices that leave here carry a checksum, and their memory is kept until they are confirmed.
  bool checksum = false;
  // There is memory for units (eager_bytes_max), so that small ops may go with READY.
  bool eager = true;
  // Descriptors are small, but they are the one thing that grows with ops submitted and not
  // matched.
  uint32_t open_ops_per_rank_max = 65536;
  uint32_t names_max = 65536;
  Time op_deadline = 1800 * kSecond;
  // READY goes along a tree in views with more members. All nodes must agree, so that another
  // number is another protocol.
  uint32_t ready_tree_above = kReadyTreeAbove;
  uint32_t ready_tree_arity = ReadyTree::kArity;
  // So many ops at a time go up that tree, at most kRisingMost. Only the first member asks.
  uint32_t rising_most = kRisingMost;
};

// The most that units may ever take, as bytes; 0 where no op goes directly.
uint64_t eager_bytes_max(const PlanOptions& options);

}  // namespace gradring::core
