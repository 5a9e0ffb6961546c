#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "client/src/gpu/cuda_driver.h"
#include "tests/device/answers.h"

namespace gradring::device {

inline void must(int result, const char* what) { check(static_cast<cudaError_t>(result), what); }

// This machine's, which has words that streams write and wait for; else throws std::runtime_error.
inline const client::CudaDriver& driver_with_words() {
  const client::CudaDriver* const found = client::cuda_driver();
  if (found == nullptr || !found->orders()) throw std::runtime_error("this driver has no words");
  return *found;
}

// A word in pinned memory, as behind the shadow of a trainer's buffer.
struct Word {
  uint32_t* at = nullptr;
  client::CudaDriver::Address address = 0;

  // Each of a page has a line of its own.
  static Word in(std::byte* page, size_t number) {
    Word word;
    word.at = reinterpret_cast<uint32_t*>(page + 64 * number);
    must(driver_with_words().device_address(&word.address, word.at, 0), "the address of a word");
    return word;
  }
  void await(uint32_t value) const {
    constexpr auto kPatience = std::chrono::seconds(5);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::atomic_ref(*at).load(std::memory_order_acquire) != value) {
      if (std::chrono::steady_clock::now() > until) {
        throw std::runtime_error("a word did not come within 5 s");
      }
    }
  }
  void set(uint32_t value) const { std::atomic_ref(*at).store(value, std::memory_order_release); }
};

}  // namespace gradring::device
