#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/failure_detector.h"
#include "daemon/core/time.h"

namespace gradring::core {

// The lanes to one peer that is up: which of them carry slices. Each end decides for itself by what
// it hears, and says so in its heartbeats on the control connection; a lane carries slices only
// where both ends hear each other on it.
//
//   from      event                                             to
//   kUp       silent, broken, or lost to the peer               kDown
//   kDown     the pause is over                                 kTrying  connected anew, tried by
//                                                                        heartbeats alone
//   kTrying   heard for a second, and the peer hears us         kUp
//   kTrying   broken, or silent for `decide`                    kDown
//   any       our port is down, and another lane goes on        kDown, until the port is active
//
// Silent is who was not heard for `decide`; or for `suspect`, if the peer's other lanes were heard
// meanwhile: one thread speaks on all of them, so it is the way that fails and not the peer.
//
// The pause grows with each loss, so that a lane that comes and goes does not stop the jobs again
// and again: each loss of one in use costs their epoch.
class PeerLanes {
 public:
  enum class State : uint8_t { kUp, kDown, kTrying };
  struct Change {
    uint8_t lane = 0;
    State to = State::kDown;
    bool was_used = false;  // slices may have been lost on it
    std::string why;        // for people; of a loss
  };

  // All lanes begin as kUp: they were connected just now.
  PeerLanes(size_t lanes, const FailureDetector::Options& options, Time now);

  // ---- events ----
  void heard(uint8_t lane, Time now);
  // By the peer's heartbeat: bit i is set while it hears us on lane i.
  void peer_hears(uint64_t lanes, Time now);
  void broke(uint8_t lane, const std::string& why, Time now);
  // Our own port of the lane has no link: a lane that carries slices is lost at once, if another
  // one that has its port is up; else that is left to whatever else tells, since it may be short.
  void port_down(uint8_t lane, const std::string& why, Time now);
  void port_active(uint8_t lane);
  void tick(Time now);
  // What has changed since this was asked last, in order.
  std::vector<Change> take_changes();

  // ---- questions ----
  bool changed() const { return !changes_.empty(); }
  uint8_t count() const { return static_cast<uint8_t>(lanes_.size()); }  // as a frame counts them
  State state(uint8_t lane) const { return lanes_[lane].state; }
  const std::string& why(uint8_t lane) const { return lanes_[lane].why; }
  bool any_up() const;
  // Not used, or not heard for `suspect`: bit by bit.
  uint64_t doubtful_lanes(Time now) const;
  // What our heartbeat says.
  uint64_t heard_lanes() const;

 private:
  struct Lane {
    State state = State::kUp;
    std::string why;         // of its last loss
    Time since = 0;          // of the state
    Time pause = 0;          // before it is tried
    bool heard = false;      // since it is tried
    bool peer_hears = true;  // likewise
    std::string port_fault;  // why our port is down; empty: it is not
  };
  static std::string name_of(uint8_t lane) { return std::to_string(lane); }
  void lose(uint8_t lane, const std::string& why, Time now);
  void lose_without_port(Time now);
  void enter(uint8_t lane, State state, Time now);
  bool fails_alone(uint8_t lane, Time now) const;

  const FailureDetector::Options options_;
  FailureDetector watch_;
  std::vector<Lane> lanes_;
  std::vector<Change> changes_;
};

}  // namespace gradring::core
