#pragma once

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

// By a member's distance from where the slice starts. Of a thousand members they are a thousand
// lists, so that all plans share them.
SharedSteps steps_for(Course course, uint32_t members);

}  // namespace gradring::core
