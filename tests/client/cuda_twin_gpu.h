#pragma once

#include <array>
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
#include <thread>
#include <utility>
#include <vector>

// What the driver of tests/client/cuda_twin.h is made of.
namespace gradring::test::twin {

using Clock = std::chrono::steady_clock;

// By the numbers of cuda.h.
inline constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kMapFailed = 205,
                     kNoPeer = 217, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600,
                     kIllegalAddress = 700, kPeerAlready = 704, kAlreadyRegistered = 712,
                     kNotRegistered = 713, kMisaligned = 716, kCaptureUnsupported = 900,
                     kCaptureImplicit = 906, kUnknown = 999;
// CUstreamCaptureMode.
inline constexpr int kGlobal = 0, kRelaxed = 2;
inline constexpr int kGpusMax = 4;
inline constexpr int kMultiprocessors = 2;  // of each

// Nothing: it cannot be done yet.
using Act = std::function<std::optional<int>()>;

// Memory of a GPU is a file without a name, which another process can open too.
struct Range {
  char* bytes = nullptr;
  size_t size = 0;
  int file = -1;  // another process's: that was opened
  int gpu = 0;
  uint64_t buffer = 0;  // never twice
  bool pooled = false;
  bool allocated = false;   // by cuMemAlloc; others are the tests' own
  std::string handle = {};  // by which it was opened
  int opened_on = 0;        // in the context of that GPU
  int opens = 0;            // of the same handle there
  bool mapped = false;      // by cuMemMap
  unsigned readers = 0;     // then: the GPUs that may have it, by their bits
};
struct Work {
  Clock::time_point since;
  uint64_t number = 0;  // of all streams' in the order in which it was put there
  Act act;
};
struct Stream {
  std::deque<Work> work;
  uint64_t done = 0;     // of what was put there
  int error = kSuccess;  // of what was done since somebody waited for it
  bool held = false;
  bool full = false;     // no event is recorded there
  bool ended = false;    // nobody has it any more, but it has work
  uint64_t number = 0;   // the streams' are counted
  bool made = false;     // by cuStreamCreate; others are the tests' own
  bool blocking = true;  // and CUDA's default stream may wait for it
  int gpu = 0;
};
// Into a CUDA graph, begun as torch.cuda.graph does: kGlobal.
struct Capture {
  std::thread::id by;
  bool spoilt = false;
};
// Memory of the host, which a GPU finds at another address.
struct Pinned {
  size_t size = 0;
  uint64_t address = 0;
};
struct Event {
  uint64_t recorded = 0;
  std::set<uint64_t> done;  // of those: streams may come to the later ones first
  int error = kSuccess;     // of what its stream had done before
  int gpu = 0;
};
// Of cuMemCreate, or taken from another process.
struct Pages {
  int file = -1;
  size_t size = 0;
  int gpu = 0;
  bool offered = false;  // they may be
};
struct Gpu {
  std::mutex mutex;
  std::map<uint64_t, Pages> pages;       // by their handles
  std::map<uint64_t, size_t> addresses;  // that are reserved
  std::condition_variable done;
  std::map<uint64_t, Range> ranges;
  std::map<void*, Stream> streams = {{nullptr, {}}};
  std::vector<void*> names;  // of those that have ended
  std::map<void*, Event> events;
  std::map<void*, Capture> captures;  // by the stream
  std::map<void*, Pinned> pinned;
  std::map<std::string, int> answers = {{"imported", kIllegalAddress}};
  std::set<std::string> stalled;
  std::set<void*> modules;
  std::set<std::pair<int, int>> peers;  // the first one reaches memory of the other
  bool settles = false;
  std::string hangs_while;  // a file is there, and it names; empty: none does
  std::string lost_while;   // likewise
  uint64_t buffers = 0;
  uint64_t put = 0;  // so often something on a stream
  size_t most = 0;   // on one of them at a time
  uint64_t streams_made = 0;
  uint64_t connections = 0;  // that streams share; 0: each has its own
  int count = 1;
  int primaries = 0;
  int entered = 0;
  int entries = 0;
  size_t stack_bytes = 1024;  // of each thread, in primary contexts
  bool under_mps = false;
  std::array<char, kGpusMax> contexts = {};  // by their addresses
  // By what went wrong on one: its context answers with that from then on, and does nothing more.
  std::array<int, kGpusMax> faults = {};
};

// The one there is; it outlives everything.
Gpu& gpu();
// Of the calling thread, the current one last.
inline thread_local std::vector<void*> contexts;
inline thread_local int capture_mode = kGlobal;

// With the mutex, when this function is not stalled any more.
std::unique_lock<std::mutex> entered(const char* function);

// The rest with the mutex held.

// Until all is done that was put on this GPU's streams until now, where that is wanted.
void settle(std::unique_lock<std::mutex>* lock, int gpu);

// What lies there; null: not all of it is one range.
char* at(uint64_t address, size_t bytes);
// The range that it lies in, with its address; null: none.
std::pair<const uint64_t, Range>* range_of(uint64_t address);
// A range of this file, which it takes; 0: it cannot be mapped. `address`: where it is to be, if
// that is reserved.
uint64_t add_range(Range range, uint64_t address = 0);
void end_range(uint64_t address);
uint64_t reserve(size_t bytes);
uint64_t allocate(int gpu, size_t bytes);
// -1: none.
int gpu_of(void* context);
// Whether memory that another process has allocated is there for work in the context of this GPU;
// true of all other memory.
bool is_imported_for(int gpu, uint64_t address);
// What went wrong in the current context.
int fault_here();
// The host's word that a GPU finds there; null: it is not pinned.
uint32_t* word_at(uint64_t address);
Stream& add_stream(void* id);
// When it is empty and nobody has it any more.
void end_stream(void* id);
// What was asked for by answer(). Where streams do their work this alone is asked: of a thread that
// has variables of its own in a library that was loaded later LeakSanitizer loses its way.
int wanted(const char* function);
// What this function is to answer.
int told(const char* function);
// The same for one that is not to be called while somebody captures, who has lost the capture then.
int told_unsafe(const char* function);
int enqueue(void* stream, Act act);
// The same for what a GPU does with memory, and may fail at: answer("later", ...).
int enqueue_work(void* stream, Act act);

}  // namespace gradring::test::twin
