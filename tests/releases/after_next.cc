// What the release after the next one says of itself: it has forgotten the protocols of this one.
#include "proto/version.h"

namespace gradring {

const Protocols kClientProtocols{2, 3};
const Protocols kPeerProtocols{10, 11};
const char* const kProductVersion = "0.3.0";
const uint32_t kRingLayout = 8;

}  // namespace gradring
