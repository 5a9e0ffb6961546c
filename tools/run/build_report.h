#pragma once

#include <string>

namespace gradring::tools {

// For --check-build: what this build has, and which frameworks the python3 of PATH can use with it.
std::string describe_build();

}  // namespace gradring::tools
