#include "client/src/gpu/stream_words.h"

namespace gradring::client {

std::optional<std::pair<uint32_t, StreamWord>> StreamWords::take(uint32_t parts, By by) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < kCount; ++i) {
    if (!is_free(i)) continue;
    Word& taken = words_[i];
    taken.taken = true;
    taken.by = by;
    taken.value += parts;
    if (taken.value == 0) ++taken.value;  // 0 says that there is no word
    return std::pair(i, word(i, parts));
  }
  return std::nullopt;
}

bool StreamWords::is_free(uint32_t number) const {
  const Word& last = words_[number];
  return !last.taken && (last.by == By::kHost || word(number, 1).has_come());
}

StreamWord StreamWords::word(uint32_t number, uint32_t parts) const {
  auto* const at = reinterpret_cast<uint32_t*>(segment_ + offset_of(number));
  return {at, words_[number].value, parts};
}

// Its value stays: a stream may come to it later than whoever gave it back.
void StreamWords::give_back(uint32_t number) {
  const std::lock_guard lock(mutex_);
  words_[number].taken = false;
}

}  // namespace gradring::client
