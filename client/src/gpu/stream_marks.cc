#include "client/src/gpu/stream_marks.h"

namespace gradring::client {
namespace {

constexpr auto kDone = CudaDriver::kSuccess;

// A process has fewer streams, unless it makes new ones again and again.
constexpr size_t kManyStreams = 8;

}  // namespace

CudaDriver::Result StreamMarks::set(CudaDriver::Stream stream) {
  auto found = last_.find(stream);
  auto result = CudaDriver::kSuccess;
  if (found == last_.end()) {
    if (last_.size() >= kManyStreams) forget_what_is_done();
    CudaDriver::Event event = nullptr;
    result = driver_.create_event(&event, CudaDriver::kNoTiming);
    if (result != CudaDriver::kSuccess) return result;
    found = last_.emplace(stream, event).first;
  } else {
    // It may be another one by now, which the driver has given the name of one that is gone.
    result = driver_.wait_for_event(stream, found->second, 0);
  }
  return result == CudaDriver::kSuccess ? driver_.record_event(found->second, stream) : result;
}

CudaDriver::Result StreamMarks::let_follow(CudaDriver::Stream later) const {
  for (const auto& [stream, event] : last_) {
    const auto result = driver_.wait_for_event(later, event, 0);
    if (result != CudaDriver::kSuccess) return result;
  }
  return CudaDriver::kSuccess;
}

void StreamMarks::wait() {
  for (const auto& [stream, event] : last_) {
    driver_.wait_here(event);
    driver_.destroy_event(event);
  }
  last_.clear();
}

void StreamMarks::forget_what_is_done() {
  std::erase_if(last_, [this](const auto& entry) {
    if (driver_.query_event(entry.second) != kDone) return false;
    driver_.destroy_event(entry.second);
    return true;
  });
}

}  // namespace gradring::client
