#pragma once

#include <cstdint>

namespace gradring::daemon {

// Raises the limit of open files as far as this user may: trainers, peers and segments take some
// each.
void raise_file_limit();

// How many mappings the kernel lets a process have: each segment takes some.
uint64_t mappings_limit();

}  // namespace gradring::daemon
