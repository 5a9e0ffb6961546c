#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "daemon/fd_store.h"
#include "daemon/records/engine_log.h"
#include "daemon/records/record_log.h"
#include "proto/status.h"
#include "proto/types.h"
#include "transport/shm/segment.h"

namespace gradring::daemon {

// What of a job's data plane outlives the daemon: the engine's log, the slices that are on their
// way and those that are kept. Made by the control thread, used by the data thread.
struct JobMemory {
  RecordLog log;
  transport::Segment staging;
  transport::Segment kept;

  // Bytes of the two.
  struct Sizes {
    uint64_t staging = 0;
    uint64_t kept = 0;
  };
  // Made, and kept in the store under names of this job.
  static tl::expected<std::shared_ptr<JobMemory>, Status> create(const JobId& job,
                                                                 const Sizes& sizes,
                                                                 FdStore* store);
  // As the last life of the daemon left it.
  static tl::expected<std::shared_ptr<JobMemory>, Status> adopt(const JobId& job,
                                                                const Sizes& sizes, FdStore* store);
  static void forget(const JobId& job, FdStore* store);
};

}  // namespace gradring::daemon
