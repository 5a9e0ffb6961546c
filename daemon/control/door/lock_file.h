#pragma once

#include <string>
#include <tl/expected.hpp>

#include "daemon/fd.h"

namespace gradring::daemon {

// Makes the runtime directory, if need be, and takes its lock: one daemon each, and one keeper
// (with another file). The lock is held as long as the result lives and goes with the process,
// however that ends. The error says what to change.
tl::expected<Fd, std::string> lock_runtime_dir(const std::string& directory,
                                               const std::string& file = "lock");

// The same question without taking anything: empty, or what is wrong with the directory.
std::string fault_of_runtime_dir(const std::string& directory);

// Empty, or by whom the sockets in it could be replaced, though they may not write to them.
std::string risk_of_runtime_dir(const std::string& directory);

}  // namespace gradring::daemon
