#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "daemon/config.h"
#include "daemon/data/outbox.h"
#include "transport/machine/gids.h"

namespace gradring::daemon {

struct MadeLanes {
  Lanes lanes;
  std::vector<std::optional<machine::Gid>> gids;  // of each, where it is an RDMA port's
};

// Each device that is named is a lane; where none is, all that the transport chooses are one, and
// no RDMA port among them.
tl::expected<MadeLanes, Status> make_lanes(const Config& config);

// Of the devices that make_lanes would need, the first that is not there, or cannot be used as it
// is: in words. Empty: all are.
std::string missing_device(const Config& config);

// "ucx 1.13.1" -> "ucx 1.13": what must be alike on two nodes that talk.
std::string compatible_name(const std::string& name);

}  // namespace gradring::daemon
