#pragma once

namespace gradring::keep {

// With which gradringd ends where our systemd unit and the keeper go by it. Of all others but 0 it
// is started again after a moment.
inline constexpr int kWrongConfiguration = 2;  // it is not: that would not mend it
inline constexpr int kMadeWay = 75;  // at once, and it is no failure: jobs go on in the next one

}  // namespace gradring::keep
