#pragma once

#include <cstdint>
#include <string>

#include "daemon/core/time.h"
#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring::daemon {

// Where a job's values first ceased to be finite on this node.
struct NonfiniteOrigin {
  // kOverflow: all inputs were finite, and what came in; the sum outgrew its type.
  enum class Kind : uint8_t { kNan, kInfinity, kOverflow };
  Kind kind = Kind::kNan;
  uint32_t rank = kNoRank;  // whose input it was; none of an overflow
  OpKey key;
  std::string name;      // of the op, for people
  uint64_t element = 0;  // of the op
  core::Time at = 0;
  int64_t pid = 0;  // of the rank; 0: not known. The control thread fills it in
};

}  // namespace gradring::daemon
