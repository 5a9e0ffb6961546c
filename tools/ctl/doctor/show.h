#pragma once

#include "tools/ctl/command.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {

struct Section {
  std::string title;
  std::string scope;  // in the JSON
  Findings findings;
};

// All checks, in the order in which people read them. Pure.
std::vector<Section> examine(const Facts& facts);

// Lines for people, and the same for scripts; every FAIL is a problem.
Answer show(const std::vector<Section>& sections, const Style& style);

}  // namespace gradring::tools::doctor
