#pragma once

#include <algorithm>
#include <deque>

#include "daemon/core/time.h"

namespace gradring::daemon::metrics {

// The largest value of the last `window`: whoever looks only every 15 seconds must not miss it.
// Holds no more values than were added in that time. One thread.
class RecentMax {
 public:
  explicit RecentMax(core::Time window) : window_(window) {}

  core::Time add(core::Time value, core::Time now) {
    while (!values_.empty() && values_.front().at + window_ <= now) values_.pop_front();
    // What came before and is not larger will never be the answer again.
    while (!values_.empty() && values_.back().value <= value) values_.pop_back();
    values_.push_back({now, value});
    return values_.front().value;
  }

 private:
  struct Value {
    core::Time at = 0;
    core::Time value = 0;
  };
  const core::Time window_;
  std::deque<Value> values_;  // falling
};

}  // namespace gradring::daemon::metrics
