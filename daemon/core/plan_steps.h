#pragma once

#include <array>
#include <cstdint>

#include "daemon/core/plan.h"

namespace gradring::core {

// What members do with slices of one kind, and of how many members there are it depends alone.
enum class Course : uint8_t {
  kSum,
  kSumTo,
  kSpread,
  kCarry,    // members on the way
  kCarried,  // the member at its end
  kHand,     // of a final value that one member holds
};

// Of a thousand members they are a thousand lists, so that all plans of an engine share them.
class SharedStepLists {
 public:
  // By a member's distance from where the slice starts.
  SharedSteps of(Course course, uint32_t members);

 private:
  uint32_t members_ = 0;
  std::array<SharedSteps, 6> known_;  // by course, for that many
};

}  // namespace gradring::core
