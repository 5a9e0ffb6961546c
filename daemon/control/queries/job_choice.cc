#include "daemon/control/queries/job_choice.h"

#include <utility>

namespace gradring::daemon {
namespace {

constexpr size_t kPrefixLeast = 8;  // hex digits that name an incarnation

int nearness(const core::JobInfo& info) {
  if (info.over) return 0;
  return info.state == core::JobState::kRunning ? 2 : 1;
}

}  // namespace

std::optional<core::JobInfo> choose(std::vector<core::JobInfo> jobs, const std::string& name) {
  const auto fits = [&name](const core::JobInfo& info) {
    return info.name == name ||
           (name.size() >= kPrefixLeast && hex(info.incarnation).rfind(name, 0) == 0);
  };
  std::optional<core::JobInfo> chosen;
  for (core::JobInfo& info : jobs) {
    if (!fits(info)) continue;
    const bool later = info.over && chosen && chosen->over;  // they are in the order of their ends
    if (!chosen || later || nearness(info) > nearness(*chosen)) chosen = std::move(info);
  }
  return chosen;
}

}  // namespace gradring::daemon
