#pragma once

#include <cstdint>

namespace gradring {

// Sanitizers make runs ten times slower and see most in a few of them; the many are for builds
// without.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

constexpr uint64_t fewer_if_sanitized(uint64_t repetitions) {
  return kSanitized ? (repetitions + 9) / 10 : repetitions;
}

}  // namespace gradring
