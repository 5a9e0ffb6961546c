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

}  // namespace gradring::daemon
