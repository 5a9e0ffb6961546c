#pragma once

#include "proto/ring.h"

namespace gradring::daemon {

// An allreduce sum of 16 float32, in place at the start of the segment.
inline RingSubmission ring_allreduce(uint64_t segment, uint64_t ticket) {
  RingSubmission entry;
  entry.ticket = ticket;
  entry.key = {0, ticket};
  entry.collective = static_cast<uint8_t>(Collective::kAllreduce);
  entry.dtype = static_cast<uint8_t>(Dtype::kFloat32);
  entry.op = static_cast<uint8_t>(ReduceOp::kSum);
  entry.count = 16;
  entry.input_segment = entry.output_segment = segment;
  return entry;
}

}  // namespace gradring::daemon
