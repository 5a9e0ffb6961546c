#include "client/src/utf8.h"

#include <cstddef>
#include <cstdint>

namespace gradring::client {
namespace {

// Bytes of the character that begins with this one; 0 if none does.
size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

// Overlong forms, surrogates, and what lies beyond the last character.
bool is_forbidden(uint32_t character, size_t length) {
  if (length == 3) return character < 0x800 || (character >= 0xd800 && character < 0xe000);
  return length == 4 && (character < 0x10000 || character > 0x10ffff);
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = length_of(first);
    if (length == 0 || length > text.size() - at) return false;
    uint32_t character = length == 1 ? first : first & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      character = (character << 6) | (next & 0x3f);
    }
    if (is_forbidden(character, length)) return false;
    at += length;
  }
  return true;
}

}  // namespace gradring::client
