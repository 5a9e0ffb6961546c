#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradring {

// Protocol versions count incompatible changes. Each side of a channel names the newest it speaks
// and the oldest it still does; they use the newest that both speak, and if there is none the hello
// is refused in words. Independent of the product's SemVer version.
struct Protocols {
  uint32_t oldest = 0;  // 0, of the other side: it named the newest alone
  uint32_t newest = 0;
};

// Of this build; told apart from their declarations so that the tests can link the same objects
// into programs of other releases.
extern const Protocols kClientProtocols;
extern const Protocols kPeerProtocols;
extern const char* const kProductVersion;
// Of the rings that a trainer and its daemon share (proto/ring.h). With another one they have none,
// and say all in messages.
extern const uint32_t kRingLayout;

// The newest that both speak.
std::optional<uint32_t> common_protocol(const Protocols& ours, const Protocols& theirs);

// "2", or "1 to 2".
std::string describe(const Protocols& protocols);

}  // namespace gradring
