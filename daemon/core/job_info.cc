#include "daemon/core/job_info.h"

namespace gradring::core {

const char* name_of(JobState state) {
  switch (state) {
    case JobState::kForming:
      return "forming";
    case JobState::kProposed:
      return "proposed";
    case JobState::kRunning:
      return "running";
    case JobState::kFailed:
      return "failed";
    case JobState::kEnded:
      return "ended";
  }
  return "unknown";
}

}  // namespace gradring::core
