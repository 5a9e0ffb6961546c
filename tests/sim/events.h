#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::sim {

using core::Time;

// Virtual time: what is due first runs first, and what is due at once runs in the order it was
// scheduled.
class Events {
 public:
  Time now() const { return now_; }
  bool empty() const { return queue_.empty(); }
  uint64_t executed() const { return executed_; }

  void at(Time when, std::function<void()> what) {
    queue_.push({when < now_ ? now_ : when, ++sequence_, std::move(what)});
  }
  void in(Time delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  void step() {
    // The queue's top is const; the entry leaves it at once, so its closure may be taken.
    Entry entry = std::move(const_cast<Entry&>(queue_.top()));
    queue_.pop();
    now_ = entry.when;
    ++executed_;
    entry.what();
  }

 private:
  struct Entry {
    Time when;
    uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  Time now_ = 1;
  uint64_t sequence_ = 0;
  uint64_t executed_ = 0;
  std::priority_queue<Entry> queue_;
};

// Deliveries that keep their order although each takes a time of its own.
class Fifo {
 public:
  void send(Events* events, Time delay, std::function<void()> what) {
    last_ = std::max(last_, events->now() + delay);
    events->at(last_, std::move(what));
  }

 private:
  Time last_ = 0;
};

}  // namespace gradring::sim
