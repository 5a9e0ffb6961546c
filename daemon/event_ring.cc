#include "daemon/event_ring.h"

namespace gradring::daemon {

void EventRing::add(NodeEvent event) {
  const std::lock_guard lock(mutex_);
  event.number = next_++;
  events_.push_back(std::move(event));
  if (events_.size() > capacity_) events_.pop_front();
}

EventRing::Part EventRing::after(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  Part part;
  const uint64_t oldest = next_ - events_.size();
  if (number < oldest - 1) part.forgotten = oldest - 1 - number;
  for (const NodeEvent& event : events_) {
    if (event.number > number) part.events.push_back(event);
  }
  return part;
}

}  // namespace gradring::daemon
