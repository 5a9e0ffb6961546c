#pragma once

#include <string>

#include "proto/status.h"

namespace gradring::client {

inline constexpr const char* kDefaultRuntimeDir = "/run/gradring";

std::string attach_path(const std::string& runtime_dir);
std::string control_path(const std::string& runtime_dir);

// The command that starts a daemon there, for error messages.
std::string start_command(const std::string& runtime_dir);

// Whether socket paths in this directory fit into the kernel's address structure.
Status check_length(const std::string& runtime_dir);

// Why `path` could not be connected to, and what to do; UNAVAILABLE. `error` is an errno.
Status unreachable(const std::string& runtime_dir, const std::string& path, int error);

}  // namespace gradring::client
