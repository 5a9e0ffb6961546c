#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "daemon/worker.h"
#include "transport/shm/segment.h"

namespace gradring::daemon {

// What the sessions of each uid have of this daemon. Any thread may let go of a segment; the rest
// is for one thread. It must outlive all segments that it is charged with.
class Charges {
 public:
  struct Charge {
    uint64_t sessions = 0;
    uint64_t segment_bytes = 0;
    uint64_t segments = 0;
  };
  Charge of(uint32_t uid) const;
  Charge most() const;  // of each the most that a uid has
  uint64_t segments() const;

  void add_session(uint32_t uid);
  void remove_session(uint32_t uid);

  // Charged until its last owner has let it go and its memory is free. The kernel takes 0.1 s for
  // each GiB of that, and longer on a busy machine, so what is large is freed by a thread of its
  // own.
  std::shared_ptr<const transport::Segment> hold(uint32_t uid, transport::Segment segment);
  // How many were handed to that thread, ever.
  uint64_t set_aside() const;
  // Called by that thread, when all that was handed to it by now is free.
  void when_free(std::function<void()> tell) { frees_.put(std::move(tell)); }

 private:
  void let_go(uint32_t uid, const transport::Segment* last);
  void free(uint32_t uid, const transport::Segment* last);
  void forget_unless_charged(uint32_t uid);

  mutable std::mutex mutex_;
  std::map<uint32_t, Charge> charges_;
  uint64_t set_aside_ = 0;
  Worker frees_;
};

}  // namespace gradring::daemon
