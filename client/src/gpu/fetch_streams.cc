#include "client/src/gpu/fetch_streams.h"

#include <algorithm>
#include <bit>

namespace gradring::client {
namespace {

// Whoever makes new streams again and again must not have us keep one for each.
constexpr size_t kStreamsMost = 16;

std::thread::id thread_of(CudaDriver::Stream stream) {
  static const auto kPerThread =
      std::bit_cast<CudaDriver::Stream>(uintptr_t{2});  // CU_STREAM_PER_THREAD
  return stream == kPerThread ? std::this_thread::get_id() : std::thread::id();
}

}  // namespace

FetchStream::~FetchStream() {
  if (stream_ != nullptr) driver_.destroy_stream(stream_);
  if (there_ != nullptr) driver_.destroy_event(there_);
}

CudaDriver::Result FetchStream::make() {
  auto result = driver_.create_stream(&stream_, CudaDriver::kNonBlocking);
  if (result == CudaDriver::kSuccess) result = driver_.create_event(&there_, CudaDriver::kNoTiming);
  return result;
}

CudaDriver::Result FetchStream::follow(CudaDriver::Stream theirs) {
  const auto result = driver_.record_event(there_, theirs);
  return result == CudaDriver::kSuccess ? driver_.wait_for_event(stream_, there_, 0) : result;
}

CudaDriver::Result FetchStreams::behind(CudaDriver::Stream theirs,
                                        std::shared_ptr<FetchStream>* ours) {
  const Key key(theirs, thread_of(theirs));
  const std::lock_guard lock(mutex_);
  auto found = all_.find(key);
  if (found == all_.end()) {
    auto made = std::make_shared<FetchStream>(driver_);
    if (const auto result = made->make(); result != CudaDriver::kSuccess) return result;
    if (all_.size() >= kStreamsMost) {
      all_.erase(std::min_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
      }));
    }
    found = all_.emplace(key, Known{std::move(made), 0}).first;
  }
  found->second.used = ++uses_;
  *ours = found->second.stream;
  return CudaDriver::kSuccess;
}

}  // namespace gradring::client
