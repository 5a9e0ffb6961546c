#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "query.pb.h"

namespace gradring::daemon {

// The groups and pairs of a job, of which each node knows those that it has ranks in. A job may
// have very many: of those with which something is amiss people want to hear first.
class Within {
 public:
  static constexpr size_t kToldMost = 64;

  void add(const wire::JobSummary& summary);
  // What another node told.
  void add(const wire::JobReport& part);
  void write_to(wire::JobReport* report) const;

 private:
  std::map<std::pair<std::string, std::string>, wire::JobSummary> jobs_;  // by name and incarnation
  uint32_t left_out_ = 0;
};

}  // namespace gradring::daemon
