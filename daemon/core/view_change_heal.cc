// A network that was away for all members, as when a switch starts anew (rule V2b).

#include <map>
#include <string>

#include "daemon/core/recovery.h"
#include "daemon/core/view_change.h"
#include "proto/policy.h"

namespace gradring::core {

void ViewChange::note_cut_off(Time now) {
  const bool again = healed_ != 0 && now - healed_ < options_.healed_pause;
  const bool elastic = parse_policy(view_.policy).value_or(Policy{}).elastic;
  if (!elastic || again || quorum_possible()) return;
  cut_off_ = true;
  healing_since_ = 0;
}

// A report of that time says of nearly all that they cannot be reached.
void ViewChange::renew_reachable() {
  if (!cut_off_) return;
  record_.report->reachable.clear();
  for (const Member& member : view_.members) {
    const bool there = member.node != node_ && lost_.count(member.node) == 0;
    if (there) record_.report->reachable.push_back(member.node);
  }
}

// To whoever has our promise already.
void ViewChange::tell_who_is_back(Time now) {
  if (!cut_off_ || over_) return;
  if (healing_since_ == 0 && quorum_possible()) healing_since_ = now;
  const bool promised = record_.report && record_.promised.round != 0 && !record_.accepted;
  if (promised) promise_to(record_.promised.node, record_.promised);
}

// Whether to wait for connections that are not back yet, though a quorum is there.
bool ViewChange::heals(Time now) const {
  return healing_since_ != 0 && now - healing_since_ < options_.healing && !has_all_back();
}

// All who may come have reported, and all of them reach each other.
bool ViewChange::has_all_back() const {
  size_t missing = 0;
  std::map<std::string, Report> reports;
  for (const Member& member : view_.members) {
    const auto promise = promises_.find(member.node);
    if (promise != promises_.end()) {
      reports[member.node] = promise->second.report;
    } else if (left_.count(member.node) == 0 && gone_.count(member.node) == 0) {
      ++missing;
    }
  }
  return missing == 0 && choose_members(view_, reports).size() == reports.size();
}

}  // namespace gradring::core
