#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace gradring::daemon {

// Counts who is ready for each op, for the flight recorder alone: the engine knows it, but tells
// nobody. Constant memory: ops far apart in number may share a place, and the older one's count is
// then lost, so that the recorder says less, but nothing that is not so.
class ReadyTally {
 public:
  // One more is ready for `key`; returns how many are.
  uint32_t add(const OpKey& key) {
    Entry& entry = at(key);
    if (entry.key != key) entry = {key, 0};
    return ++entry.count;
  }
  // The op has ended.
  void forget(const OpKey& key) {
    Entry& entry = at(key);
    if (entry.key == key) entry.count = 0;
  }

 private:
  struct Entry {
    OpKey key;
    uint32_t count = 0;
  };
  static constexpr size_t kOps = 256;

  Entry& at(const OpKey& key) { return entries_[(key.space + key.sequence) % kOps]; }

  std::array<Entry, kOps> entries_{};
};

}  // namespace gradring::daemon
