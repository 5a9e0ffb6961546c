// See nccl_twin.h. What it puts on streams it does by the driver's twin.
#include "tests/client/nccl_twin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/cuda_twin.h"
#include "transport/cuda/nccl.h"

namespace {

// By the numbers of nccl.h.
constexpr int kSuccess = 0, kInternal = 3, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr int kAsked = 3;  // so often it is still in progress

using Nccl = gradring::transport::cuda::Nccl;

using Clock = std::chrono::steady_clock;

struct Clique {
  int ranks = 0;
  std::vector<struct Comm*> comms;
  std::set<std::pair<bool, int>> connected;  // calls by their kind and magnitude
};
struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int asked = 0;
  Clock::time_point ready = {};
  void* context = nullptr;
  void* came = nullptr;  // events: its stream has come to a call; and that is over
  void* over = nullptr;
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};
struct Call {
  bool reduces = false;
  const char* from = nullptr;
  char* to = nullptr;
  size_t count = 0;
  int dtype = 0;
  int op = 0;
  Comm* comm = nullptr;
  void* stream = nullptr;
  bool fits(const Call& other) const {
    return reduces == other.reduces && count == other.count && dtype == other.dtype &&
           op == other.op;
  }
};

struct Driver {
  const gradring::test::CudaTwin* twin = nullptr;
  int (*current)(void**) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*create_event)(void**, unsigned) = nullptr;
  int (*destroy_event)(void*) = nullptr;
  int (*record)(void*, void*) = nullptr;
  int (*wait)(void*, void*, unsigned) = nullptr;
  int (*launch)(void*, void (*)(void*), void*) = nullptr;

  Driver() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [library](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, name));
    };
    twin = static_cast<const gradring::test::CudaTwin*>(::dlsym(library, "gradring_cuda_twin"));
    find("cuCtxGetCurrent", &current);
    find("cuCtxPushCurrent_v2", &push);
    find("cuCtxPopCurrent_v2", &pop);
    find("cuEventCreate", &create_event);
    find("cuEventDestroy_v2", &destroy_event);
    find("cuEventRecord", &record);
    find("cuStreamWaitEvent", &wait);
    find("cuLaunchHostFunc", &launch);
  }
};
const Driver& driver() {
  static const Driver kDriver;
  return kDriver;
}

std::mutex mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;  // by their ids
std::map<std::string, int> answers;
int held = 0, groups = 0, ids = 0;
thread_local int depth = 0;
thread_local std::vector<Call> calls;
thread_local bool made = false;

int told(const char* function) {
  const std::lock_guard lock(mutex);
  const auto found = answers.find(function);
  return found == answers.end() ? kSuccess : found->second;
}

int error_later() {
  static const char* const kFile = std::getenv("GRADRING_TWIN_NCCL_FAILS");
  return kFile != nullptr && ::access(kFile, F_OK) == 0 ? kInternal : told("later");
}

int held_communicators() {
  const std::lock_guard lock(mutex);
  return held;
}

void set_answer(const char* function, int result) {
  const std::lock_guard lock(mutex);
  answers[function] = result;
}

int begun_groups() {
  const std::lock_guard lock(mutex);
  return groups;
}

size_t size_of(int dtype) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[dtype];
}

template <typename T>
T combine(int op, T a, T b) {
  switch (op) {
    case 0:
      return static_cast<T>(a + b);
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

// Round a ring that ends at the rank whose share it is.
template <typename T>
void sum_shares(const std::vector<Call>& all) {
  const size_t n = all.size(), count = all[0].count;
  std::vector<std::vector<T>> shares(n, std::vector<T>(count));
  for (size_t rank = 0; rank < n; ++rank) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t step = 1; step <= n; ++step) {
        T value;
        const char* const from = all[(rank + step) % n].from;
        std::memcpy(&value, from + (rank * count + i) * sizeof(T), sizeof(T));
        shares[rank][i] = step == 1 ? value : combine(all[0].op, shares[rank][i], value);
      }
    }
  }
  for (size_t rank = 0; rank < n; ++rank) {
    std::memcpy(all[rank].to, shares[rank].data(), count * sizeof(T));
  }
}

void reduce_scatter(const std::vector<Call>& all) {
  switch (all[0].dtype) {
    case 0:
      return sum_shares<int8_t>(all);
    case 1:
      return sum_shares<uint8_t>(all);
    case 2:
      return all[0].op < 2 ? sum_shares<uint32_t>(all) : sum_shares<int32_t>(all);  // they wrap
    case 3:
      return sum_shares<uint32_t>(all);
    case 4:
      return all[0].op < 2 ? sum_shares<uint64_t>(all) : sum_shares<int64_t>(all);
    case 5:
      return sum_shares<uint64_t>(all);
    case 7:
      return sum_shares<float>(all);
    default:
      return sum_shares<double>(all);
  }
}

void all_gather(const std::vector<Call>& all) {
  const size_t bytes = all[0].count * size_of(all[0].dtype);
  for (const Call& taker : all) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::memmove(taker.to + rank * bytes, all[rank].from, bytes);
    }
  }
}

// Another size may be another algorithm's.
std::chrono::milliseconds time_to_connect(const Call& call) {
  const int magnitude = std::bit_width(call.count * size_of(call.dtype));
  const bool fresh = call.comm->clique->connected.emplace(call.reduces, magnitude).second;
  const char* const at_once = std::getenv("NCCL_RUNTIME_CONNECT");
  const bool connects = fresh && (at_once == nullptr || std::strcmp(at_once, "0") != 0);
  return std::chrono::milliseconds(connects ? told("connects") : 0);
}

struct Work {
  std::vector<Call> all;
  std::vector<std::shared_ptr<std::atomic<bool>>> aborted;
};

// On the first rank's stream, once all others have come there; and they go on behind it.
int enqueue(std::vector<Call> all) {
  std::sort(all.begin(), all.end(),
            [](const Call& a, const Call& b) { return a.comm->rank < b.comm->rank; });
  const Driver& d = driver();
  auto* const work = new Work{all, {}};
  for (const Call& call : all) work->aborted.push_back(call.comm->aborted);
  const auto in_context = [&d](const Call& call, const std::function<void()>& act) {
    void* popped = nullptr;
    d.push(call.comm->context);
    act();
    d.pop(&popped);
  };
  for (const Call& call : all) {
    in_context(call, [&] { d.record(call.comm->came, call.stream); });
  }
  in_context(all[0], [&] {
    for (size_t i = 1; i < all.size(); ++i) d.wait(all[0].stream, all[i].comm->came, 0);
    d.launch(
        all[0].stream,
        [](void* data) {
          const std::unique_ptr<Work> mine(static_cast<Work*>(data));
          for (const auto& aborted : mine->aborted) {
            if (*aborted) return;
          }
          mine->all[0].reduces ? reduce_scatter(mine->all) : all_gather(mine->all);
        },
        work);
    d.record(all[0].comm->over, all[0].stream);
  });
  for (size_t i = 1; i < all.size(); ++i) {
    in_context(all[i], [&] { d.wait(all[i].stream, all[0].comm->over, 0); });
  }
  const auto ready = Clock::now() + time_to_connect(all[0]);
  for (const Call& call : all) {
    call.comm->asked = kAsked;
    call.comm->ready = ready;
  }
  const std::lock_guard lock(mutex);
  ++groups;
  return kInProgress;
}

int carry_out() {
  const std::vector<Call> all = std::exchange(calls, {});
  if (std::exchange(made, false)) return kInProgress;
  if (all.empty()) return kSuccess;
  const auto fits = [&](const Call& call) {
    return call.fits(all[0]) && call.comm->clique == all[0].comm->clique;
  };
  const bool complete = all.size() == static_cast<size_t>(all[0].comm->clique->ranks);
  if (!complete || !std::all_of(all.begin(), all.end(), fits)) return kInvalidUsage;
  return enqueue(all);
}

// Of memory that is wholly there.
char* behind(const void* address, size_t bytes) {
  const auto at = reinterpret_cast<uint64_t>(address);
  const auto* const first = static_cast<char*>(driver().twin->behind(at));
  const auto* const last = static_cast<char*>(driver().twin->behind(at + bytes - 1));
  const bool whole = first != nullptr && last == first + bytes - 1;
  return whole ? const_cast<char*>(first) : nullptr;
}

int add(Call call, const void* from, size_t from_bytes, void* to, size_t to_bytes) {
  if (depth == 0 || call.comm == nullptr) return kInvalidUsage;
  const bool in_progress = call.comm->asked > 0 || Clock::now() < call.comm->ready;
  if (in_progress) return kInvalidArgument;
  call.from = behind(from, from_bytes);
  call.to = behind(to, to_bytes);
  if (call.from == nullptr || call.to == nullptr) return kInvalidArgument;
  calls.push_back(call);
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == 1 ? "unhandled cuda error" : "an error of the tests";
}

int ncclGetUniqueId(Nccl::UniqueId* id) {
  if (const int result = told("ncclGetUniqueId"); result != kSuccess) return result;
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, &++ids, sizeof ids);
  return kSuccess;
}

int ncclCommInitRankConfig(void** made_here, int ranks, Nccl::UniqueId id, int rank,
                           Nccl::Config* config) {
  if (const int result = told("ncclCommInitRankConfig"); result != kSuccess) return result;
  const bool asked_rightly = config->size >= sizeof(Nccl::Config) && config->magic == 0xcafebeef &&
                             config->version >= 21400 && config->blocking == 0;
  if (!asked_rightly || depth == 0) return kInvalidArgument;
  const std::lock_guard lock(mutex);
  auto& clique = cliques[std::string(id.bytes, sizeof id.bytes)];
  if (clique == nullptr) clique = std::make_shared<Clique>(Clique{ranks, {}, {}});
  auto* const comm = new Comm{clique, rank, kAsked};
  *made_here = comm;
  clique->comms.push_back(comm);
  driver().current(&comm->context);
  driver().create_event(&comm->came, 2);
  driver().create_event(&comm->over, 2);
  ++held;
  made = true;
  return kSuccess;
}

int ncclCommAbort(void* aborted) {
  auto* const comm = static_cast<Comm*>(aborted);
  *comm->aborted = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(told("aborts")));
  const std::lock_guard lock(mutex);
  driver().destroy_event(comm->came);
  driver().destroy_event(comm->over);
  --held;
  delete comm;
  return kSuccess;
}

int ncclCommGetAsyncError(void* asked, int* error) {
  auto* const comm = static_cast<Comm*>(asked);
  const int later = error_later();
  const bool over = comm->asked <= 0 && Clock::now() >= comm->ready;
  if (comm->asked > 0) --comm->asked;
  *error = later != kSuccess ? later : over ? kSuccess : kInProgress;
  return kSuccess;
}

int ncclGroupStart() {
  ++depth;
  return told("ncclGroupStart");
}

int ncclGroupEnd() {
  if (--depth > 0) return kSuccess;
  const int most = told("after");
  const bool refused = most != 0 && !calls.empty() && begun_groups() >= most;
  const int result = refused ? kInvalidUsage : told("ncclGroupEnd");
  if (result != kSuccess) {
    calls.clear();
    return result;
  }
  return carry_out();
}

int ncclReduceScatter(const void* from, void* to, size_t count, int dtype, int op, void* among,
                      void* stream) {
  auto* const comm = static_cast<Comm*>(among);
  const size_t bytes = count * size_of(dtype);
  Call call{
      .reduces = true, .count = count, .dtype = dtype, .op = op, .comm = comm, .stream = stream};
  return add(call, from, bytes * static_cast<size_t>(comm->clique->ranks), to, bytes);
}

int ncclAllGather(const void* from, void* to, size_t count, int dtype, void* among, void* stream) {
  auto* const comm = static_cast<Comm*>(among);
  const size_t bytes = count * size_of(dtype);
  const Call call{.count = count, .dtype = dtype, .comm = comm, .stream = stream};
  return add(call, from, bytes, to, bytes * static_cast<size_t>(comm->clique->ranks));
}

extern const gradring::test::NcclTwin gradring_nccl_twin;
const gradring::test::NcclTwin gradring_nccl_twin = {held_communicators, set_answer, begun_groups};

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
