#include "daemon/control/sessions/charges.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {
namespace {

constexpr uint64_t kFreedAtOnce = 64 << 20;  // bytes: some 10 ms

}  // namespace

Charges::Charge Charges::of(uint32_t uid) const {
  const std::lock_guard lock(mutex_);
  const auto charge = charges_.find(uid);
  return charge == charges_.end() ? Charge() : charge->second;
}

Charges::Charge Charges::most() const {
  const std::lock_guard lock(mutex_);
  Charge most;
  for (const auto& [uid, charge] : charges_) {
    most.sessions = std::max(most.sessions, charge.sessions);
    most.segment_bytes = std::max(most.segment_bytes, charge.segment_bytes);
    most.segments = std::max(most.segments, charge.segments);
  }
  return most;
}

uint64_t Charges::segments() const {
  const std::lock_guard lock(mutex_);
  uint64_t all = 0;
  for (const auto& [uid, charge] : charges_) all += charge.segments;
  return all;
}

void Charges::add_session(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  ++charges_[uid].sessions;
}

void Charges::remove_session(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  --charges_[uid].sessions;
  forget_unless_charged(uid);
}

std::shared_ptr<const transport::Segment> Charges::hold(uint32_t uid, transport::Segment segment) {
  {
    const std::lock_guard lock(mutex_);
    Charge& charge = charges_[uid];
    charge.segment_bytes += segment.memory().size();
    ++charge.segments;
  }
  return {new transport::Segment(std::move(segment)),
          [this, uid](const transport::Segment* last) { let_go(uid, last); }};
}

uint64_t Charges::set_aside() const {
  const std::lock_guard lock(mutex_);
  return set_aside_;
}

void Charges::let_go(uint32_t uid, const transport::Segment* last) {
  if (last->memory().size() <= kFreedAtOnce) return free(uid, last);
  {
    const std::lock_guard lock(mutex_);
    ++set_aside_;
  }
  frees_.put([this, uid, last] { free(uid, last); });
}

void Charges::free(uint32_t uid, const transport::Segment* last) {
  const uint64_t bytes = last->memory().size();
  delete last;
  const std::lock_guard lock(mutex_);
  Charge& charge = charges_[uid];
  charge.segment_bytes -= bytes;
  --charge.segments;
  forget_unless_charged(uid);
}

void Charges::forget_unless_charged(uint32_t uid) {
  const Charge& charge = charges_[uid];
  if (charge.sessions == 0 && charge.segments == 0) charges_.erase(uid);
}

}  // namespace gradring::daemon
