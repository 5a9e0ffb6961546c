#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "proto/stream_word.h"

namespace gradring::client {

// The words (proto/stream_word.h) that lie behind the shadow of a GPU's memory, in the same
// segment. Thread-safe.
class StreamWords {
 public:
  // More ops than that on one buffer at a time go without.
  static constexpr uint64_t kCount = 64;
  // A cache line each, since the daemon looks at one while a stream writes its neighbour.
  static constexpr uint64_t kStride = 64;
  static constexpr uint64_t kBytes = kCount * kStride;
  // Where they begin behind `bytes` of a buffer.
  static constexpr uint64_t behind(uint64_t bytes) {
    return (bytes + kStride - 1) / kStride * kStride;
  }

  StreamWords(std::byte* segment, uint64_t offset) : segment_(segment), offset_(offset) {}

  // Who writes it. A stream may come to that long after the op has failed and the word was given
  // back, and what it writes then is less than the word had from the next one: nobody has the word
  // until it has come.
  enum class By : uint8_t { kHost, kStream };
  // With values that none before it had; nothing if all are in use.
  std::optional<std::pair<uint32_t, StreamWord>> take(uint32_t parts, By by);
  void give_back(uint32_t number);
  // Within the segment.
  uint64_t offset_of(uint32_t number) const { return offset_ + number * kStride; }

 private:
  struct Word {
    uint32_t value = 0;  // the last one given out
    bool taken = false;
    By by = By::kHost;
  };
  bool is_free(uint32_t number) const;
  StreamWord word(uint32_t number, uint32_t parts) const;
  std::byte* const segment_;
  const uint64_t offset_;
  std::mutex mutex_;
  std::array<Word, kCount> words_;
};

}  // namespace gradring::client
