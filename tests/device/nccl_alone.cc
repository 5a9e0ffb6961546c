// NCCL is loaded, not linked: whatever libnccl.so.2 the machine has answers. Of its interface,
// which is stable within version 2, what is needed here is said below.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

using Comm = void*;
struct UniqueId {
  char bytes[128];
};
// Values of ncclResult_t, ncclDataType_t and ncclRedOp_t.
constexpr int kSuccess = 0;
constexpr int kFloat32 = 7;
constexpr int kSum = 0;

class Nccl {
 public:
  explicit Nccl(void* library) : library_(library) {
    find("ncclGetVersion", &version_of);
    find("ncclGetErrorString", &words_of);
    find("ncclGetUniqueId", &unique_id);
    find("ncclCommInitRank", &init_rank);
    find("ncclCommDestroy", &destroy);
    find("ncclCommAbort", &abort);
    find("ncclAllReduce", &all_reduce);
    find("ncclGroupStart", &group_start);
    find("ncclGroupEnd", &group_end);
  }

  void check(int result, const char* what) const {
    if (result != kSuccess) throw std::runtime_error(std::string(what) + ": " + words_of(result));
  }

  int (*version_of)(int*) = nullptr;
  const char* (*words_of)(int) = nullptr;
  int (*unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Comm*, int, UniqueId, int) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

 private:
  template <typename Function>
  void find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (*function == nullptr) throw std::runtime_error(std::string("libnccl.so.2 has no ") + name);
  }

  void* const library_;  // stays: NCCL's threads may outlive a communicator
};

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void ask_one_rank(const Nccl& nccl) {
  UniqueId id{};
  nccl.check(nccl.unique_id(&id), "ncclGetUniqueId");
  size_t before = 0, after = 0, total = 0;
  gradring::device::check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
  auto start = Clock::now();
  Comm comm = nullptr;
  nccl.check(nccl.init_rank(&comm, 1, id, 0), "ncclCommInitRank");
  say("one rank: ncclCommInitRank", ms_since(start), "ms");
  gradring::device::check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
  say("one rank: memory of the GPU that it takes",
      (static_cast<double>(before) - static_cast<double>(after)) / (1 << 20), "MiB");
  Stream stream;
  for (const size_t bytes : {size_t{4} << 10, size_t{64} << 20}) {
    const DeviceMemory input(bytes), output(bytes);
    for (const bool in_place : {true, false}) {
      void* const to = in_place ? input.get() : output.get();
      const auto times = time_each(100, [&] {
        nccl.check(nccl.all_reduce(input.get(), to, bytes / sizeof(float), kFloat32, kSum, comm,
                                   stream.get()),
                   "ncclAllReduce");
        stream.synchronize();
      });
      say("one rank: allreduce of " + size_in_words(bytes) + (in_place ? ", in place" : ""),
          spread_of(times));
    }
  }
  start = Clock::now();
  nccl.check(nccl.destroy(comm), "ncclCommDestroy");
  say("one rank: ncclCommDestroy", ms_since(start), "ms");
}

// From 2.30 on it may be allowed (NCCL_MULTI_RANK_GPU_ENABLE); before that it is refused in words.
void ask_two_ranks(const Nccl& nccl) {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  UniqueId id{};
  nccl.check(nccl.unique_id(&id), "ncclGetUniqueId");
  std::array<Comm, 2> comms{};
  nccl.check(nccl.group_start(), "ncclGroupStart");
  int result = kSuccess;
  for (int rank = 0; rank < 2 && result == kSuccess; ++rank) {
    result = nccl.init_rank(&comms[static_cast<size_t>(rank)], 2, id, rank);
  }
  const int ended = nccl.group_end();
  if (result == kSuccess) result = ended;
  if (result != kSuccess) {
    return say_in_words("two ranks on one GPU", std::string("refused: ") + nccl.words_of(result));
  }
  constexpr size_t kBytes = 64 << 20;
  const DeviceMemory first(kBytes), second(kBytes);
  const std::array<void*, 2> memory = {first.get(), second.get()};
  std::array<Stream, 2> streams;
  const auto times = time_each(50, [&] {
    nccl.check(nccl.group_start(), "ncclGroupStart");
    for (size_t rank = 0; rank < 2; ++rank) {
      nccl.check(nccl.all_reduce(memory[rank], memory[rank], kBytes / sizeof(float), kFloat32, kSum,
                                 comms[rank], streams[rank].get()),
                 "ncclAllReduce");
    }
    nccl.check(nccl.group_end(), "ncclGroupEnd");
    for (const Stream& stream : streams) stream.synchronize();
  });
  say("two ranks on one GPU: allreduce of " + size_in_words(kBytes), spread_of(times));
  for (Comm comm : comms) nccl.check(nccl.abort(comm), "ncclCommAbort");
}

}  // namespace

void ask_nccl() {
  gradring::device::check(cudaFree(nullptr), "a context");
  void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return say_in_words("left out", ::dlerror());
  const Nccl nccl(library);
  int version = 0;
  nccl.check(nccl.version_of(&version), "ncclGetVersion");
  say_in_words("NCCL", std::to_string(version / 10000) + "." +
                           std::to_string(version % 10000 / 100) + "." +
                           std::to_string(version % 100));
  ask_one_rank(nccl);
  ask_two_ranks(nccl);
}

}  // namespace gradring::device
