#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "client/src/gpu/gpu_pool.h"
#include "client/src/memory/segments.h"

namespace gradring::client {

// What of the GpuPool a communicator's daemon has open, and by which segment. Not thread-safe; a
// Segment stays where it is until it is taken out.
class GpuShares {
 public:
  struct Share {
    std::shared_ptr<const GpuAllocation> allocation;
    std::optional<Segment> segment;  // none: the daemon had no room for one
  };

  // Null: it was not asked for yet.
  Share* find(const GpuAllocation* allocation);
  Share& insert(Share share);
  // Those that are withdrawn, and not lent.
  std::vector<Share> take_withdrawn();
  bool any_withdrawn() const;
  std::vector<uint64_t> ids() const;
  void clear() { all_.clear(); }

 private:
  std::map<const GpuAllocation*, Share> all_;
};

}  // namespace gradring::client
