#pragma once

#include <string>

#include "transport/machine/machine.h"

namespace gradring::machine {

// A recorded machine of tests/machines, as it comes out in the end; fails the test if it cannot.
Machine recorded(const std::string& name);
std::string folder_of(const std::string& name);
int nic_named(const Machine& machine, const std::string& name);

}  // namespace gradring::machine
