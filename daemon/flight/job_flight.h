#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/flight/ring.h"

namespace gradring::daemon {

// What the data thread's ring is told of one job. Its owner calls each function when the thing has
// happened, and nothing here has a say in what happens. Data thread only.
class JobFlight {
 public:
  JobFlight(FlightRing* ring, const core::JobEngine& engine);

  void submitted(const core::Submission& submission, core::Time at);
  // An op has several of these three, and of many small ones none may look at the clock: their time
  // is the ring's now().
  void moves(const core::Op& op);
  void frame_sent(uint32_t member, const Frame& frame);
  void frame_received(uint32_t member, const Frame& frame);

  // Of a short one too, what is done with it takes less than the look at the clock is worth.
  void slice_started(const OpKey& key, uint32_t slice, uint32_t bytes);
  // The header has come, the payload follows into this slot.
  void slice_arrives(uint32_t slot, const Frame& frame);
  void slice_landed(uint32_t slot);
  void slice_aborted(uint32_t slot);
  // It landed, but its checksum is wrong.
  void slice_damaged(uint32_t slot);
  void slice_resent(const Frame& frame);
  void slice_forwarded(const Frame& frame);
  void slice_delivered(const OpKey& key, uint32_t slice, uint32_t bytes);

  // `number`: of what they do for this job.
  void gpu_began(const OpKey& key, uint32_t number, GpuTask task, uint64_t bytes);
  void gpu_ended(const OpKey& key, uint32_t number, bool good);

  void completed(uint32_t rank, const OpKey& key, const core::Outcome& outcome, core::Time at);
  void failed(const Failure& failure);
  void condemned(const Failure& failure);

 private:
  struct Arriving {
    OpKey key;
    SliceBody slice;
  };
  FlightEvent event(FlightKind kind, const OpKey& key) const;
  // Empty: it has none, or it was told a short while ago.
  std::string_view name_to_tell(const core::Submission& submission);
  void record_slice(FlightKind kind, const OpKey& key, const SliceBody& slice);
  core::Time time_of(uint32_t bytes) const;

  FlightRing* const ring_;
  const core::OpNames& names_;
  const JobPrefix job_;
  const uint64_t epoch_;
  std::vector<Arriving> arriving_;               // by slot
  std::unordered_map<uint64_t, uint64_t> told_;  // by key space: the ring's lap at that time
};

}  // namespace gradring::daemon
