#include "client/src/stream_words.h"

namespace gradring::client {

std::optional<std::pair<uint32_t, StreamWord>> StreamWords::take(uint32_t parts) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < kCount; ++i) {
    Word& word = words_[i];
    if (word.taken) continue;
    word.taken = true;
    word.value += parts;
    if (word.value == 0) ++word.value;  // 0 says that there is no word
    auto* const at = reinterpret_cast<uint32_t*>(segment_ + offset_of(i));
    return std::pair(i, StreamWord{at, word.value, parts});
  }
  return std::nullopt;
}

// Its value stays: a stream may come to it later than whoever gave it back.
void StreamWords::give_back(uint32_t number) {
  const std::lock_guard lock(mutex_);
  words_[number].taken = false;
}

}  // namespace gradring::client
