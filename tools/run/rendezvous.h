#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/run/options.h"
#include "tools/run/placement.h"

// Where the ranks of a script for torch.distributed meet: MASTER_ADDR and MASTER_PORT, on which the
// script's first rank listens. gradring itself needs neither.
namespace gradring::tools {

// NAME=VALUE of both for a launch of these shares: as `more` (see launch.h) or the environment
// says, each by itself, and else the host of rank 0 and a port. Whether the port is free is known
// only where rank 0 runs here. The environment of a rank is of no account: what it says there is
// where that one's launch has met.
std::vector<std::string> rendezvous(const std::vector<Share>& shares,
                                    const std::vector<std::string>& more);

// The same for a launch that another launcher carries out. What only srun knows is left empty.
std::vector<std::string> rendezvous_to_hand_over(const RunOptions& options);

// The same for a rank that srun started, as the environment says and else by its step, of which all
// of its ranks know the same. None where there is no step.
std::vector<std::string> rendezvous_in_step();

// The first host of a list as Slurm writes it, "gpu[03-07,12],login": gpu03.
std::string first_of_nodelist(std::string_view list);

}  // namespace gradring::tools
