#include "tests/device/floors.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "client/src/gpu/gpu_context.h"
#include "tests/client/cuda_twin.h"

namespace gradring::device {
namespace {

using client::CudaDriver;
using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;

void must(const CudaDriver& driver, CudaDriver::Result result, const char* what) {
  if (result == CudaDriver::kSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + driver.in_words(result));
}

// Of the GPU, and a stream.
class Place {
 public:
  explicit Place(uint64_t bytes) : address(test::test_gpu().alloc(bytes, false)) {}
  ~Place() {
    test::test_gpu().end_stream(stream);
    test::test_gpu().free(address);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const uint64_t address;
  void* const stream = test::test_gpu().make_stream();
};

// Of the host, pinned.
class Pinned {
 public:
  Pinned(const CudaDriver& driver, uint64_t bytes)
      : driver_(driver),
        bytes_(bytes),
        at(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {
    if (at == MAP_FAILED) throw std::runtime_error("no memory of the host for copies");
    must(driver_, driver_.register_host(at, bytes_, CudaDriver::kMapped), "pinning");
  }
  ~Pinned() {
    driver_.unregister_host(at);
    ::munmap(at, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  const CudaDriver& driver_;
  const uint64_t bytes_;

 public:
  void* const at;
};

// The best of some, in bytes a second.
double best_rate(uint64_t bytes, const std::function<void()>& copy) {
  copy();  // the first one is slower
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    copy();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace

Floors measure_floors(uint64_t bytes, int copies) {
  const Place one(bytes), other(bytes);
  const CudaDriver* const driver = client::cuda_driver();
  if (driver == nullptr || !driver->shares()) {
    throw std::runtime_error("the driver is older than gradring needs");
  }
  const auto context = client::GpuContext::of(*driver, std::bit_cast<const void*>(one.address));
  if (!context) throw std::runtime_error(context.error().message());
  const client::GpuContext::Current current(**context);
  const Pinned down(*driver, bytes), up(*driver, bytes);
  Floors floors;
  const uint64_t all = bytes * static_cast<uint64_t>(copies);
  floors.within = best_rate(all, [&] {
    for (int i = 0; i < copies; ++i) {
      must(*driver, driver->copy_within(other.address, one.address, bytes, one.stream), "a copy");
    }
    test::test_gpu().wait_for(one.stream);
  });
  floors.both_ways = best_rate(all, [&] {
    for (int i = 0; i < copies; ++i) {
      must(*driver, driver->copy_to_host(down.at, one.address, bytes, one.stream), "a copy");
      must(*driver, driver->copy_to_device(other.address, up.at, bytes, other.stream), "a copy");
    }
    test::test_gpu().wait_for(one.stream);
    test::test_gpu().wait_for(other.stream);
  });
  return floors;
}

}  // namespace gradring::device
