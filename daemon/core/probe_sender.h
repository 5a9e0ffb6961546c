#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "proto/frame.h"

namespace gradring::core {

// What is to be measured on one lane, and how.
struct ProbePlan {
  bool latency = false;
  uint32_t bytes = 0;  // payload of each message
  // Messages go in trains: for `warm_up`, which does not count, and for `train`; then nothing goes
  // until all have come back, and for `pause`. For latency `pause` lies between two messages.
  Time warm_up = 0;
  Time train = 0;
  Time pause = 0;
  uint32_t trains = 1;
};

// `measure`: for how long. Beside jobs a tenth of that time is used, in trains of a tenth of a
// second, and at least two of them.
ProbePlan probe_plan(bool latency, uint32_t bytes, Time measure, bool beside_jobs);
// Within which such a probe has ended in any case, after it was begun.
Time probe_time_max(const ProbePlan& plan);

struct ProbeFigures {
  uint64_t bytes = 0;
  uint64_t jobs_bytes = 0;  // of slices that went by the same lane in the same time
  Time time = 0;            // by the receiver's clock
  uint64_t round_trips = 0;
  Time min = 0, median = 0, p99 = 0;  // of them
};

// The sender's side of a probe: whether the next message may go, and what the echoes say.
//
// A rate is that at which messages arrive while they stand in line at the narrowest place: what
// came between the first and the last echo of a train, by the receiver's clock, so that neither the
// way back nor the time until the line is full count.
//
// How much is under way is found by how long it takes: while messages wait for less than kQueue in
// line, one more goes for each that has come back; where they wait for twice as long, one less. So
// whatever the rate is, slices and heartbeats behind a probe's messages wait for no longer than
// that by much.
//
// Pure; one thread.
class ProbeSender {
 public:
  static constexpr Time kQueue = 25 * kMillisecond;

  // Begins by asking: the caller sends kAsk.
  ProbeSender(const ProbePlan& plan, Time now);

  // ---- what happens ----
  void granted(Time now);
  void refused(const std::string& why) { fail(why); }
  void echoed(const ProbeBody& echo, Time now);
  // The connection is gone, or the like.
  void fail(const std::string& why);
  void tick(Time now);

  // Whether one more message may go; then it is told that it went.
  bool may_send(Time now) const;
  uint64_t sent(Time now);  // its number, from 1

  Time next_deadline() const;
  bool over() const { return phase_ == Phase::kOver; }
  const std::string& fault() const { return fault_; }  // empty: all went well
  // Once it is over.
  ProbeFigures figures() const;

 private:
  enum class Phase : uint8_t { kAsking, kSending, kEmptying, kPausing, kOver };

  void begin_train(Time now);
  void end_train(Time now);
  void widen_or_narrow(Time took);

  const ProbePlan plan_;
  const uint32_t window_most_;
  Phase phase_ = Phase::kAsking;
  Time due_ = 0;  // when the phase ends, at the latest
  Time counts_from_ = 0;
  Time next_at_ = 0;  // of latency
  uint32_t trains_left_;
  std::string fault_;

  std::deque<Time> under_way_;  // when each message went that has not come back
  uint64_t sent_ = 0;
  uint32_t window_ = 4;  // messages
  Time least_ = 0;       // that a message took; 0: none has come back

  ProbeBody first_, last_;  // echoes of this train that count
  bool any_ = false;
  ProbeFigures sums_;
  std::vector<Time> round_trips_;
};

}  // namespace gradring::core
