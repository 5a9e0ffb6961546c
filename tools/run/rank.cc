#include "tools/run/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "tools/run/rendezvous.h"

namespace gradring::tools {
namespace {

struct Names {
  const char *rank, *size, *local_rank, *local_size;
};

// An mpirun in an allocation starts what it has on other nodes by srun, so it is asked first.
constexpr Names kMpirun = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
// The last lists the ranks of this node.
constexpr Names kSrun = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_GTIDS"};

}  // namespace

tl::expected<std::vector<std::string>, std::string> place_by_launcher() {
  const bool by_mpirun = std::getenv(kMpirun.rank) != nullptr;
  const Names& names = by_mpirun ? kMpirun : kSrun;
  std::vector<std::string> values;
  for (const char* name : {names.rank, names.size, names.local_rank, names.local_size}) {
    const char* value = std::getenv(name);
    if (value == nullptr)
      return tl::unexpected(fmt::format("{} is not set, by which {} tells a rank its place", name,
                                        by_mpirun ? "mpirun" : "srun"));
    values.emplace_back(value);
  }
  std::string local_size = values[3];
  if (!by_mpirun) local_size = std::to_string(1 + std::ranges::count(local_size, ','));
  std::vector<std::string> place = {"RANK=" + values[0],
                                    "WORLD_SIZE=" + values[1],
                                    "LOCAL_RANK=" + values[2],
                                    "LOCAL_WORLD_SIZE=" + local_size,
                                    "HOROVOD_RANK=" + values[0],
                                    "HOROVOD_SIZE=" + values[1],
                                    "HOROVOD_LOCAL_RANK=" + values[2],
                                    "HOROVOD_LOCAL_SIZE=" + local_size};
  // mpirun's ranks have them from whoever started it.
  if (!by_mpirun) std::ranges::copy(rendezvous_in_step(), std::back_inserter(place));
  return place;
}

}  // namespace gradring::tools
