#pragma once

#include <string>

namespace gradring::tools {

std::string host_name();

// Whether a host of -H is this one, by its name or by an address of its own. Nobody is asked what a
// name stands for.
bool is_here(const std::string& host);

}  // namespace gradring::tools
