#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/fd.h"

namespace gradring::daemon {

// The one way from a thread to another. Post from any thread, take from one.
//
// The bound is kept by manners: whoever can let its own source wait asks full() first and then does
// so (the control thread stops reading trainers' messages). post() itself never refuses, since the
// end of a job or the loss of a peer cannot be put off; such items are few, some for each job and
// peer.
template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity)
      : capacity_(capacity), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void post(T item) {
    const std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(std::move(item));
    any_.store(true, std::memory_order_release);
    if (items_.size() == 1) signal();
  }
  bool full() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return items_.size() >= capacity_;
  }

  // Takes everything, oldest first, into `items`, whose old content is thrown away. Costs no lock
  // where there is nothing, so that it may be asked again and again.
  void take(std::vector<T>* items) {
    items->clear();
    if (!any_.load(std::memory_order_acquire)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (items_.empty()) return;
    items_.swap(*items);
    any_.store(false, std::memory_order_relaxed);
    unsignal();
  }

  // Readable exactly while there is something to take.
  int event_fd() const { return event_.get(); }

 private:
  // Neither can fail: the counter is 0 or 1.
  void signal() {
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(event_.get(), &one, sizeof one);
  }
  void unsignal() {
    uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(event_.get(), &count, sizeof count);
  }

  const size_t capacity_;
  const Fd event_;
  mutable std::mutex mutex_;  // guards items_ and the event's counter together
  std::vector<T> items_;
  std::atomic<bool> any_{false};  // whether there are items
};

}  // namespace gradring::daemon
