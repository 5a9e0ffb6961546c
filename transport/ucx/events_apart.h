#pragma once

#include <cstdint>

namespace gradring::transport {

// Where one look at a socket says that it can be read and written, UCX reads first and then writes
// on whatever is left of the connection; if reading has freed it, because it broke, that is freed
// memory (GOTCHAS.md). So UCX's waits for sockets go through a function of ours that has the name
// of its own, and hands it one kind of event at a time: what is left out comes again, as sockets
// are asked level by level.
//
// How many waits of this process have come that way. 0 although UCX moves data over TCP: the
// program does not export the function, and UCX found its own.
uint64_t waits_seen();

}  // namespace gradring::transport
