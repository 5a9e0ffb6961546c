#pragma once

#include <optional>

#include "daemon/core/messages.h"
#include "proto/wire.h"

namespace gradring::daemon {

// The messages of a view change; daemon/wire/peer_wire.h is for all.
void fill(const core::change::Prepare& from, wire::PeerMessage* to);
void fill(const core::change::Promise& from, wire::PeerMessage* to);
void fill(const core::change::Accept& from, wire::PeerMessage* to);
void fill(const core::change::Accepted& from, wire::PeerMessage* to);
void fill(const core::change::Commit& from, wire::PeerMessage* to);
void fill(const core::change::Refuse& from, wire::PeerMessage* to);
void fill(const core::change::Ask& from, wire::PeerMessage* to);

// Empty when `message` is malformed or of another kind.
std::optional<core::JobMessage> change_message_of(const wire::PeerMessage& message);

}  // namespace gradring::daemon
