#include "daemon/core/late_watch.h"

#include <algorithm>
#include <vector>

namespace gradring::core {
namespace {

constexpr uint32_t kStepsLeast = 20;
constexpr uint32_t kLatePart = 3;       // of the steps
constexpr uint32_t kPunctualPart = 10;  // likewise
constexpr Time kPause = 10 * kSecond;

}  // namespace

void LateWatch::step(bool waited_for, Time late) {
  waited_[next_] = waited_for;
  late_[next_] = late;
  next_ = (next_ + 1) % kWindow;
  seen_ = std::min(seen_ + 1, kWindow);
}

std::optional<LateChange> LateWatch::changed(Time now) {
  if (seen_ < kStepsLeast) return std::nullopt;
  const uint32_t count = times();
  const bool turns = told_late_ ? count * kPunctualPart < seen_ : count * kLatePart >= seen_;
  if (!turns || (told_at_ && now - *told_at_ < kPause)) return std::nullopt;
  told_late_ = !told_late_;
  told_at_ = now;
  return LateChange{.late = told_late_, .times = count, .of = seen_, .median = median()};
}

Time LateWatch::median() const {
  std::vector<Time> late;
  for (uint32_t i = 0; i < seen_; ++i) {
    if (waited_[i]) late.push_back(late_[i]);
  }
  if (late.empty()) return 0;
  const auto middle = late.begin() + static_cast<ptrdiff_t>(late.size() / 2);
  std::nth_element(late.begin(), middle, late.end());
  return *middle;
}

}  // namespace gradring::core
