#include "daemon/control/free_memory.h"

#include <malloc.h>

#include <algorithm>

#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kInterval = 5 * core::kSecond;
// A daemon that does nothing unusual grows by less and never gets to malloc_trim(), which keeps
// other threads out of malloc for milliseconds.
constexpr uint64_t kGrowth = 16 << 20;

}  // namespace

void FreeMemory::tick(core::Time now) {
  if (now < next_) return;
  next_ = now + kInterval;
  const uint64_t had = own_anonymous_bytes();
  if (kept_ == 0 || had <= kept_ + kGrowth) {
    kept_ = kept_ == 0 ? had : std::min(kept_, had);
    return;
  }
  malloc_trim(0);
  kept_ = own_anonymous_bytes();
}

}  // namespace gradring::daemon
