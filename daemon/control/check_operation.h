#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>

#include "daemon/control/session.h"
#include "daemon/core/op.h"
#include "proto/wire.h"

namespace gradring::daemon {

// An operation that may be handed to the data thread: every number in it has been checked against
// the session's own segments and job.
struct CheckedOperation {
  core::Submission submission;
  OpenTicket segments;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// The refusal is a sentence for the trainer. Nothing of `operation` is trusted: offsets may
// overflow, enumerations may be unknown, segments may be another's.
tl::expected<CheckedOperation, std::string> check_operation(const wire::Operation& operation,
                                                            const Session& session);

}  // namespace gradring::daemon
