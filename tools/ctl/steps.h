#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client.pb.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

// The rank that the others of a job wait for most.
struct Straggler {
  uint32_t rank = 0;
  std::string node{};
  int64_t pid = 0;
  double late_seconds = 0;      // in the middle one of the steps in which it was late
  uint32_t late = 0;            // such steps
  uint32_t recent = 0;          // of so many
  std::string process_state{};  // letter
};

// None where nobody is late in a third of the last steps, or there were too few; nor where whoever
// is late has no more to do than others.
std::optional<Straggler> straggler_of(const wire::JobReport& report);

// "rank 7 (node b, pid 4711) was late by 41.0 ms in 93 % of the last 500 steps; it is in state S
// sleeping"
std::string describe(const Straggler& straggler);

// Where the time of the ranks' steps goes, as a table; empty where no rank has made one.
std::string steps_of(const wire::JobReport& report, const Style& style);

nlohmann::ordered_json json_of(const Straggler& straggler);
nlohmann::ordered_json json_of(const wire::StepsReport& steps);

}  // namespace gradring::tools
