#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::tools {

// The place of a rank that srun or mpirun has started, in the variables that gradring-run's own
// ranks have: RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, and the same in Horovod's names,
// each NAME=VALUE; from srun also where torch.distributed's ranks meet. The place across hosts is
// none of it: neither launcher says it. The error is a sentence.
tl::expected<std::vector<std::string>, std::string> place_by_launcher();

}  // namespace gradring::tools
