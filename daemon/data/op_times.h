#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/core/tuner.h"
#include "daemon/core/view.h"
#include "proto/types.h"

namespace gradring::daemon {

// How long the sums of a job take on this node, from their last submission here until their end,
// for whoever looks for a better table. Costs nothing where nobody does. Data thread only.
class OpTimes {
 public:
  // `on`: this node hosts the lowest rank, and the table may change. Forgets what it knows: that
  // was measured by another table.
  void begin(const core::View& view, bool on) {
    on_ = on;
    tuning_ = view.tuning;
    open_.clear();
    times_.clear();
  }

  void submitted(const OpKey& key, const Signature& signature) {
    if (!on_ || signature.collective != Collective::kAllreduce) return;
    const auto it = find(key);
    if (it != open_.end()) {
      it->since = monotonic_now();
    } else {
      open_.push_back({key, core::size_class_of(signature.bytes()), monotonic_now()});
    }
  }

  // Once for each rank that is here: the first counts.
  void ended(const OpKey& key, bool well) {
    if (!on_) return;
    const auto it = find(key);
    if (it == open_.end()) return;
    const core::TunedClass* const tuned = tuning_.find(it->size_class);
    const bool tried = tuned != nullptr && tuned->tried && core::tries(key);
    if (well && times_.size() < kTimesMost) {
      times_.push_back({it->size_class, tried, monotonic_now() - it->since});
    }
    *it = open_.back();
    open_.pop_back();
  }

  std::vector<core::OpTime> take() { return std::exchange(times_, {}); }

 private:
  // Between two pulses; who has more is measured well enough.
  static constexpr size_t kTimesMost = 1024;

  struct Open {
    OpKey key;
    uint32_t size_class = 0;
    core::Time since = 0;
  };
  std::vector<Open>::iterator find(const OpKey& key) {
    return std::find_if(open_.begin(), open_.end(),
                        [&key](const Open& open) { return open.key == key; });
  }

  bool on_ = false;
  core::Tuning tuning_;
  std::vector<Open> open_;
  std::vector<core::OpTime> times_;
};

}  // namespace gradring::daemon
