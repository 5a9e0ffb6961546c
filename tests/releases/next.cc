// What the release after this one says of itself: it speaks protocols that this one does not know
// yet, and still those of this one. To be moved on whenever proto/version.cc is.
#include "proto/version.h"

namespace gradring {

const Protocols kClientProtocols{1, 2};
const Protocols kPeerProtocols{9, 10};
const char* const kProductVersion = "0.2.0";
const uint32_t kRingLayout = 7;

}  // namespace gradring
