#include "proto/version.h"

namespace gradring {

const Protocols kClientProtocols{1, 1};
const Protocols kPeerProtocols{9, 9};
const char* const kProductVersion = "0.1.0";
const uint32_t kRingLayout = 6;

}  // namespace gradring
