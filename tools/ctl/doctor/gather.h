#pragma once

#include <sys/types.h>

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "tools/ctl/doctor/facts.h"

namespace gradring::tools::doctor {

// The only place that reads. What cannot be read is left out; nothing here takes longer than the
// daemons' answers and `seconds`, for which traffic is watched.

// Asks the daemon and, through it, all others; fills what is theirs.
void gather_ring(const std::string& runtime_dir, double seconds, Facts* facts);

// Of this machine. `root`: the folder that has proc and sys, "" but in tests. `daemon` 0: it is not
// known, then the limits are this process's own.
void gather_host(const std::string& root, pid_t daemon, Facts* facts);

// Pure. Whether a PCI bridge redirects requests from device to device, by its configuration space;
// nothing where that is cut off, as it is for all but root.
std::optional<bool> redirects(const std::string& pci_config);

}  // namespace gradring::tools::doctor
