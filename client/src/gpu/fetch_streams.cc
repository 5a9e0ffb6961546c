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
