#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/discovery/peer_source.h"

namespace gradring::daemon {

// Asks the sources of discover again and again, on a thread of its own, and tells when their
// answer is another one. A source that fails keeps its last answer, and the log has why: a name
// server that is away takes no node out of a ring.
class Discovery {
 public:
  // Called on that thread with the addresses of all sources, sorted, each once.
  using Found = std::function<void(const Addresses& addresses)>;

  // `listens`: as in peer_source.h.
  Discovery(std::vector<PeerSource> sources, Variable variable, Found found,
            Addresses listens = {});
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;
  // From here on `found` is not called. Waits for no name server: a lookup that is under way ends
  // by itself.
  ~Discovery();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace gradring::daemon
