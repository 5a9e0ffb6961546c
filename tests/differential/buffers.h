#pragma once

#include <gradring/gradring.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "tests/differential/values.h"

namespace gradring::differential {

// Memory that the ops of a communicator's family may name, dealt out from front to back: the
// daemon's, a trainer's own that is copied in and out, or a GPU's. Of a GPU's the host has a copy,
// which is as the GPU's after put() and get().
class Arena {
 public:
  enum class Kind : uint8_t { kAllocated, kRegistered, kOnGpu, kRegisteredOnGpu, kPooledOnGpu };

  // `gpu`: of the kinds that need one, by CUDA's number `device`. Throws Error.
  Arena(gradring_comm* comm, uint64_t bytes, Kind kind, const test::TestGpu* gpu, int device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to a cache line. Stops the program where there is no more.
  std::byte* take(uint64_t bytes);
  void take_back_all() { used_ = 0; }

  bool on_gpu() const { return gpu_ != nullptr; }
  // As an op names it.
  void* named(const std::byte* at) const;
  void put(const std::byte* at, uint64_t bytes) const;
  void get(std::byte* at, uint64_t bytes) const;
  // Of a GPU; null: of the host.
  void* stream() const { return stream_; }
  void wait_for_stream() const;

 private:
  bool is_registered() const {
    return kind_ == Kind::kRegistered || kind_ == Kind::kRegisteredOnGpu;
  }
  uint64_t on_gpu(const std::byte* at) const {
    return gpu_begin_ + static_cast<uint64_t>(at - memory_);
  }

  gradring_comm* const comm_;
  const uint64_t bytes_;
  const Kind kind_;
  const test::TestGpu* gpu_ = nullptr;
  std::unique_ptr<std::byte[]> own_;
  std::byte* memory_ = nullptr;
  uint64_t gpu_begin_ = 0;
  void* stream_ = nullptr;
  uint64_t used_ = 0;
};

// Where a buffer is to be.
struct Place {
  bool registered = false;
  bool on_gpu = false;
  bool pooled = false;  // of the library's memory, if it is on a GPU and not registered
};

// One of each kind, made when it is first needed.
class Arenas {
 public:
  // `gpu`: null: nothing is on one. `all_on_gpu`: all is.
  Arenas(gradring_comm* comm, uint64_t bytes, const test::TestGpu* gpu, int device, bool all_on_gpu)
      : comm_(comm), bytes_(bytes), gpu_(gpu), device_(device), all_on_gpu_(all_on_gpu) {}

  // Throws Error.
  Arena& of(const Place& place);
  void take_back_all();

 private:
  gradring_comm* const comm_;
  const uint64_t bytes_;  // of each
  const test::TestGpu* const gpu_;
  const int device_;
  const bool all_on_gpu_;
  std::array<std::unique_ptr<Arena>, 5> arenas_;
};

// A buffer with a margin in front and behind it, of which every byte that is not known to be
// overwritten must stay as it is.
class Buffer {
 public:
  Buffer(Arena& arena, uint64_t bytes, uint64_t shift);

  // What the host knows of it.
  std::byte* data() const { return data_; }
  // As an op names it, `at` bytes into it.
  void* named(uint64_t at) const { return arena_->named(data_ + at); }
  const Arena& arena() const { return *arena_; }
  // What the host knows of it is as it is now.
  void look();
  // Puts an input into it.
  void fill(uint64_t at, uint64_t bytes, const Bytes& cycle);
  // Whatever lies there now may lie there.
  void accept(uint64_t at, uint64_t bytes);
  // What has changed, in words; empty if nothing has.
  std::string fault() const;

 private:
  const Arena* arena_;
  uint64_t bytes_;
  std::byte* data_;
  Bytes image_;  // with the margins
};

}  // namespace gradring::differential
