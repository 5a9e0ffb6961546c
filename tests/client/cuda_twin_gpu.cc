// The GPUs of the tests: what they have, and do. What a test does with them is in
// cuda_twin_program.cc.
#include "tests/client/cuda_twin_gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

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

constexpr int kAll = -1;

// The GPU whose number the file has, as long as there is one.
std::optional<int> named_in(const std::string& file) {
  if (file.empty() || ::access(file.c_str(), F_OK) != 0) return std::nullopt;
  int number = kAll;
  std::ifstream(file) >> number;
  return number;
}

// What the streams have come to; in turns, as far as each can go.
[[noreturn]] void work_on_all(Gpu* gpu) {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard lock(gpu->mutex);
    const std::optional<int> hangs = named_in(gpu->hangs_while);
    const std::optional<int> lost = named_in(gpu->lost_while);
    for (int number = 0; number < kGpusMax && !gpu->lost_while.empty(); ++number) {
      gpu->faults.at(static_cast<size_t>(number)) = lost == number ? kUnknown : kSuccess;
    }
    for (auto& [id, stream] : gpu->streams) {
      if (hangs != kAll && hangs != stream.gpu) work_on(gpu, &stream);
    }
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
    made->under_mps = std::getenv("GRADRING_TWIN_MPS") != nullptr;
    if (const char* const file = std::getenv("GRADRING_TWIN_HANGS")) made->hangs_while = file;
    if (const char* const file = std::getenv("GRADRING_TWIN_LOST")) made->lost_while = file;
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
  if (found->second.made) gpu().most = std::max(gpu().most, found->second.work.size());
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

}  // namespace gradring::test::twin
