#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

// What the driver of tests/client/cuda_twin.h is made of.
namespace gradring::test::twin {

using Clock = std::chrono::steady_clock;

// By the numbers of cuda.h.
inline constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400,
                     kIllegalAddress = 700, kCaptureUnsupported = 900;

// Nothing: it cannot be done yet.
using Act = std::function<std::optional<int>()>;

struct Range {
  std::vector<char> bytes;
  bool pooled = false;
  void* addresses = nullptr;
};
struct Stream {
  std::deque<std::pair<Clock::time_point, Act>> work;
  int error = kSuccess;  // of what was done since somebody waited for it
  bool held = false;
  bool made = false;  // by cuStreamCreate; others are the tests' own
};
struct Event {
  uint64_t recorded = 0;
  std::set<uint64_t> done;  // of those: streams may come to the later ones first
};
struct Gpu {
  std::mutex mutex;
  std::condition_variable done;
  std::map<uint64_t, Range> ranges;
  std::map<void*, Stream> streams = {{nullptr, {}}};
  std::map<void*, Event> events;
  std::set<void*> capturing;
  std::map<void*, size_t> pinned;
  std::map<std::string, int> answers;
  int primaries = 0;
  int entered = 0;
  char context = 0;
};

// The one there is; it outlives everything.
Gpu& gpu();
// Of the calling thread, the current one last.
inline thread_local std::vector<void*> contexts;

// The rest with the mutex held.

// What lies there; null: not all of it is one range.
char* at(uint64_t address, size_t bytes);
// What this function is to answer.
int told(const char* function);
int enqueue(void* stream, Act act);

}  // namespace gradring::test::twin
