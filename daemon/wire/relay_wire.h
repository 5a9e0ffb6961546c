#pragma once

#include <optional>
#include <vector>

#include "daemon/core/peer_net.h"
#include "proto/wire.h"

namespace gradring::daemon {

// Between what core/peer_net.h passes on and proto/peer.proto.
wire::PeerMessage to_wire(const core::Parcel& parcel);
wire::PeerMessage to_wire(const std::vector<core::Notice>& notices);
// Empty when it is malformed.
std::optional<core::Parcel> parcel_of(const wire::Relay& relay);
std::vector<core::Notice> notices_of(const wire::Notices& notices);

}  // namespace gradring::daemon
