#include "daemon/metrics/peer_book.h"

#include <algorithm>
#include <utility>

#include "daemon/metrics/labels.h"

namespace gradring::daemon::metrics {
namespace {

void add(PeerSeries* to, const PeerSeries& from) {
  to->dropped_frames += from.dropped_frames;
  to->damaged += from.damaged;
  to->lane_losses += from.lane_losses;
  for (size_t i = 0; i < from.losses.size(); ++i) to->losses[i] += from.losses[i];
  to->lanes.resize(std::max(to->lanes.size(), from.lanes.size()));
  for (size_t i = 0; i < from.lanes.size(); ++i) {
    to->lanes[i].sent_bytes += from.lanes[i].sent_bytes;
    to->lanes[i].received_bytes += from.lanes[i].received_bytes;
    to->lanes[i].sends += from.lanes[i].sends;
    to->lanes[i].send_time += from.lanes[i].send_time;
  }
}

// Its peer was forgotten meanwhile, and counts from 0 again.
bool began_anew(const PeerSeries& before, const PeerSeries& now) {
  if (now.dropped_frames < before.dropped_frames || now.damaged < before.damaged) return true;
  if (now.lanes.size() < before.lanes.size()) return true;
  for (size_t i = 0; i < before.lanes.size(); ++i) {
    const LaneSeries &was = before.lanes[i], &is = now.lanes[i];
    if (is.sent_bytes < was.sent_bytes || is.received_bytes < was.received_bytes) return true;
    if (is.sends < was.sends || is.send_time < was.send_time) return true;
  }
  return false;
}

}  // namespace

void PeerBook::add_incidents(const std::string& node, PeerSeries* to) const {
  const auto it = incidents_.find(node);
  if (it == incidents_.end()) return;
  for (size_t i = 0; i < to->losses.size(); ++i) to->losses[i] += it->second.losses[i];
  to->lane_losses += it->second.lane_losses;
}

void PeerBook::add_other(const std::string& key, const Other& other, PeerSeries* to) const {
  add(to, other.before);
  add(to, other.last);
  add_incidents(key, to);
}

void PeerBook::count(std::map<std::string, PeerSeries> others) {
  for (auto& [key, now] : others) {
    Other& other = others_[key];
    if (began_anew(other.last, now)) add(&other.before, other.last);
    other.last = std::move(now);
  }
  if (others_.size() <= others.size() + kGoneMost) return;
  for (auto it = others_.begin(); it != others_.end();) {
    if (others.count(it->first) > 0) {
      ++it;
      continue;
    }
    gone_.label = kOther;
    add_other(it->first, it->second, &gone_);
    incidents_.erase(it->first);
    it = others_.erase(it);
  }
}

std::vector<PeerSeries> PeerBook::series(std::vector<PeerSeries> peers, size_t most) {
  std::set<std::string> there;
  for (const PeerSeries& peer : peers) there.insert(label_of(peer.label));
  std::erase_if(own_, [&there](const std::string& label) { return there.count(label) == 0; });

  std::vector<PeerSeries> list;
  std::set<std::string> keys;
  std::set<std::string> taken = {kOther};
  std::map<std::string, PeerSeries> others;
  for (PeerSeries& peer : peers) {
    std::string key = peer.label;
    while (!keys.insert(key).second) key += '\n';  // another of the same name
    std::string label = label_of(peer.label);
    const bool place = own_.count(label) > 0 || own_.size() < most;
    // Two of one label would be one series twice, and Prometheus would take neither.
    if (others_.count(key) > 0 || !place || !taken.insert(label).second) {
      others.emplace(std::move(key), std::move(peer));
      continue;
    }
    own_.insert(label);
    add_incidents(peer.label, &peer);
    peer.label = std::move(label);
    list.push_back(std::move(peer));
  }
  count(std::move(others));
  if (others_.empty() && gone_.label.empty()) return list;
  PeerSeries other = gone_;
  other.label = kOther;
  for (const auto& [key, one] : others_) add_other(key, one, &other);
  list.push_back(std::move(other));
  return list;
}

}  // namespace gradring::daemon::metrics
