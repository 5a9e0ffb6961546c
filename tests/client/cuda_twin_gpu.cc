// The GPU of the tests, and what a program does with it.
#include "tests/client/cuda_twin_gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "tests/client/cuda_twin.h"

namespace gradring::test::twin {
namespace {

// What is put on a stream is done that much later, so that whoever does not wait sees nothing.
constexpr auto kLate = std::chrono::milliseconds(1);

// Whether another stream of the same connection has something that was put there before.
bool is_behind_others(const Gpu& gpu, const Stream& stream) {
  if (gpu.connections == 0) return false;
  return std::any_of(gpu.streams.begin(), gpu.streams.end(), [&](const auto& entry) {
    const Stream& other = entry.second;
    return other.gpu == stream.gpu && !other.work.empty() &&
           other.number % gpu.connections == stream.number % gpu.connections &&
           other.work.front().number < stream.work.front().number;
  });
}

void work_on(Gpu* gpu, Stream* stream) {
  const int& fault = gpu->faults.at(static_cast<size_t>(stream->gpu));
  const auto goes_on = [&] {
    return fault == kSuccess && !stream->held && !stream->work.empty() &&
           !is_behind_others(*gpu, *stream);
  };
  while (goes_on()) {
    Work& work = stream->work.front();
    if (Clock::now() - work.since < kLate) return;
    const std::optional<int> result = work.act();
    if (!result) return;
    if (stream->error == kSuccess) stream->error = *result;
    stream->work.pop_front();
    ++stream->done;
  }
  if (fault == kSuccess) return;
  stream->done += stream->work.size();
  stream->work.clear();
}

// What the streams have come to; in turns, as far as each can go.
[[noreturn]] void work_on_all(Gpu* gpu) {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(gpu->mutex);
    for (auto& [id, stream] : gpu->streams) work_on(gpu, &stream);
    std::erase_if(gpu->streams, [](const auto& entry) {
      return entry.second.ended && entry.second.work.empty();
    });
    gpu->done.notify_all();
  }
}

}  // namespace

// Its thread never ends.
Gpu& gpu() {
  static Gpu* const kTheGpu = [] {
    auto* const made = new Gpu;
    if (const char* const count = std::getenv("GRADRING_TWIN_GPUS")) {
      made->count = static_cast<int>(std::strtol(count, nullptr, 10));
    }
    if (const char* const shared = std::getenv("GRADRING_TWIN_CONNECTIONS")) {
      made->connections = std::strtoul(shared, nullptr, 10);
    }
    made->settles = std::getenv("GRADRING_TWIN_SETTLES") != nullptr;
    std::thread(work_on_all, made).detach();
    return made;
  }();
  return *kTheGpu;
}

std::unique_lock<std::mutex> entered(const char* function) {
  std::unique_lock lock(gpu().mutex);
  gpu().done.wait(lock, [function] { return gpu().stalled.count(function) == 0; });
  return lock;
}

void settle(std::unique_lock<std::mutex>* lock, int number) {
  if (!gpu().settles) return;
  std::vector<std::pair<void*, uint64_t>> all;
  for (const auto& [id, stream] : gpu().streams) {
    if (stream.gpu == number) all.emplace_back(id, stream.done + stream.work.size());
  }
  gpu().done.wait(*lock, [&all] {
    return std::all_of(all.begin(), all.end(), [](const auto& until) {
      const auto found = gpu().streams.find(until.first);
      return found == gpu().streams.end() || found->second.done >= until.second;
    });
  });
}

std::pair<const uint64_t, Range>* range_of(uint64_t address) {
  auto after = gpu().ranges.upper_bound(address);
  if (after == gpu().ranges.begin()) return nullptr;
  auto& found = *std::prev(after);
  return address - found.first <= found.second.size ? &found : nullptr;
}

char* at(uint64_t address, size_t bytes) {
  auto* const found = range_of(address);
  if (found == nullptr) return nullptr;
  if (found->second.mapped && found->second.readers == 0) return nullptr;
  const uint64_t offset = address - found->first;
  return bytes <= found->second.size - offset ? found->second.bytes + offset : nullptr;
}

// An address that is nobody else's, and that nobody can read.
uint64_t reserve(size_t bytes) {
  return std::bit_cast<uint64_t>(
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

uint64_t add_range(Range range, uint64_t address) {
  void* const bytes =
      ::mmap(nullptr, range.size, PROT_READ | PROT_WRITE, MAP_SHARED, range.file, 0);
  if (bytes == MAP_FAILED) return 0;
  range.bytes = static_cast<char*>(bytes);
  range.buffer = ++gpu().buffers;
  if (address == 0) address = reserve(range.size);
  gpu().ranges[address] = std::move(range);
  return address;
}

void end_range(uint64_t address) {
  const Range& range = gpu().ranges.at(address);
  ::munmap(range.bytes, range.size);
  if (!range.mapped) ::munmap(std::bit_cast<void*>(address), range.size);
  ::close(range.file);
  gpu().ranges.erase(address);
}

uint64_t allocate(int number, size_t wanted) {
  const size_t bytes = std::max<size_t>(wanted, 1);
  Range range{.size = bytes, .file = ::memfd_create("memory of a GPU", MFD_CLOEXEC), .gpu = number};
  const bool made = ::ftruncate(range.file, static_cast<off_t>(bytes)) == 0;
  return made ? add_range(std::move(range)) : 0;
}

int gpu_of(void* context) {
  const auto& all = gpu().contexts;
  const auto found =
      std::find_if(all.begin(), all.end(), [context](const char& one) { return &one == context; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

int wanted(const char* function) {
  const auto found = gpu().answers.find(function);
  return found == gpu().answers.end() ? kSuccess : found->second;
}

bool is_imported_for(int number, uint64_t address) {
  const auto* const found = range_of(address);
  if (found == nullptr) return true;
  if (found->second.mapped) return (found->second.readers >> number & 1) != 0;
  if (found->second.handle.empty()) return true;
  const int opened_on = found->second.opened_on;
  if (opened_on == number) return true;
  return wanted("imported") == kSuccess && gpu().peers.count({number, opened_on}) > 0;
}

int fault_here() {
  return contexts.empty() ? kSuccess
                          : gpu().faults.at(static_cast<size_t>(gpu_of(contexts.back())));
}

int told(const char* function) {
  const int fault = fault_here();
  return fault != kSuccess ? fault : wanted(function);
}

int told_unsafe(const char* function) {
  int result = told(function);
  for (auto& [stream, capture] : gpu().captures) {
    const bool ours = capture.by == std::this_thread::get_id();
    if (capture_mode == kRelaxed || (!ours && capture_mode != kGlobal)) continue;
    capture.spoilt = true;
    result = kCaptureUnsupported;
  }
  return result;
}

uint32_t* word_at(uint64_t address) {
  for (const auto& [base, pinned] : gpu().pinned) {
    const uint64_t offset = address - pinned.address;
    if (offset >= pinned.size || pinned.size - offset < sizeof(uint32_t)) continue;
    return std::bit_cast<uint32_t*>(std::bit_cast<uint64_t>(base) + offset);
  }
  return nullptr;
}

Stream& add_stream(void* id) {
  Stream& made = gpu().streams[id];
  made.number = ++gpu().streams_made;
  return made;
}

// The name is never used again: whoever asks for it then is to be refused.
void end_stream(void* id) {
  Stream& stream = gpu().streams.at(id);
  stream.ended = true;
  stream.made = false;
  stream.held = false;
  gpu().names.push_back(id);
}

int enqueue(void* stream, Act act) {
  if (contexts.empty()) return kInvalidContext;
  if (const int fault = fault_here(); fault != kSuccess) return fault;
  const auto found = gpu().streams.find(stream);
  if (found == gpu().streams.end() || found->second.ended) return kInvalidHandle;
  found->second.work.push_back({Clock::now(), ++gpu().put, std::move(act)});
  return kSuccess;
}

int enqueue_work(void* stream, Act act) {
  const auto number = static_cast<size_t>(contexts.empty() ? 0 : gpu_of(contexts.back()));
  return enqueue(stream, [act = std::move(act), number]() -> std::optional<int> {
    const int fault = wanted("later");
    if (fault != kSuccess) gpu().faults.at(number) = fault;
    return fault != kSuccess ? fault : act();
  });
}

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

void twin_stall(const char* function, bool on) {
  const std::lock_guard lock(gpu().mutex);
  if (on) {
    gpu().stalled.insert(function);
  } else {
    gpu().stalled.erase(function);
  }
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
    twin_share};
}
// NOLINTEND(readability-identifier-naming)
