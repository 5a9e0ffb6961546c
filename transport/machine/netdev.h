#pragma once

#include <string>
#include <vector>

#include "transport/machine/answers.h"

namespace gradring::machine {

// The network interfaces of this network namespace as sysfs (mounted at `sysfs`) shows them,
// without lo; their addresses, which sysfs does not have, from the kernel. What cannot be read is
// left out.
std::vector<NetDevice> ask_netdevs(const std::string& sysfs = "/sys");

}  // namespace gradring::machine
