#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
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

constexpr int kRuns = 1000;
}  // namespace

void ask_words() {
  check(cudaFree(nullptr), "a context");
  const CudaDriver& driver = driver_with_words();
  constexpr size_t kPage = 4096, kCopy = 64 << 10;
  const Segment segment(kPage + kCopy);
  check(cudaHostRegister(segment.get(), kPage + kCopy, cudaHostRegisterMapped), "cudaHostRegister");
  const Word reached = Word::in(segment.get(), 0), ended = Word::in(segment.get(), 1);
  const DeviceMemory from(kCopy);
  const Stream stream;
  uint32_t value = 0;
  const auto write = [&] {
    must(driver.write_word(stream.get(), reached.address, value, 0), "a word");
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
    must(driver.wait_for_word(stream.get(), ended.address, value, CudaDriver::kAtLeast), "a wait");
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
