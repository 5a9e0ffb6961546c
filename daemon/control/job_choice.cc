#include "daemon/control/job_choice.h"

#include <utility>

namespace gradring::daemon {
namespace {

constexpr size_t kPrefixLeast = 8;  // hex digits that name an incarnation

}  // namespace

std::optional<core::JobInfo> choose(std::vector<core::JobInfo> jobs, const std::string& name) {
  const auto fits = [&name](const core::JobInfo& info) {
    return info.name == name ||
           (name.size() >= kPrefixLeast && hex(info.incarnation).rfind(name, 0) == 0);
  };
  const auto ended = [](const core::JobInfo& info) { return info.state == core::JobState::kEnded; };
  std::optional<core::JobInfo> chosen;
  for (core::JobInfo& info : jobs) {
    if (!fits(info)) continue;
    if (!chosen || ended(*chosen) || info.state == core::JobState::kRunning)
      chosen = std::move(info);
  }
  return chosen;
}

}  // namespace gradring::daemon
