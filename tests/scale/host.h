#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/scale/machine.h"

namespace gradring::scale {

// A line of fixed rate with a token bucket: what was saved up in a pause, at most the burst, passes
// at once. No burst: an ordinary line.
class Line {
 public:
  Line(double bytes_per_ns, double burst_bytes)
      : rate_(bytes_per_ns), saved_max_(took(burst_bytes, bytes_per_ns)) {}

  // When the last of so many bytes has passed that come at `now`, behind all earlier ones.
  Time pass(Time now, double bytes) {
    taken_ = std::max(taken_, now - saved_max_) + took(bytes, rate_);
    return std::max(now, taken_);
  }
  // How long one that comes at `now` waits for earlier ones.
  Time backlog(Time now) const { return std::max<Time>(0, taken_ - now); }

 private:
  double rate_;
  Time saved_max_;
  Time taken_ = 0;  // until when the rate has been used up
};

// What runs, by when it is free again.
class Processors {
 public:
  explicit Processors(uint32_t count) : free_at_(count, 0) {}

  Time earliest() const { return *std::min_element(free_at_.begin(), free_at_.end()); }
  uint32_t free(Time now) const {
    return static_cast<uint32_t>(
        std::count_if(free_at_.begin(), free_at_.end(), [now](Time at) { return at <= now; }));
  }
  // Takes the one that is free longest, until then.
  void take(Time until) { *std::min_element(free_at_.begin(), free_at_.end()) = until; }

 private:
  std::vector<Time> free_at_;
};

// What the threads of one node share.
class Host {
 public:
  Host(const Machine& machine, std::shared_ptr<Processors> processors);

  Processors& processors() { return *processors_; }
  // When a frame that leaves at `now` has left, in a lane. Frames to one member keep their order;
  // one without a payload does not wait for more than a few segments that go to others.
  Time leave(Time now, uint32_t to, uint32_t lane, double bytes, bool payload);
  // Bytes that the thread hands over, and those that have not left, of the first lane: sockets have
  // one.
  void feed(Time now, double bytes) { out_.front().pass(now, bytes); }
  double queued_bytes(Time now) const;
  Time line_time(double bytes) const;
  // When it has arrived, that began to leave and had left at these times.
  Time arrive(Time began, Time left, uint32_t lane, double bytes);
  // When a pass is over that takes so long and moves so many bytes of memory.
  Time use_memory(Time now, Time lasts, double bytes);
  uint32_t lanes() const { return static_cast<uint32_t>(out_.size()); }

 private:
  const Machine& machine_;
  std::shared_ptr<Processors> processors_;
  std::vector<Line> out_;
  std::vector<Line> in_;
  Line memory_;
  std::unordered_map<uint64_t, Time> last_left_;  // of payloads, by member and lane
};

}  // namespace gradring::scale
