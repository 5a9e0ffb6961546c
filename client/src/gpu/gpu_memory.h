#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tl/expected.hpp>

#include "client/src/gpu/gpu_context.h"
#include "client/src/gpu/gpu_handle.h"
#include "client/src/gpu/stream_marks.h"
#include "client/src/gpu/stream_words.h"
#include "client/src/memory/mapping.h"
#include "proto/status.h"

namespace gradring::client {

class GpuMemory;

// A word that a request holds, with the memory behind which it lies. Moves, does not copy.
class HeldWord {
 public:
  HeldWord() = default;
  HeldWord(std::shared_ptr<const GpuMemory> memory, uint32_t number, StreamWord word)
      : memory_(std::move(memory)), number_(number), word_(word) {}
  HeldWord(HeldWord&& other) noexcept { *this = std::move(other); }
  HeldWord& operator=(HeldWord&& other) noexcept;
  ~HeldWord();

  bool any() const { return memory_ != nullptr; }
  const StreamWord& word() const { return word_; }
  uint64_t offset() const;  // within the segment

 private:
  std::shared_ptr<const GpuMemory> memory_;
  uint32_t number_ = 0;
  StreamWord word_;
};

// Registered memory of a GPU: what copies it to the segment that follows it, and back. Copies are
// made by the GPU, out of and into pages that are pinned where the system allows it. Thread-safe.
//
// Where the driver has what it takes and the pages are pinned, streams are put into an order with
// the daemon's work by words in that segment, and nobody waits: begin() and deliver_on(). Else the
// caller waits: fetch() and deliver().
class GpuMemory : public std::enable_shared_from_this<GpuMemory> {
 public:
  // What the shadow of a buffer needs, the words included.
  static uint64_t shadow_bytes(uint64_t bytes) {
    return StreamWords::behind(bytes) + StreamWords::kBytes;
  }
  static bool is_of_a_gpu(const void* memory);
  // Of `bytes` from there on. An error says why it cannot be used.
  static tl::expected<std::shared_ptr<const GpuMemory>, Status> of(
      const void* memory, uint64_t bytes, std::shared_ptr<const Mapping> shadow);
  // By which the daemon may open as much of it.
  tl::expected<GpuHandle, Status> handle(const void* memory, uint64_t bytes) const {
    return handle_of(*context_, memory, bytes);
  }
  // Whether this is of the same GPU.
  bool serves(const void* memory) const { return context_->has(memory); }
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // A word for so many parts, if streams can be put into an order and one is free; else one that is
  // none.
  HeldWord take_word(uint32_t parts, StreamWords::By by) const;
  void give_back(uint32_t word) const { words_.give_back(word); }
  uint64_t offset_of(uint32_t word) const { return words_.offset_of(word); }

  // What is copied by one stream, in as many parts of so many bytes as its word has: the last may
  // be shorter.
  struct Copy {
    std::byte* shadow = nullptr;
    std::byte* device = nullptr;
    uint64_t bytes = 0;
    uint64_t part_bytes = 0;
    bool within_gpu = false;  // the shadow is a GpuBlock, else the host's
    // The daemon reaches the memory itself, and no shadow's order is to be kept: there are no
    // bytes, and the word is all that streams have to do with.
    bool in_place = false;
  };
  // Behind what was put on `stream` until now, and behind all that begin() and deliver_on() of
  // `others` have begun: copies part after part to the shadow, unless there are no bytes, and sets
  // the word for each. Not waited for. Refused where the stream is being captured into a graph.
  // False: the driver does not do that after all.
  tl::expected<bool, Status> begin(const Copy& copy, CudaDriver::Stream stream,
                                   const StreamWord& reached,
                                   std::span<const GpuMemory* const> others) const;
  // `stream` waits for each part, and then copies it from the shadow, unless there are no bytes.
  // Not waited for; likewise.
  tl::expected<bool, Status> deliver_on(CudaDriver::Stream stream, const StreamWord& ended,
                                        const Copy& copy) const;

  // `stream` waits for all that deliver_on() has begun.
  Status join_delivery(CudaDriver::Stream stream) const;

  // Waits until the GPU has done what was put on `stream` until now. Refused where the stream is
  // being captured into a graph: nothing is done then that could be waited for.
  Status reach(CudaDriver::Stream stream) const;
  // Behind what was put on `stream` until now, and waits for it as well.
  Status fetch(std::byte* host, const std::byte* device, uint64_t bytes,
               CudaDriver::Stream stream) const;
  // Waits until it is there.
  Status deliver(const Copy& copy) const;

 private:
  GpuMemory(std::shared_ptr<const GpuContext> context, uint64_t bytes,
            std::shared_ptr<const Mapping> shadow);
  // In the context, these.
  CudaDriver::Result to_shadow(const Copy& copy, CudaDriver::Stream stream) const;
  CudaDriver::Result from_shadow(const Copy& copy, CudaDriver::Stream stream) const;
  CudaDriver::Result not_captured(CudaDriver::Stream stream) const;
  CudaDriver::Result begin_on(CudaDriver::Stream by, const Copy& copy, const StreamWord& reached,
                              CudaDriver::Address word) const;
  CudaDriver::Result follow_all(CudaDriver::Stream later) const;
  // For an order by this word: its address, and that the stream is not captured.
  CudaDriver::Result prepare(CudaDriver::Stream stream, const StreamWord& word,
                             CudaDriver::Address* address) const;
  Status capture_or(CudaDriver::Result result, std::string_view what) const;

  const std::shared_ptr<const GpuContext> context_;
  const std::shared_ptr<const Mapping> shadow_;
  mutable StreamWords words_;
  bool pinned_ = false;
  // What brings results out of the shadow, and whatever else streams have to do with it: ops in one
  // memory must not wait for one another, but whoever lets go of it must wait for all.
  mutable StreamMarks results_;
  mutable StreamMarks rest_;
};

}  // namespace gradring::client
