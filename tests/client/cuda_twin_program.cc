// What a test does with the GPUs.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/client/cuda_twin.h"
#include "tests/client/cuda_twin_gpu.h"

namespace gradring::test::twin {
namespace {

uint64_t twin_alloc(size_t bytes, bool pooled) {
  const std::lock_guard lock(gpu().mutex);
  const uint64_t address = allocate(0, bytes);
  gpu().ranges.at(address).pooled = pooled;
  return address;
}

uint64_t twin_alloc_on(int number, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  return allocate(number, bytes);
}

void twin_free(uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  end_range(address);
}

void twin_have(int count) {
  const std::lock_guard lock(gpu().mutex);
  gpu().count = count;
}

void twin_hold_gpu(int number, bool on) {
  const std::lock_guard lock(gpu().mutex);
  for (auto& [id, stream] : gpu().streams) {
    if (stream.made && stream.gpu == number) stream.held = on;
  }
}

void* twin_make_stream_on(int number) {
  const std::lock_guard lock(gpu().mutex);
  void* const stream = new char;
  add_stream(stream).gpu = number;
  return stream;
}

void* twin_make_stream() { return twin_make_stream_on(0); }

void twin_end_stream(void* stream) {
  const std::lock_guard lock(gpu().mutex);
  end_stream(stream);
}

void twin_share(int connections) {
  const std::lock_guard lock(gpu().mutex);
  gpu().connections = static_cast<uint64_t>(connections);
  gpu().streams_made = 0;
}

void twin_lose(int number, bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().faults.at(static_cast<size_t>(number)) = on ? kUnknown : kSuccess;
}

void twin_fill_later(void* stream, uint64_t address, float value, size_t count) {
  const std::lock_guard lock(gpu().mutex);
  const auto fill = [=] {
    auto* const to = reinterpret_cast<float*>(at(address, count * sizeof(float)));
    if (to == nullptr) return kIllegalAddress;
    std::fill_n(to, count, value);
    return kSuccess;
  };
  gpu().streams.at(stream).work.push_back({Clock::now(), ++gpu().put, fill});
}

void twin_hold(void* stream, bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().streams.at(stream).held = on;
}

void twin_wait_for(void* stream) {
  std::unique_lock lock(gpu().mutex);
  Stream& waited = gpu().streams.at(stream);
  gpu().done.wait(lock, [&waited] { return waited.work.empty(); });
}

void twin_read(uint64_t address, void* data, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  std::memcpy(data, at(address, bytes), bytes);
}

void twin_write(uint64_t address, const void* data, size_t bytes) {
  const std::lock_guard lock(gpu().mutex);
  std::memcpy(at(address, bytes), data, bytes);
}

void* twin_behind(uint64_t address) {
  const std::lock_guard lock(gpu().mutex);
  return at(address, 1);
}

bool twin_capture(void* stream, bool on) {
  const std::lock_guard lock(gpu().mutex);
  const auto [capture, fresh] = gpu().captures.try_emplace(stream);
  if (on) {
    capture->second.by = std::this_thread::get_id();
    return fresh;
  }
  const bool whole = !fresh && !capture->second.spoilt;
  gpu().captures.erase(capture);
  return whole;
}

void twin_answer(const char* function, int result) {
  const std::lock_guard lock(gpu().mutex);
  gpu().answers[function] = result;
  if (function == std::string_view("later") && result == kSuccess) gpu().faults = {};
}

int twin_entries() {
  const std::lock_guard lock(gpu().mutex);
  return gpu().entries;
}

size_t twin_stack_bytes() {
  const std::lock_guard lock(gpu().mutex);
  return gpu().stack_bytes;
}

void twin_share_contexts(bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().under_mps = on;
}

void twin_stall(const char* function, bool on) {
  const std::lock_guard lock(gpu().mutex);
  if (on) {
    gpu().stalled.insert(function);
  } else {
    gpu().stalled.erase(function);
  }
}

void twin_fill_up(void* stream, bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().streams.at(stream).full = on;
}

size_t twin_most() {
  const std::lock_guard lock(gpu().mutex);
  return gpu().most;
}

void twin_settle(bool on) {
  const std::lock_guard lock(gpu().mutex);
  gpu().settles = on;
}

int twin_held() {
  const std::lock_guard lock(gpu().mutex);
  const auto streams = std::count_if(gpu().streams.begin(), gpu().streams.end(),
                                     [](const auto& entry) { return entry.second.made; });
  const auto ranges = std::count_if(
      gpu().ranges.begin(), gpu().ranges.end(),
      [](const auto& entry) { return entry.second.allocated || !entry.second.handle.empty(); });
  const size_t pages = gpu().pages.size() + gpu().addresses.size();
  return static_cast<int>(pages) +
         static_cast<int>(gpu().pinned.size() + gpu().events.size() + gpu().modules.size()) +
         static_cast<int>(streams + ranges) + gpu().primaries + gpu().entered;
}

}  // namespace
}  // namespace gradring::test::twin

using namespace gradring::test::twin;  // NOLINT: this file is of that

// By which the loader finds it.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
extern const gradring::test::CudaTwin gradring_cuda_twin;
const gradring::test::CudaTwin gradring_cuda_twin = {
    {twin_alloc, twin_free, twin_make_stream, twin_end_stream, twin_fill_later, twin_hold,
     twin_wait_for, twin_read, twin_write},
    twin_behind,
    twin_capture,
    twin_answer,
    twin_held,
    twin_have,
    twin_alloc_on,
    twin_make_stream_on,
    twin_hold_gpu,
    twin_stall,
    twin_settle,
    twin_entries,
    twin_stack_bytes,
    twin_share_contexts,
    twin_share,
    twin_lose,
    twin_fill_up,
    twin_most};
}
// NOLINTEND(readability-identifier-naming)
