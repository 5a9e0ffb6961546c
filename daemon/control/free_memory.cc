#include "daemon/control/free_memory.h"

#include <malloc.h>

#include <algorithm>

#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kInterval = 5 * core::kSecond;
// A daemon that does nothing unusual keeps less and never gets to malloc_trim(), which keeps other
// threads out of malloc for milliseconds.
constexpr int64_t kGrowth = 16 << 20;

// What this process has and nobody uses, as far as it is malloc's. What is in use now, in the midst
// of a burst, may be idle when we look again.
int64_t idle_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<int64_t>(own_anonymous_bytes()) -
         static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

}  // namespace

void FreeMemory::tick(core::Time now) {
  if (now < next_) return;
  next_ = now + kInterval;
  const int64_t idle = idle_bytes();
  if (!idle_ || idle <= *idle_ + kGrowth) {
    idle_ = std::min(idle, idle_.value_or(idle));
    return;
  }
  malloc_trim(0);
  idle_ = idle_bytes();
}

}  // namespace gradring::daemon
