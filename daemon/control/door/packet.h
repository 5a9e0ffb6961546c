#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "daemon/fd.h"

namespace gradring::daemon {

// One packet of a socket that keeps them apart, and the descriptors that came with it. As recv()
// with MSG_TRUNC: the length that it had, which may be more than there was room for; 0 at the end
// of the socket; -1 and errno. -1 and EMSGSIZE: more descriptors came than anybody sends, or than
// this process may have; none is left open.
ssize_t receive_packet(int socket, std::span<char> packet, std::vector<Fd>* descriptors);

// Whether those who connect to `listener` may send descriptors. Whoever drops the last reference to
// a file closes it, and that may take as long as its sender likes: a TCP socket lingers. Before
// Linux 6.16 everybody may.
void take_descriptors(int listener, bool take);

}  // namespace gradring::daemon
