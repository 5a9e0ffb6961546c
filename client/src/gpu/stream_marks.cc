#include "client/src/gpu/stream_marks.h"

#include <utility>

namespace gradring::client {
namespace {

constexpr auto kDone = CudaDriver::kSuccess;

// A process has fewer streams, unless it makes new ones again and again.
constexpr size_t kManyStreams = 8;

}  // namespace

CudaDriver::Result StreamMarks::set(CudaDriver::Stream stream) {
  std::shared_ptr<Mark> mark;
  auto result = mark_of(stream, &mark);
  if (result != CudaDriver::kSuccess) return result;
  const std::lock_guard lock(mark->setting);
  // It may be another one by now, which the driver has given the name of one that is gone. What was
  // never recorded is waited for by nobody.
  result = driver_.wait_for_event(stream, mark->event, 0);
  return result == CudaDriver::kSuccess ? driver_.record_event(mark->event, stream) : result;
}

CudaDriver::Result StreamMarks::mark_of(CudaDriver::Stream stream, std::shared_ptr<Mark>* mark) {
  const std::lock_guard lock(mutex_);
  const auto found = last_.find(stream);
  if (found != last_.end()) {
    *mark = found->second;
    return CudaDriver::kSuccess;
  }
  if (last_.size() >= kManyStreams) forget_what_is_done();
  auto made = std::make_shared<Mark>(driver_);
  const auto result = driver_.create_event(&made->event, CudaDriver::kNoTiming);
  if (result != CudaDriver::kSuccess) {
    made->event = nullptr;
    return result;
  }
  *mark = last_[stream] = std::move(made);
  return result;
}

CudaDriver::Result StreamMarks::let_follow(CudaDriver::Stream later) const {
  std::vector<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : last_) marks.push_back(entry.second);
  }
  for (const auto& mark : marks) {
    const auto result = driver_.wait_for_event(later, mark->event, 0);
    if (result != CudaDriver::kSuccess) return result;
  }
  return CudaDriver::kSuccess;
}

void StreamMarks::wait() {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : last_) driver_.wait_here(entry.second->event);
  last_.clear();
}

// Not of what somebody is about to set.
void StreamMarks::forget_what_is_done() {
  std::erase_if(last_, [this](const auto& entry) {
    return entry.second.use_count() == 1 && driver_.query_event(entry.second->event) == kDone;
  });
}

}  // namespace gradring::client
