#pragma once

#include <optional>

#include "daemon/core/messages.h"
#include "proto/wire.h"

namespace gradring::daemon {

// Between the core's values and what daemons say to one another.
void to_wire(const core::View& from, wire::View* to);
// False: malformed. Lengths are bounded here; whether the view makes sense is the core's to say.
bool from_wire(const wire::View& from, core::View* to);

wire::PeerMessage to_wire(const core::JobMessage& message);
// Empty when `message` is malformed or of another kind.
std::optional<core::JobMessage> job_message_of(const wire::PeerMessage& message);

// Longest names that are believed, from trainers and from peers: they are kept, shown and logged.
inline constexpr size_t kJobNameMax = 256;
inline constexpr size_t kTokenMax = 256;
inline constexpr size_t kNodeNameMax = 127;
inline constexpr size_t kTextMax = 4096;

}  // namespace gradring::daemon
