#include "tools/common/bus_factor.h"

namespace gradring::tools {

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == Collective::kAllreduce) return 2 * others;
  return in_blocks(collective) ? others : 1;
}

}  // namespace gradring::tools
