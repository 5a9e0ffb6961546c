#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "proto/types.h"

namespace gradring::core {

enum class JobState : uint8_t { kForming, kProposed, kRunning, kFailed, kEnded };
const char* name_of(JobState state);

// Of a job that any trainer can say to be of a million ranks.
inline constexpr size_t kMissingNamed = 1024;
struct MissingRanks {
  uint32_t count = 0;
  std::vector<uint32_t> first;  // in order, at most kMissingNamed
};

struct JobInfo {
  std::string name;
  JobId incarnation{};  // zero while forming
  JobState state = JobState::kForming;
  uint64_t epoch = 0;
  uint32_t size = 0;
  uint32_t uid = 0;
  std::string policy;
  Time since = 0;
  MissingRanks missing;  // while forming
  std::string explanation;
  bool over = false;  // nobody of it is here any more, and it is only remembered
  // Of a job that is not over. It begins with the incarnation of the job that this one is within.
  std::string token = {};
};

}  // namespace gradring::core
