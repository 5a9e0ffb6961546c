#pragma once

#include <cstddef>
#include <cstdint>

// A driver of one GPU that is made of the host's memory, under the driver's own name: what the
// library looks up finds it. Its addresses cannot be read by the host, as little as those of a GPU;
// and what is put on a stream is done a moment later, by a thread of its own.
namespace gradring::test {

struct CudaTwin {
  // `pooled`: of no context, as memory of cudaMallocAsync is.
  uint64_t (*alloc)(size_t bytes, bool pooled);
  void (*free)(uint64_t address);
  // What a kernel would write, when the stream gets there. Null: the default stream.
  void (*write_later)(void* stream, uint64_t address, const void* data, size_t bytes);
  // Does not go on as long as that is so: a kernel that takes its time.
  void (*hold)(void* stream, bool on);
  // As its own program would; from any thread.
  void (*wait_for)(void* stream);
  void (*read)(uint64_t address, void* data, size_t bytes);
  void (*capture)(void* stream, bool on);
  // From now on this function answers so; 0: as it should.
  void (*answer)(const char* function, int result);
  // What somebody holds on to: pinned ranges, streams, events, primary contexts and contexts of a
  // thread.
  int (*held)();
};

// Loads it into this process, once.
const CudaTwin& cuda_twin();

}  // namespace gradring::test
