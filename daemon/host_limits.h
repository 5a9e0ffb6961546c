#pragma once

namespace gradring::daemon {

// Raises the limit of open files as far as this user may: trainers, peers and segments take some
// each.
void raise_file_limit();

}  // namespace gradring::daemon
