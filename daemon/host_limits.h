#pragma once

#include <string>
#include <vector>

namespace gradring::daemon {

// Raises the limit of open files as far as this user may: trainers, peers and segments take some
// each.
void raise_file_limit();

// Empty, or why the devices cannot be used with the memory that may be locked: RDMA pins what it
// moves. `infiniband_dir` lists the RDMA devices, by name.
std::string fault_of_memlock(const std::vector<std::string>& net_devices,
                             const std::string& infiniband_dir = "/sys/class/infiniband");

}  // namespace gradring::daemon
