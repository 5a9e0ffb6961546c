#include "daemon/data/stream_gate.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {
namespace {

// The timer of a sleep is not finer than some tens of microseconds; and once it has been waited so
// long for a stream, a moment more is nothing.
constexpr core::Time kLookSoonest = core::kMillisecond / 50;
constexpr core::Time kLookLatest = core::kMillisecond / 2;
constexpr core::Time kPartOfWait = 8;

}  // namespace

core::Time next_look(core::Time now, core::Time since) {
  return now + std::clamp((now - since) / kPartOfWait, kLookSoonest, kLookLatest);
}

bool StreamGate::hold(const Submit& submit, core::Time now) {
  const auto same = [&submit](const Held& held) { return held.submit.session == submit.session; };
  if (static_cast<size_t>(std::count_if(held_.begin(), held_.end(), same)) >= kHeldMax) {
    return false;
  }
  held_.push_back({submit, now});
  return true;
}

bool StreamGate::any(const std::function<bool(const Submit&)>& wanted) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&wanted](const Held& held) { return wanted(held.submit); });
}

std::vector<Submit> StreamGate::take(const std::function<bool(const Submit&)>& wanted) {
  if (!any(wanted)) return {};  // as in nearly each turn
  std::vector<Submit> taken;
  const auto kept = std::stable_partition(
      held_.begin(), held_.end(), [&wanted](const Held& held) { return !wanted(held.submit); });
  for (auto it = kept; it != held_.end(); ++it) taken.push_back(std::move(it->submit));
  held_.erase(kept, held_.end());
  return taken;
}

uint32_t StreamGate::held_by(const JobId& job, uint32_t rank) const {
  return static_cast<uint32_t>(std::count_if(held_.begin(), held_.end(), [&](const Held& held) {
    return held.submit.job == job && held.submit.submission.rank == rank;
  }));
}

core::Time StreamGate::next_look(core::Time now) const {
  core::Time youngest = 0;
  for (const Held& held : held_) youngest = std::max(youngest, held.since);
  return daemon::next_look(now, youngest);
}

}  // namespace gradring::daemon
