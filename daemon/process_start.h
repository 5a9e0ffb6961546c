#pragma once

#include <string>

namespace gradring::daemon {

// What a process sets up for itself before its first thread.

// First of all. Of a daemon that is started with one of its three closed, something else would be
// opened there, and the log would go into it: into a trainer's socket, say.
void fill_standard_descriptors();

// In every thread that will be: the control thread reads them from a descriptor.
void block_signals();

// To the journal, or else to stderr. `level`: as spdlog names it.
void start_logging(const std::string& level);

}  // namespace gradring::daemon
