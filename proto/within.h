#pragma once

#include <cstdint>
#include <string>

#include "proto/types.h"

namespace gradring {

// How the launch tokens of all groups and pairs of a job's ranks begin: nobody who does not know
// the job makes one like it.
inline std::string tokens_within(const JobId& job) { return hex(job) + "-"; }

// The token itself. The ranks come to the same one without a word between them. `grown`: the epoch
// in which the job took in ranks last.
inline std::string token_within(const JobId& job, uint64_t grown) {
  return tokens_within(job) + std::to_string(grown);
}

}  // namespace gradring
