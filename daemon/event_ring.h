#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradring::daemon {

// Something that happened on this node.
struct NodeEvent {
  uint64_t number = 0;  // from 1 on
  int64_t at = 0;       // CLOCK_MONOTONIC, ns
  int64_t wall = 0;     // ns since 1970, for people
  std::string kind;
  std::string level;
  std::string text;
  std::vector<std::pair<std::string, std::string>> about;
};

// The last events, for those who ask. Any thread.
class EventRing {
 public:
  explicit EventRing(size_t capacity) : capacity_(capacity) {}

  // Numbers it.
  void add(NodeEvent event);
  struct Part {
    std::vector<NodeEvent> events;  // oldest first
    uint64_t forgotten = 0;         // that were asked for, and are not kept any more
  };
  // Those with higher numbers.
  Part after(uint64_t number) const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<NodeEvent> events_;
  uint64_t next_ = 1;
};

}  // namespace gradring::daemon
