#include "daemon/core/failure_detector.h"

namespace gradring::core {

void FailureDetector::add(const std::string& peer, Time now) {
  if (last_tick_ == 0) last_tick_ = now;
  posts_[peer] = {now, Health::kAlive};
}

void FailureDetector::remove(const std::string& peer) { posts_.erase(peer); }

void FailureDetector::heard(const std::string& peer, Time now) {
  const auto it = posts_.find(peer);
  if (it != posts_.end() && it->second.health != Health::kLost) it->second.heard = now;
}

std::vector<FailureDetector::Change> FailureDetector::tick(Time now) {
  std::vector<Change> changes;
  if (last_tick_ != 0 && now - last_tick_ > options_.suspect) {
    slept_ = now - last_tick_;
    woke_ = now;
    for (auto& [peer, post] : posts_) {
      if (post.health != Health::kLost) post.heard = now;
    }
  }
  last_tick_ = now;
  for (auto& [peer, post] : posts_) {
    if (post.health == Health::kLost) continue;
    const Time silent = now - post.heard;
    const Health health = silent >= options_.decide    ? Health::kLost
                          : silent >= options_.suspect ? Health::kSuspect
                                                       : Health::kAlive;
    if (health != post.health) changes.push_back({peer, health, silent});
    post.health = health;
  }
  return changes;
}

Time FailureDetector::slept(Time now, Time since) const {
  if (last_tick_ == 0) return 0;
  if (now - last_tick_ > options_.suspect) return now - last_tick_;
  return since < woke_ && now - woke_ <= options_.decide ? slept_ : 0;
}

FailureDetector::Health FailureDetector::health_of(const std::string& peer) const {
  const auto it = posts_.find(peer);
  return it == posts_.end() ? Health::kLost : it->second.health;
}

Time FailureDetector::silent_for(const std::string& peer, Time now) const {
  const auto it = posts_.find(peer);
  return it == posts_.end() ? 0 : now - it->second.heard;
}

}  // namespace gradring::core
