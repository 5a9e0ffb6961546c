#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::daemon {

// The hosts of a list as Slurm writes it (hostlist expressions of scontrol(1)):
// "gpu[01-03,07],login" is gpu01, gpu02, gpu03, gpu07, login; several brackets multiply, the last
// varying first. The error says what is not understood. Pure.
tl::expected<std::vector<std::string>, std::string> expand_host_list(const std::string& text);

}  // namespace gradring::daemon
