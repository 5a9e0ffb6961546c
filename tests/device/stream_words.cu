#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "client/src/cuda_driver.h"
#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/questions.h"
#include "tests/device/segment.h"

namespace gradring::device {
namespace {

using client::CudaDriver;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRuns = 1000;
constexpr auto kPatience = std::chrono::seconds(5);

// A word in a pinned memfd, as behind the shadow of a trainer's buffer.
struct Word {
  uint32_t* at = nullptr;
  CudaDriver::Address address = 0;

  void await(uint32_t value) const {
    const auto until = SteadyClock::now() + kPatience;
    while (std::atomic_ref(*at).load(std::memory_order_acquire) != value) {
      if (SteadyClock::now() > until) throw std::runtime_error("a word did not come within 5 s");
    }
  }
  void set(uint32_t value) const { std::atomic_ref(*at).store(value, std::memory_order_release); }
};

void must(int result, const char* what) { check(static_cast<cudaError_t>(result), what); }

}  // namespace

void ask_words() {
  check(cudaFree(nullptr), "a context");
  const CudaDriver* const driver = client::cuda_driver();
  if (driver == nullptr || !driver->orders()) {
    return say_in_words("words between streams and the host", "this driver has none");
  }
  constexpr size_t kPage = 4096, kCopy = 64 << 10;
  const Segment segment(kPage + kCopy);
  check(cudaHostRegister(segment.get(), kPage + kCopy, cudaHostRegisterMapped), "cudaHostRegister");
  std::vector<Word> words;
  for (int i = 0; i < 2; ++i) {
    Word& word = words.emplace_back();
    word.at = reinterpret_cast<uint32_t*>(segment.get() + 64 * i);
    must(driver->device_address(&word.address, word.at, 0), "the address of a word");
  }
  const Word& reached = words[0];
  const Word& ended = words[1];
  const DeviceMemory from(kCopy);
  const Stream stream;
  uint32_t value = 0;
  const auto write = [&] {
    must(driver->write_word(stream.get(), reached.address, value, 0), "a word");
  };

  say("a word that a stream writes, until the host sees it", spread_of(time_each(kRuns, [&] {
        ++value;
        write();
        reached.await(value);
      })));
  say("the same behind a copy of 64 KiB to the host", spread_of(time_each(kRuns, [&] {
        ++value;
        check(cudaMemcpyAsync(segment.get() + kPage, from.get(), kCopy, cudaMemcpyDeviceToHost,
                              stream.get()),
              "a copy");
        write();
        reached.await(value);
      })));
  std::vector<double> took;
  for (int run = 0; run < kRuns; ++run) {
    ++value;
    must(driver->wait_for_word(stream.get(), ended.address, value, CudaDriver::kAtLeast), "a wait");
    write();
    std::atomic_ref<uint32_t> seen(*reached.at);
    const auto start = SteadyClock::now();
    if (seen.load() == value) throw std::runtime_error("a stream did not wait for its word");
    ended.set(value);
    reached.await(value);
    took.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count());
  }
  say("a word that the host sets, until a stream that waited for it has answered", spread_of(took));
  check(cudaHostUnregister(segment.get()), "cudaHostUnregister");
}

}  // namespace gradring::device
