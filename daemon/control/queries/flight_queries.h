#pragma once

#include <cstdint>
#include <tl/expected.hpp>

#include "client.pb.h"
#include "daemon/config.h"
#include "daemon/control/jobs.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"
#include "daemon/flight/recorder.h"
#include "proto/status.h"

namespace gradring::daemon {

// Hands out what the daemon wrote down, and traces for who asks for that. Control thread only.
class FlightQueries {
 public:
  struct Parts {
    FlightRecorder* recorder = nullptr;  // null: nothing is written down
    const core::Membership* membership = nullptr;
    const Jobs* jobs = nullptr;
    CommandBox* commands = nullptr;
  };
  FlightQueries(const Config& config, const Parts& parts);

  using Answer = tl::expected<wire::FlightReport, Status>;
  // `uid`: who wants to know. Errors: PERMISSION_DENIED, NOT_FOUND, INVALID_ARGUMENT.
  Answer read(uint32_t uid, const wire::FlightPart& part) const;
  // Errors: PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  Answer trace(uint32_t uid, bool on);

 private:
  Status refusal_for(uint32_t uid) const;
  wire::FlightReport report() const;

  const std::string node_;
  const uint64_t trace_size_;
  Parts parts_;
};

}  // namespace gradring::daemon
