#include <chrono>
#include <cstdint>
#include <string>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/questions.h"
#include "tests/device/segment.h"

namespace gradring::device {
namespace {

constexpr size_t kGi = 1ull << 30;
constexpr int kRuns = 30;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void say_rate(const std::string& what, size_t bytes, const Spread& us) {
  constexpr double kPerGb = 1e3;  // bytes a microsecond in a GB/s
  say(what, static_cast<double>(bytes) / us.median / kPerGb, "GB/s");
}

}  // namespace

void ask_pinned() {
  check(cudaFree(nullptr), "a context");
  const Segment segment(kGi);
  auto start = std::chrono::steady_clock::now();
  check(cudaHostRegister(segment.get(), kGi, cudaHostRegisterDefault), "cudaHostRegister");
  say("cudaHostRegister of 1 GiB of a memfd", 1e3 * seconds_since(start), "ms");
  const DeviceMemory to(kGi / 2), from(kGi / 2);
  const Stream up, down;
  std::byte* const read = segment.get();
  std::byte* const written = segment.get() + kGi / 2;
  const auto copy_up = [&](size_t bytes) {
    check(cudaMemcpyAsync(to.get(), read, bytes, cudaMemcpyHostToDevice, up.get()), "to the GPU");
  };
  const auto copy_down = [&](size_t bytes) {
    check(cudaMemcpyAsync(written, from.get(), bytes, cudaMemcpyDeviceToHost, down.get()),
          "to the host");
  };
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, kGi / 2}) {
    const std::string size = size_in_words(bytes);
    say_rate("to the GPU, " + size, bytes, spread_of(time_each(kRuns, [&] {
               copy_up(bytes);
               up.synchronize();
             })));
    say_rate("to the host, " + size, bytes, spread_of(time_each(kRuns, [&] {
               copy_down(bytes);
               down.synchronize();
             })));
    say_rate("both at once, sum, " + size, 2 * bytes, spread_of(time_each(kRuns, [&] {
               copy_up(bytes);
               copy_down(bytes);
               up.synchronize();
               down.synchronize();
             })));
  }
  start = std::chrono::steady_clock::now();
  check(cudaHostUnregister(segment.get()), "cudaHostUnregister");
  say("cudaHostUnregister", 1e3 * seconds_since(start), "ms");
  say_rate("to the GPU from memory that is not pinned, 512 MiB", kGi / 2,
           spread_of(time_each(5, [&] {
             copy_up(kGi / 2);
             up.synchronize();
           })));
}

}  // namespace gradring::device
