#include "daemon/core/peer_lanes.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace gradring::core {
namespace {

constexpr Time kPauseFirst = 1 * kSecond;
constexpr Time kPauseMost = 30 * kSecond;

// A lane that lasted so long is as good as any.
constexpr Time kProven = 60 * kSecond;

// How long it must be heard before it is used.
constexpr Time kSteady = 1 * kSecond;

std::string silence(Time time) {
  char text[64];
  std::snprintf(text, sizeof text, "silent for %.1f s",
                static_cast<double>(time) / static_cast<double>(kSecond));
  return text;
}

}  // namespace

PeerLanes::PeerLanes(size_t lanes, const FailureDetector::Options& options, Time now)
    : options_(options), watch_(options), lanes_(lanes) {
  for (uint8_t lane = 0; lane < count(); ++lane) {
    lanes_[lane].since = now;
    watch_.add(name_of(lane), now);
  }
}

void PeerLanes::heard(uint8_t lane, Time now) {
  if (lane >= lanes_.size()) return;
  lanes_[lane].heard = true;
  watch_.heard(name_of(lane), now);
}

void PeerLanes::peer_hears(uint64_t lanes, Time now) {
  for (uint8_t lane = 0; lane < count(); ++lane) {
    const bool hears = (lanes >> lane & 1) != 0;
    lanes_[lane].peer_hears = hears;
    if (!hears && lanes_[lane].state == State::kUp) lose(lane, "the other end lost it", now);
  }
}

void PeerLanes::broke(uint8_t lane, const std::string& why, Time now) {
  if (lane < lanes_.size() && lanes_[lane].state != State::kDown) lose(lane, why, now);
}

void PeerLanes::port_down(uint8_t lane, const std::string& why, Time now) {
  if (lane >= lanes_.size()) return;
  lanes_[lane].port_fault = why;
  lose_without_port(now);
}

void PeerLanes::port_active(uint8_t lane) {
  if (lane < lanes_.size()) lanes_[lane].port_fault.clear();
}

void PeerLanes::lose_without_port(Time now) {
  const bool others = std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.state == State::kUp && lane.port_fault.empty();
  });
  if (!others) return;
  for (uint8_t lane = 0; lane < count(); ++lane) {
    const Lane& l = lanes_[lane];
    if (!l.port_fault.empty() && l.state != State::kDown) lose(lane, l.port_fault, now);
  }
}

void PeerLanes::lose(uint8_t lane, const std::string& why, Time now) {
  Lane& lost = lanes_[lane];
  const bool was_used = lost.state == State::kUp;
  if (was_used && now - lost.since >= kProven) lost.pause = 0;
  lost.pause = std::clamp(2 * lost.pause, kPauseFirst, kPauseMost);
  lost.why = why;
  watch_.remove(name_of(lane));
  changes_.push_back({lane, State::kDown, was_used, why});
  enter(lane, State::kDown, now);
}

void PeerLanes::enter(uint8_t lane, State state, Time now) {
  lanes_[lane].state = state;
  lanes_[lane].since = now;
}

void PeerLanes::tick(Time now) {
  for (const FailureDetector::Change& change : watch_.tick(now)) {
    if (change.health != FailureDetector::Health::kLost) continue;
    lose(static_cast<uint8_t>(std::stoul(change.peer)), silence(change.silent), now);
  }
  lose_without_port(now);
  for (uint8_t lane = 0; lane < count(); ++lane) {
    Lane& l = lanes_[lane];
    if (l.state == State::kUp && fails_alone(lane, now)) {
      lose(lane, silence(watch_.silent_for(name_of(lane), now)), now);
      continue;
    }
    const Time lasted = now - l.since;
    if (l.state == State::kDown && lasted >= l.pause && l.port_fault.empty()) {
      l.heard = l.peer_hears = false;
      watch_.add(name_of(lane), now);
      enter(lane, State::kTrying, now);
      changes_.push_back({lane, State::kTrying, false, ""});
    } else if (l.state == State::kTrying && lasted >= kSteady && l.heard && l.peer_hears &&
               watch_.silent_for(name_of(lane), now) < options_.suspect) {
      enter(lane, State::kUp, now);
      changes_.push_back({lane, State::kUp, false, ""});
    }
  }
}

bool PeerLanes::fails_alone(uint8_t lane, Time now) const {
  const auto silent = [&](uint8_t which) { return watch_.silent_for(name_of(which), now); };
  if (silent(lane) < options_.suspect) return false;
  for (uint8_t other = 0; other < count(); ++other) {
    const bool heard = lanes_[other].state == State::kUp && silent(other) < options_.suspect / 2;
    if (other != lane && heard) return true;
  }
  return false;
}

std::vector<PeerLanes::Change> PeerLanes::take_changes() { return std::exchange(changes_, {}); }

bool PeerLanes::any_up() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.state == State::kUp; });
}

uint64_t PeerLanes::doubtful_lanes(Time now) const {
  uint64_t lanes = 0;
  for (uint8_t lane = 0; lane < count(); ++lane) {
    const bool silent = watch_.silent_for(name_of(lane), now) >= options_.suspect;
    if (lanes_[lane].state != State::kUp || silent) lanes |= uint64_t{1} << lane;
  }
  return lanes;
}

uint64_t PeerLanes::heard_lanes() const {
  uint64_t lanes = 0;
  for (size_t lane = 0; lane < count(); ++lane) {
    const Lane& l = lanes_[lane];
    const bool heard = l.state == State::kUp || (l.state == State::kTrying && l.heard);
    if (heard) lanes |= uint64_t{1} << lane;
  }
  return lanes;
}

}  // namespace gradring::core
