#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/port_range.h"
#include "transport/ucx/devices.h"
#include "transport/ucx/rdma_options.h"

namespace gradring::transport {

// One option of UCX, by its name without the UCX_ prefix.
struct UcxSetting {
  std::string name;
  std::string value;
};

// All that this body decides about UCX. Set in code, so that UCX_ variables in the environment of
// an operator, meant for some MPI, do not change it.
std::vector<UcxSetting> settings_for(const DeviceChoice& choice,
                                     const std::optional<size_t>& rendezvous_bytes,
                                     const RdmaOptions& options, bool gpus = false,
                                     const PortRange& ports = {});

// Whether this version of UCX can close an endpoint over RDMA that it still connects; older ones
// abort the process.
bool ucx_closes_unwired();

}  // namespace gradring::transport
