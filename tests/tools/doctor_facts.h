#pragma once

#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {

// A node in health, of three that are alike: each test spoils what it is about.
Facts healthy_facts();

// The first finding of a check; one whose check is empty if there is none.
Finding finding_of(const Findings& findings, const std::string& check);

}  // namespace gradring::tools::doctor
