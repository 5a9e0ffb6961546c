#pragma once

#include <cstddef>
#include <cstdint>

// A driver of GPUs that are made of the host's memory, under the driver's own name: what the
// library and the daemon look up finds it. Its addresses cannot be read by the host, as little as
// those of a GPU; and what is put on a stream is done a moment later, by a thread of its own.
namespace gradring::test {

// What a program does with a GPU. Any thread.
struct TestGpu {
  // `pooled`: of no context, as memory of cudaMallocAsync is.
  uint64_t (*alloc)(size_t bytes, bool pooled);
  void (*free)(uint64_t address);
  // Null is the default stream.
  void* (*make_stream)();
  void (*end_stream)(void* stream);
  // What a kernel would write, when the stream gets there.
  void (*fill_later)(void* stream, uint64_t address, float value, size_t count);
  // What is put on the stream from now on waits until that is over: a kernel that takes its time.
  void (*hold)(void* stream, bool on);
  void (*wait_for)(void* stream);
  void (*read)(uint64_t address, void* data, size_t bytes);
  void (*write)(uint64_t address, const void* data, size_t bytes);
};

struct CudaTwin {
  TestGpu gpu;
  // The host's memory that an allocation is made of, for work that is put on a stream
  // (cuLaunchHostFunc).
  void* (*behind)(uint64_t address);
  // Into a graph, begun by the calling thread as torch.cuda.graph does; the end says whether
  // nobody has spoilt it.
  bool (*capture)(void* stream, bool on);
  // From now on this function answers so; 0: as it should. "later": whatever a GPU does with memory
  // fails so, when the stream gets there, and the GPU does nothing more until it is 0 again, when
  // all are as new. "imported": what it does with memory of another process,
  // unless that is open in its own context; 700 at first, while at 0 a peer that opened it is
  // enough. "cuIpcOpenMemHandle_v2 elsewhere": of a handle whose memory lies on another GPU.
  // "peers lose": what kernels of one GPU read of another's memory, or write there, is lost, and
  // nobody is told. "cuDeviceGetAttribute": whether they lend their memory as DMA-BUFs.
  void (*answer)(const char* function, int result);
  // What somebody holds on to: pinned ranges, streams, events, modules, memory of cuMemAlloc or of
  // another process, pages and addresses, primary contexts and contexts of a thread. Streams of
  // make_stream and memory of alloc do not count.
  int (*held)();

  // From now on there are so many GPUs, 4 at the most; at first there is one, or as many as
  // GRADRING_TWIN_GPUS says. What is said above of the GPU is said of the first.
  void (*have)(int count);
  uint64_t (*alloc_on)(int gpu, size_t bytes);
  void* (*make_stream_on)(int gpu);
  // hold() of all streams that somebody has on it. Where GRADRING_TWIN_HANGS names a file, as long
  // as that is there all streams of that process are held; if a number is in it, those of that GPU.
  void (*hold_gpu)(int gpu, bool on);
  // Whoever calls this function waits until that is over. For those that may take their time: they
  // pin, allocate, give back, make streams or handles, or bring a result by a stream that has much
  // to do.
  void (*stall)(const char* function, bool on);
  // From now on whoever gives memory back or unpins it waits for all that is on the GPU's streams,
  // as a driver may in any call. Ranks that are threads of one process would wait for one another.
  // At first only where there is GRADRING_TWIN_SETTLES in the environment.
  void (*settle)(bool on);
  // How often somebody has entered a context.
  int (*entries)();
  // For the stack of each thread, in primary contexts.
  size_t (*stack_bytes)();
  // Contexts are shared by MPS.
  void (*share_contexts)(bool on);
  // All streams that are made from now on share so many connections in turns, as a GPU's do: what
  // waits on one keeps those waiting that come behind it on the same. 0: each has its own, as at
  // first unless GRADRING_TWIN_CONNECTIONS says otherwise.
  void (*share)(int connections);
  // Its context answers with an error from now on, and it does nothing more, as one that has fallen
  // off the bus. So does the GPU whose number is in the file that GRADRING_TWIN_LOST names, if it
  // is there.
  void (*lose)(int gpu, bool on);
  // The stream has as much work as a driver takes: whoever records an event there waits until that
  // is over. On a GPU so does whoever puts anything else there.
  void (*fill_up)(void* stream, bool on);
  // So much at most was on one stream of a GPU's at a time, until now. (What a driver takes before
  // it has its caller wait depends on it: some 1,000.)
  size_t (*most)();
};

// Loads it into this process, once.
const CudaTwin& cuda_twin();

// The twin; or, where GRADRING_TEST_GPU is "real", the first GPU of this machine.
const TestGpu& test_gpu();
bool is_real();
const TestGpu& real_gpu();

}  // namespace gradring::test
