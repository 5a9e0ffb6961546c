#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace gradring::daemon {

// What systemd lets a stored descriptor be called; it drops any other name without a word to us.
inline bool is_fd_name(std::string_view name) {
  constexpr size_t kLengthMax = 255;
  return !name.empty() && name.size() <= kLengthMax &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c < '\x7f' && c != ':'; });
}

// All names come back in one variable, $LISTEN_FDNAMES, and the kernel executes no program with a
// variable of more than 128 KiB. Whoever stores more could not be started again.
inline constexpr size_t kFdNamesBytesMax = (128 << 10) - 64;

}  // namespace gradring::daemon
