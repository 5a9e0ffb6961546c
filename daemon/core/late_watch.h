#pragma once

#include <array>
#include <bitset>
#include <cstddef>
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
  // A step ended: others had to wait for this rank, or not, and it was so late.
  void step(bool waited_for, Time late);
  // What is to be told; its rank is the caller's to fill in.
  std::optional<LateChange> changed(Time now);

 private:
  static constexpr uint32_t kWindow = 100;

  uint32_t times() const { return static_cast<uint32_t>(waited_.count()); }
  Time median() const;

  std::bitset<kWindow> waited_;
  std::array<Time, kWindow> late_{};
  uint32_t next_ = 0;
  uint32_t seen_ = 0;  // at most kWindow
  bool told_late_ = false;
  std::optional<Time> told_at_;
};

}  // namespace gradring::core
