#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/data/gpu_staging.h"
#include "daemon/data/job_figures.h"
#include "daemon/look_on.h"
#include "proto/types.h"
#include "transport/gpus.h"

namespace gradring::daemon {

class JobExecutor;

// Something that GPUs do for an op of a job.
struct GpuWork {
  JobExecutor* job = nullptr;
  OpKey key;
  bool sums = false;    // else it spreads
  uint32_t source = 0;  // of the op's, for a sum
  uint32_t run = 0;     // of that one's; or a slice
  // Else, for a slice that goes round the ring on GPUs, what it does where.
  std::optional<std::pair<GpuStaging::Place, GpuStaging::Use>> rides = {};
  uint32_t number = 0;  // of what the job has begun
  // By its op as under way. Not what rides of one that has ended: its key may be another's by then.
  bool counted = true;
};

// Gives work to GPUs, and says to whom it belongs when it has ended. Data thread only.
class GpuDesk {
 public:
  // Null: there are none.
  explicit GpuDesk(std::shared_ptr<transport::Gpus> gpus) : gpus_(std::move(gpus)) {}

  Status begin(const transport::Gpus::Sum& sum, const GpuWork& work);
  Status begin(const transport::Gpus::Allreduce& allreduce, const GpuWork& work);
  Status begin(const transport::Gpus::Spread& spread, const GpuWork& work);
  struct Ended {
    GpuWork work;
    Status status;
    std::optional<transport::Gpus::Nonfinite> nonfinite;
  };
  // Valid until the next call.
  const std::vector<Ended>& take_ended();

  bool busy() const { return under_way_ > 0; }
  // From a GPU's memory to another node.
  void count_sent(uint64_t bytes) { traffic_.sent += bytes; }
  transport::Gpus* gpus() const { return gpus_.get(); }
  const GpuTraffic& traffic() const { return traffic_; }
  // When to look for ends: a GPU wakes nobody.
  core::Time next_look(core::Time now) const;
  // Or at once.
  bool looks_on(core::Time now) { return busy() && look_on_.goes_on(now); }

 private:
  template <typename Order>
  Status begin_as(const Order& order, const GpuWork& work);

  const std::shared_ptr<transport::Gpus> gpus_;
  std::vector<GpuWork> works_;  // by number
  std::vector<uint64_t> free_;  // numbers
  size_t under_way_ = 0;
  GpuTraffic traffic_;
  LookOn look_on_;
  core::Time since_ = 0;                      // the last time that something began or ended
  std::vector<transport::Gpus::Ended> told_;  // kept for its capacity
  std::vector<Ended> ended_;
};

}  // namespace gradring::daemon
