#include "client/src/gpu/gpu_shares.h"

#include <algorithm>
#include <utility>

namespace gradring::client {

GpuShares::Share* GpuShares::find(const GpuAllocation* allocation) {
  const auto found = all_.find(allocation);
  return found == all_.end() ? nullptr : &found->second;
}

GpuShares::Share& GpuShares::insert(Share share) {
  const GpuAllocation* const allocation = share.allocation.get();
  return all_.insert_or_assign(allocation, std::move(share)).first->second;
}

std::vector<GpuShares::Share> GpuShares::take_withdrawn() {
  std::vector<Share> taken;
  for (auto at = all_.begin(); at != all_.end();) {
    Share& share = at->second;
    const bool lent = share.segment && share.segment->lent > 0;
    if (lent || !share.allocation->withdrawn()) {
      ++at;
      continue;
    }
    taken.push_back(std::move(share));
    at = all_.erase(at);
  }
  return taken;
}

bool GpuShares::any_withdrawn() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const auto& entry) { return entry.second.allocation->withdrawn(); });
}

std::vector<uint64_t> GpuShares::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [allocation, share] : all_) {
    if (share.segment) ids.push_back(share.segment->id);
  }
  return ids;
}

}  // namespace gradring::client
