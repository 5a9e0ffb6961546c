#include "client/src/gpu/awaited_words.h"

namespace gradring::client {

// Never destroyed: what static objects own may be let go of while they are being destroyed.
AwaitedWords& AwaitedWords::get() {
  static auto* const the_words = new AwaitedWords;
  return *the_words;
}

void AwaitedWords::add(const std::shared_ptr<const Mapping>& memory, const StreamWord& word) {
  const std::lock_guard lock(mutex_);
  any();
  all_.push_back({memory, word});
}

bool AwaitedWords::any() {
  std::erase_if(all_, [](const Awaited& awaited) {
    const auto there = awaited.memory.lock();
    return there == nullptr || awaited.word.has_come();
  });
  return !all_.empty();
}

}  // namespace gradring::client
