#pragma once

#include <cstdint>
#include <optional>

#include "daemon/core/time.h"

namespace gradring::core {

// That a rank has begun, or ceased, to keep others waiting.
struct LateChange {
  uint32_t rank = 0;
  bool late = false;
  uint32_t times = 0;  // it came late, in the last `of` steps
  uint32_t of = 0;
  Time median = 0;  // by how much, in those
};

// Whether a rank keeps others waiting for good: in a third of its last 100 steps, of which there
// are 20 at least. It has ceased to when that was so in less than a tenth. Who wavers is told of
// once in ten seconds. Pure; one thread.
class LateWatch {
 public:
  static constexpr uint32_t kWindow = 100;  // the steps to count, at most

  // Others had to wait for the rank in so many of its last steps: whether late() is another now,
  // which is to be told.
  bool turns(uint32_t times, uint32_t of, Time now);
  bool late() const { return late_; }

 private:
  bool late_ = false;
  std::optional<Time> told_at_;
};

}  // namespace gradring::core
