#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "tools/ctl/flight/file.h"

namespace gradring::tools {

// The names that stand behind an event's numbers, as far as the file still tells them. All that
// come from it may hold anything.
class FlightNames {
 public:
  explicit FlightNames(const std::vector<FlightEntry>& entries);

  // Empty: no job, or its name is not in the file any more.
  std::string job(const JobPrefix& job) const;
  // The node, else "member 3".
  std::string member(const JobPrefix& job, uint32_t index) const;
  // "op 17", "conv1 use 3"
  std::string op(const JobPrefix& job, const OpKey& key) const;

  // The event is about the job that people call so: by its name, or at least eight digits of its
  // incarnation.
  bool is_about(const FlightEntry& entry, std::string_view word) const;
  // Each once.
  std::vector<std::string> jobs() const;

 private:
  std::map<JobPrefix, std::string> jobs_;
  std::map<std::pair<JobPrefix, uint32_t>, std::string> members_;
  std::map<std::pair<JobPrefix, uint64_t>, std::string> ops_;  // by the key's space
};

// Where nothing is recorded of what people called a job: `known` are those that there are, in any
// order.
Status no_such_job(std::string_view word, std::vector<std::string> known);

// One event for people. Not yet printable().
struct ToldEvent {
  std::string what;  // "op submitted"
  std::string job;   // its name, else its incarnation
  std::string op;
  std::string who;
  std::string detail;
  bool bad = false;  // something was lost
};
ToldEvent tell(const FlightEntry& entry, const FlightNames& names);

}  // namespace gradring::tools
