#pragma once

#include <optional>

#include "daemon/core/messages.h"
#include "daemon/wire/view_wire.h"
#include "proto/wire.h"

namespace gradring::daemon {

// Between the core's messages and what daemons say to one another.
wire::PeerMessage to_wire(const core::JobMessage& message);
// Empty when `message` is malformed or of another kind.
std::optional<core::JobMessage> job_message_of(const wire::PeerMessage& message);

}  // namespace gradring::daemon
