#pragma once

#include <cstdint>

namespace gradring {

// Protocol versions count incompatible changes; the hello on each channel refuses another number in
// words. They are independent of the product's SemVer version.
inline constexpr uint32_t kClientProtocol = 1;
inline constexpr uint32_t kPeerProtocol = 2;

inline constexpr const char* kProductVersion = "0.1.0";

}  // namespace gradring
