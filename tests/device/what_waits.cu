// Which calls of the driver wait until all streams have come to rest, as they may and do not say:
// who makes one while a stream waits for an op has that op's other ranks waiting, too. And where
// memory of cuMemAlloc goes, the library counts on it.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/src/gpu/cuda_driver.h"
#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/questions.h"
#include "tests/device/segment.h"
#include "tests/device/word.h"

namespace gradring::device {
namespace {

using client::CudaDriver;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;
constexpr size_t kMi = 1 << 20;
constexpr auto kHeld = std::chrono::milliseconds(200);

__global__ void until(const volatile uint32_t* word, uint32_t value) {
  constexpr long long kCyclesMost = 10'000'000'000;  // some seconds
  const long long start = clock64();
  while (*word != value && clock64() - start < kCyclesMost) {
  }
}

// Which no launch has had the driver load yet.
template <bool kBesideAKernel>
__global__ void loaded_late() {}

enum class By { kWord, kKernel };

// A stream that does not come to rest until kHeld is over.
class Held {
 public:
  Held(const Stream& stream, const Word& word, uint32_t value, By by) : stream_(stream) {
    if (by == By::kKernel) {
      until<<<1, 1, 0, stream.get()>>>(reinterpret_cast<const uint32_t*>(word.address), value);
      check(cudaGetLastError(), "a kernel that waits");
    } else {
      must(driver_with_words().wait_for_word(stream.get(), word.address, value,
                                             CudaDriver::kAtLeast),
           "a wait");
    }
    releaser_ = std::thread([word, value] {
      std::this_thread::sleep_for(kHeld);
      word.set(value);
    });
  }
  ~Held() {
    releaser_.join();
    cudaStreamSynchronize(stream_.get());
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const Stream& stream_;
  std::thread releaser_;
};

// What a library does, one after the other: what one call makes the next ones have.
class Library {
 public:
  struct Call {
    std::string name;
    std::function<int()> make;
  };
  std::vector<Call> calls(By beside) {
    const auto kernel = beside == By::kKernel ? loaded_late<true> : loaded_late<false>;
    std::vector<Call> all = {
        {"a stream", [this] { return driver_.create_stream(&other_, CudaDriver::kNonBlocking); }},
        {"a kernel's first launch, elsewhere",
         [this, kernel] {
           kernel<<<1, 1, 0, static_cast<cudaStream_t>(other_)>>>();
           return static_cast<int>(cudaGetLastError());
         }},
        {"the end of a stream", [this] { return driver_.destroy_stream(other_); }},
        {"pinning of 1 MiB",
         [this] { return driver_.register_host(segment_.get(), kMi, CudaDriver::kMapped); }},
        {"the end of that", [this] { return driver_.unregister_host(segment_.get()); }},
        {"cuMemAlloc of 1 B", [this] { return driver_.allocate(&byte_, 1); }},
        {"cuMemFree of it", [this] { return driver_.free(byte_); }},
        {"cuMemAlloc of 64 MiB", [this] { return driver_.allocate(&large_, 64 * kMi); }},
        {"cuMemFree of it", [this] { return driver_.free(large_); }}};
    if (!driver_.maps()) return all;
    all.push_back({"pages of 64 MiB", [this] { return map(); }});
    all.push_back({"the end of those", [this] { return unmap(); }});
    return all;
  }

 private:
  int map() {
    CudaPagesKind kind;
    CudaAccess access;
    int result = driver_.create_pages(&pages_, 64 * kMi, &kind, 0);
    if (result == 0) result = driver_.reserve(&range_, 64 * kMi, 0, 0, 0);
    if (result == 0) result = driver_.map(range_, 64 * kMi, 0, pages_, 0);
    return result == 0 ? driver_.set_access(range_, 64 * kMi, &access, 1) : result;
  }
  int unmap() {
    int result = driver_.unmap(range_, 64 * kMi);
    if (result == 0) result = driver_.unreserve(range_, 64 * kMi);
    return result == 0 ? driver_.release_pages(pages_) : result;
  }

  const CudaDriver& driver_ = driver_with_words();
  const Segment segment_{kMi};
  CudaDriver::Stream other_ = nullptr;
  CudaDriver::Address byte_ = 0, large_ = 0, range_ = 0;
  CudaPages pages_ = 0;
};

}  // namespace

void ask_what_waits() {
  check(cudaFree(nullptr), "a context");
  const Segment segment(kPage);
  check(cudaHostRegister(segment.get(), kPage, cudaHostRegisterMapped), "cudaHostRegister");
  {
    const Stream stream;
    uint32_t value = 0;
    for (const By by : {By::kWord, By::kKernel}) {
      const Word word = Word::in(segment.get(), by == By::kWord ? 0 : 1);
      { const Held first(stream, word, ++value, by); }  // its kernel is loaded
      Library library;
      const std::string beside = by == By::kWord ? "waits for a word" : "has a kernel";
      say_in_words("a stream " + beside, "for 200 ms; so long takes what waits for it:");
      for (const Library::Call& call : library.calls(by)) {
        const Held held(stream, word, ++value, by);
        const auto start = SteadyClock::now();
        const int result = call.make();
        const std::chrono::duration<double, std::milli> took = SteadyClock::now() - start;
        must(result, call.name.c_str());
        say("  " + call.name, took.count(), "ms");
      }
    }
  }
  check(cudaHostUnregister(segment.get()), "cudaHostUnregister");
}

}  // namespace gradring::device
