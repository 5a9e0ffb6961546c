#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/core/late_watch.h"
#include "daemon/core/op.h"
#include "daemon/core/time.h"

namespace gradring::core {

// Upper bounds of the classes of lateness; the last class has none.
inline constexpr std::array<Time, 9> kLatenessBounds = {
    100'000,    300'000,     1'000'000,   3'000'000,     10'000'000,
    30'000'000, 100'000'000, 300'000'000, 1'000'000'000,
};
inline constexpr size_t kLatenessClasses = kLatenessBounds.size() + 1;

// Where the time of a rank goes. All that it has is one of these.
struct StepSplit {
  Time compute = 0;     // between exchanges, and until the last submission of one
  Time overlapped = 0;  // the part of `compute` in which ops were under way
  Time input = 0;      // waiting for its next batch, where the trainer tells that; not in `compute`
  Time straggler = 0;  // after its last submission: ranks were missing elsewhere
  Time exposed = 0;    // after its last submission: gradients were under way, or waiting their turn

  Time total() const { return compute + input + straggler + exposed; }
  StepSplit& operator+=(const StepSplit& other);
};

// Of all steps of a rank, ever.
struct StepTotals {
  uint64_t steps = 0;
  StepSplit all;
  std::array<uint64_t, kLatenessClasses> lateness{};  // how many were how late
  Time late_sum = 0;

  StepTotals& operator+=(const StepTotals& other);
};

// Of one rank of this node.
struct StepReport {
  uint32_t rank = 0;
  StepTotals ever;
  uint32_t recent = 0;  // of how many steps the rest is: 500 at most
  StepSplit mean;
  uint32_t late = 0;     // in how many it came so late that others had to wait
  Time late_median = 0;  // by how much, in those
};

// Divides what trainers do into steps, from nothing but when they submit and when that is done.
//
// A step ends when all is done that a rank has submitted; the next begins there. After its last
// submission a rank has nothing left to do but to wait: that is what an exchange costs, however
// much of it went on behind the computing. It is the straggler's fault for as long as the latest
// rank of any op came behind this one, and the exchange's own beyond.
//
//        compute        | overlapped    | straggler | exposed   |
//   -----------------submits-------submits last---------------all done, the next step begins
//
// A rank that computes on behind its last submission is charged with waiting that it did not do.
// Data thread only; knows no clock.
class StepTimes {
 public:
  explicit StepTimes(Time since) : since_(since) {}

  void submitted(uint32_t rank, Time now);
  // All ranks of the view have submitted it: who came when is known.
  void moves(const Op& op);
  // A submission of this rank has ended. `input`: how long it has waited for input, ever, if it
  // says.
  void ended(uint32_t rank, Time now, Time input);
  // An exchange that is under way says nothing of a step: ops of the last epoch begin anew.
  void begin_epoch();

  std::vector<StepReport> report() const;
  StepTotals totals(uint32_t rank) const;
  // Ranks that others have begun to wait for, or need not any more, since this was last asked.
  std::vector<LateChange> take_changes(Time now);

 private:
  static constexpr size_t kRecent = 500;

  struct Step {
    StepSplit split;
    Time last_by = 0;
    bool waited_for = false;
  };
  struct Rank {
    uint32_t rank = 0;
    uint32_t open = 0;
    Time began = 0;  // the step
    Time first = 0;  // submission of it
    Time last = 0;
    Time late = 0;     // behind whoever came first, in the op where it was most
    Time behind = 0;   // who came last came so much behind this one
    Time last_by = 0;  // `late`, in ops to which it came among the last
    bool disturbed = false;
    Time input = 0;  // ever, by the end of the step before
    StepTotals ever;
    std::vector<Step> recent;  // a ring of kRecent
    LateWatch watch;
  };

  Rank& of(uint32_t rank);
  // By how much it came late where others had to wait for it, in its last `steps`, of kRecent.
  static std::vector<Time> lateness(const Rank& rank, size_t steps);
  void end_step(Rank& rank, Time now, Time input);

  Time since_;
  std::vector<Rank> ranks_;
};

}  // namespace gradring::core
