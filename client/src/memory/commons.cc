#include "client/src/memory/commons.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "client/src/limits.h"

namespace gradring::client {

void Commons::offer(Common common) {
  const std::lock_guard lock(mutex_);
  common.number = ++last_number_;
  by_base_.emplace(common.base, common.number);
  by_number_.emplace(common.number, std::move(common));
}

void Commons::withdraw(uint64_t session, uint64_t segment) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(by_number_.begin(), by_number_.end(), [&](const auto& entry) {
    return entry.second.session == session && entry.second.segment == segment;
  });
  if (it == by_number_.end()) return;
  by_base_.erase({it->second.base, it->first});
  by_number_.erase(it);
  ++withdrawals_;
}

void Commons::withdraw_all(uint64_t session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(by_number_, [&](const auto& entry) {
    if (entry.second.session != session) return false;
    by_base_.erase({entry.second.base, entry.first});
    return true;
  });
  ++withdrawals_;
}

std::optional<Common> Commons::around(const void* start) const {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const std::byte*>(start);
  const auto after = by_base_.upper_bound({address, UINT64_MAX});
  if (after == by_base_.begin()) return std::nullopt;
  const Common& common = by_number_.at(std::prev(after)->second);
  if (static_cast<uint64_t>(address - common.base) >= common.bytes) return std::nullopt;
  return common;
}

bool Commons::offers(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return by_number_.count(number) > 0;
}

TimePoint Commons::leave_by(TimePoint deadline) const {
  const std::lock_guard lock(mutex_);
  const auto& since = leaving_in_vain_since_;
  if (!since || Clock::now() > *since + kLeaveAnewTime) return deadline;
  return std::min(deadline, *since + kLeaveAllTime);
}

void Commons::left(TimePoint begun, bool confirmed) {
  const std::lock_guard lock(mutex_);
  auto& since = leaving_in_vain_since_;
  if (confirmed) {
    since.reset();
  } else if (!since || begun > *since + kLeaveAnewTime) {
    since = begun;
  }
}

}  // namespace gradring::client
