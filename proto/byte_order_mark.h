#pragma once

#include <string_view>

namespace gradring {

// Some editors begin a file with one; it would be a part of the first word that nobody sees.
inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

}  // namespace gradring
