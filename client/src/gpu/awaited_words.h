#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/memory/mapping.h"
#include "proto/stream_word.h"

namespace gradring::client {

// The words that streams of this process's GPUs have been put to wait for. A driver that unpins or
// frees memory waits for all streams; so whoever has it do so waits for those ops too, and their
// other ranks may wait for what he is about to submit. Thread-safe; not for a forked child.
class AwaitedWords {
 public:
  static AwaitedWords& get();

  // A stream is about to wait for this one, which lies there.
  void add(const std::shared_ptr<const Mapping>& memory, const StreamWord& word);

  // Calls it, and no stream is put to wait meanwhile. False: one waits already, for an op that has
  // not ended, and it was not called.
  template <typename Act>
  bool unless_any(Act act) {
    const std::lock_guard lock(mutex_);
    if (any()) return false;
    act();
    return true;
  }

 private:
  struct Awaited {
    std::weak_ptr<const Mapping> memory;
    StreamWord word;
  };
  bool any();

  std::mutex mutex_;
  std::vector<Awaited> all_;  // about as many as ops at a time
};

}  // namespace gradring::client
