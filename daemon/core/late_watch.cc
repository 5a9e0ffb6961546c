#include "daemon/core/late_watch.h"

namespace gradring::core {
namespace {

constexpr uint32_t kStepsLeast = 20;
constexpr uint32_t kLatePart = 3;       // of the steps
constexpr uint32_t kPunctualPart = 10;  // likewise
constexpr Time kPause = 10 * kSecond;

}  // namespace

bool LateWatch::turns(uint32_t times, uint32_t of, Time now) {
  if (of < kStepsLeast) return false;
  const bool turned = late_ ? times * kPunctualPart < of : times * kLatePart >= of;
  if (!turned || (told_at_ && now - *told_at_ < kPause)) return false;
  late_ = !late_;
  told_at_ = now;
  return true;
}

}  // namespace gradring::core
