#include "client/src/gpu/gpu_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/src/gpu/awaited_words.h"

namespace gradring::client {
namespace {

using Current = GpuContext::Current;

constexpr auto kSuccess = CudaDriver::kSuccess;

CudaDriver::Address address_of(const void* memory) {
  return reinterpret_cast<CudaDriver::Address>(memory);
}

constexpr CudaDriver::Result kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.
constexpr CudaDriver::Result kOfACapture = 900;
bool is_of_a_capture(CudaDriver::Result result) { return result >= kOfACapture && result <= 908; }

GpuMemory::Copy part_of(const GpuMemory::Copy& copy, uint32_t part) {
  const uint64_t first = part * copy.part_bytes;
  const uint64_t bytes = std::min(copy.part_bytes, copy.bytes - first);
  return {copy.shadow + first, copy.device + first, bytes, copy.part_bytes, copy.within_gpu};
}

}  // namespace

HeldWord& HeldWord::operator=(HeldWord&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(number_, other.number_);
  std::swap(word_, other.word_);
  return *this;
}

HeldWord::~HeldWord() {
  if (any()) memory_->give_back(number_);
}

uint64_t HeldWord::offset() const { return memory_->offset_of(number_); }

bool GpuMemory::is_of_a_gpu(const void* memory) {
  const CudaDriver* const driver = cuda_driver();
  unsigned type = 0;
  // What the driver does not know is the host's.
  return driver != nullptr &&
         driver->pointer_attribute(&type, CudaDriver::kMemoryTypeOf, address_of(memory)) ==
             kSuccess &&
         type == CudaDriver::kDeviceMemory;
}

tl::expected<std::shared_ptr<const GpuMemory>, Status> GpuMemory::of(
    const void* memory, uint64_t bytes, std::shared_ptr<const Mapping> shadow) {
  auto context = GpuContext::of(*cuda_driver(), memory);
  if (!context) return tl::unexpected(context.error());
  return std::shared_ptr<const GpuMemory>(
      new GpuMemory(std::move(*context), bytes, std::move(shadow)));
}

// Where pages cannot be pinned, copies are slower and no less right.
GpuMemory::GpuMemory(std::shared_ptr<const GpuContext> context, uint64_t bytes,
                     std::shared_ptr<const Mapping> shadow)
    : context_(std::move(context)),
      shadow_(std::move(shadow)),
      words_(shadow_->data(), StreamWords::behind(bytes)),
      results_(context_->driver()),
      rest_(context_->driver()) {
  const Current current(*context_);
  pinned_ = current.result() == kSuccess &&
            context_->driver().register_host(shadow_->data(), shadow_->bytes(),
                                             CudaDriver::kMapped) == kSuccess;
}

// Nothing is on its way out of or into the shadow after that: whoever has a stream that waits for
// an op has set its word by now.
GpuMemory::~GpuMemory() {
  const Current current(*context_);
  if (current.result() != kSuccess) return;
  results_.wait();
  rest_.wait();
  if (pinned_) context_->driver().unregister_host(shadow_->data());
}

HeldWord GpuMemory::take_word(uint32_t parts, StreamWords::By by) const {
  if (!pinned_ || !context_->driver().orders()) return {};
  const auto taken = words_.take(parts, by);
  if (!taken) return {};
  return {shared_from_this(), taken->first, taken->second};
}

CudaDriver::Result GpuMemory::to_shadow(const Copy& copy, CudaDriver::Stream stream) const {
  const CudaDriver& driver = context_->driver();
  const auto from = address_of(copy.device);
  return copy.within_gpu ? driver.copy_within(address_of(copy.shadow), from, copy.bytes, stream)
                         : driver.copy_to_host(copy.shadow, from, copy.bytes, stream);
}

CudaDriver::Result GpuMemory::from_shadow(const Copy& copy, CudaDriver::Stream stream) const {
  const CudaDriver& driver = context_->driver();
  const auto to = address_of(copy.device);
  return copy.within_gpu ? driver.copy_within(to, address_of(copy.shadow), copy.bytes, stream)
                         : driver.copy_to_device(to, copy.shadow, copy.bytes, stream);
}

CudaDriver::Result GpuMemory::not_captured(CudaDriver::Stream stream) const {
  int capturing = 0;
  const auto result = context_->driver().is_capturing(stream, &capturing);
  return capturing != 0 ? kOfACapture : result;
}

CudaDriver::Result GpuMemory::prepare(CudaDriver::Stream stream, const StreamWord& word,
                                      CudaDriver::Address* address) const {
  auto result = not_captured(stream);
  if (result == kSuccess) result = context_->driver().device_address(address, word.at, 0);
  return result;
}

Status GpuMemory::capture_or(CudaDriver::Result result, std::string_view what) const {
  if (!is_of_a_capture(result)) return context_->failed(result, what);
  return {Code::kInvalidArgument,
          "the op's stream is being captured into a CUDA graph, of which gradring's ops cannot "
          "be a part: submit them between the replays of graphs"};
}

CudaDriver::Result GpuMemory::follow_all(CudaDriver::Stream later) const {
  const auto result = results_.let_follow(later);
  return result == kSuccess ? rest_.let_follow(later) : result;
}

CudaDriver::Result GpuMemory::begin_on(CudaDriver::Stream by, const Copy& copy,
                                       const StreamWord& reached, CudaDriver::Address word) const {
  const bool copies = copy.bytes > 0;
  bool written = false;  // sooner or later
  auto result = kSuccess;
  for (uint32_t i = copies ? 0 : reached.parts - 1; i < reached.parts && result == kSuccess; ++i) {
    if (copies) result = to_shadow(part_of(copy, i), by);
    if (result == kSuccess) {
      result = context_->driver().write_word(by, word, reached.value_of(i), 0);
      written = written || result == kSuccess;
    }
  }
  // No stream will, and the next op may have it.
  if (result != kSuccess && !written) reached.set();
  const auto marked = rest_.set(by);  // also of what was put there before it failed
  return result == kSuccess ? marked : result;
}

tl::expected<bool, Status> GpuMemory::begin(const Copy& copy, CudaDriver::Stream stream,
                                            const StreamWord& reached,
                                            std::span<const GpuMemory* const> others) const {
  const Current current(*context_);
  CudaDriver::Address word = 0;
  CudaDriver::Stream by = stream;
  std::shared_ptr<FetchStream> ours;
  std::unique_lock<std::mutex> going;
  auto result = current.result();
  if (result == kSuccess) result = prepare(stream, reached, &word);
  if (result == kSuccess && !copy.in_place) {
    result = context_->fetches().behind(stream, &ours);
    if (result == kSuccess) {
      by = ours->stream();
      going = std::unique_lock(ours->go());
      result = ours->follow(stream);
    }
    for (size_t i = 0; i < others.size() && result == kSuccess; ++i) {
      result = others[i]->follow_all(by);
    }
  }
  if (result == kSuccess) {
    result = begin_on(by, copy, reached, word);
  } else {
    reached.set();  // as below
  }
  if (result == kNotSupported) return false;
  if (result == kSuccess) return true;
  return tl::unexpected(
      capture_or(result, fmt::format("{} bytes at {} of the GPU could not be copied from there",
                                     copy.bytes, static_cast<const void*>(copy.device))));
}

tl::expected<bool, Status> GpuMemory::deliver_on(CudaDriver::Stream stream, const StreamWord& ended,
                                                 const Copy& copy) const {
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  CudaDriver::Address word = 0;
  auto result = current.result();
  if (result == kSuccess) result = prepare(stream, ended, &word);
  const bool prepared = result == kSuccess;
  if (prepared) AwaitedWords::get().add(shadow_, ended);
  for (uint32_t i = 0; i < ended.parts && result == kSuccess; ++i) {
    result = driver.wait_for_word(stream, word, ended.value_of(i), CudaDriver::kAtLeast);
    if (result == kNotSupported) return false;
    if (result == kSuccess && copy.bytes > 0) result = from_shadow(part_of(copy, i), stream);
  }
  if (prepared) {  // whoever lets go of the shadow waits for that
    const auto marked = (copy.in_place ? rest_ : results_).set(stream);
    if (result == kSuccess) result = marked;
  }
  if (result == kSuccess) return true;
  return tl::unexpected(
      capture_or(result, fmt::format("the result of {} bytes cannot be copied to {} of the GPU",
                                     copy.bytes, static_cast<const void*>(copy.device))));
}

Status GpuMemory::join_delivery(CudaDriver::Stream stream) const {
  const Current current(*context_);
  auto result = current.result();
  if (result == kSuccess) result = not_captured(stream);
  if (result == kSuccess) result = results_.let_follow(stream);
  if (result == kSuccess) return {};
  return capture_or(result, "the stream cannot wait for the result on the GPU");
}

Status GpuMemory::reach(CudaDriver::Stream stream) const {
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  auto result = current.result();
  if (result == kSuccess) result = not_captured(stream);
  if (result == kSuccess) result = driver.synchronize(stream);
  if (result == kSuccess) return {};
  return capture_or(result, "the work before the op failed on the GPU");
}

Status GpuMemory::fetch(std::byte* host, const std::byte* device, uint64_t bytes,
                        CudaDriver::Stream stream) const {
  if (Status reached = reach(stream); !reached.ok()) return reached;
  const CudaDriver& driver = context_->driver();
  const Current current(*context_);
  auto result = current.result();
  if (result == kSuccess) result = driver.copy_to_host(host, address_of(device), bytes, stream);
  if (result == kSuccess) result = driver.synchronize(stream);
  if (result == kSuccess) return {};
  return context_->failed(
      result, fmt::format("{} bytes at {} of the GPU could not be copied to the host", bytes,
                          static_cast<const void*>(device)));
}

Status GpuMemory::deliver(const Copy& copy) const {
  if (copy.bytes == 0) return {};
  const Current current(*context_);
  auto result = current.result();
  const auto stream = context_->deliveries();
  if (result == kSuccess) result = from_shadow(copy, stream);
  if (result == kSuccess) result = context_->driver().synchronize(stream);
  if (result == kSuccess) return {};
  return context_->failed(
      result, fmt::format("the op is done, but its result of {} bytes could not be copied to {} of "
                          "the GPU",
                          copy.bytes, static_cast<const void*>(copy.device)));
}

}  // namespace gradring::client
