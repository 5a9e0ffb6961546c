#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

// Where the control thread hangs up the latest snapshot, and whoever serves it takes a look. The
// lock is held for the swap of a pointer: nobody waits for somebody who writes or reads a page.
class Board {
 public:
  void show(std::shared_ptr<const Snapshot> snapshot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    latest_.swap(snapshot);
  }
  // Nothing before the first one.
  std::shared_ptr<const Snapshot> look() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> latest_;
};

}  // namespace gradring::daemon::metrics
