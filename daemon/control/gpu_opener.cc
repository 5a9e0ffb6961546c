#include "daemon/control/gpu_opener.h"

#include <utility>

namespace gradring::daemon {

GpuOpener::GpuOpener(transport::Gpus* gpus, EventBox* events) : gpus_(gpus), events_(events) {
  if (gpus_ != nullptr) thread_ = std::thread([this] { run(); });
}

void GpuOpener::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool GpuOpener::rests_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return works_.empty() && !works_on_one_; });
}

void GpuOpener::put(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (ends_) {
    lock.unlock();
    return work();
  }
  works_.push_back(std::move(work));
  changed_.notify_all();
}

void GpuOpener::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !works_.empty(); });
    if (works_.empty()) return;
    const std::function<void()> work = std::move(works_.front());
    works_.pop_front();
    works_on_one_ = true;
    lock.unlock();
    work();
    lock.lock();
    works_on_one_ = false;
    changed_.notify_all();
  }
}

void GpuOpener::open(SessionId session, uint64_t request, uint64_t segment,
                     std::shared_ptr<const transport::Segment> stands_for_it,
                     const transport::GpuShare& share, std::shared_ptr<const Fd> descriptor) {
  put([this, session, request, segment, share, memory = std::move(stands_for_it),
       descriptor = std::move(descriptor)] {
    transport::GpuShare what = share;
    if (descriptor != nullptr) what.descriptor = descriptor->get();
    auto opened = open(memory, what);
    GpuMemoryOpened told{session, request, segment, nullptr, {}};
    if (opened) {
      told.memory = std::move(*opened);
    } else {
      told.refused = opened.error();
    }
    events_->post(std::move(told));
  });
}

void GpuOpener::tell_when_closed(SessionId session, uint64_t request) {
  put([this, session, request] { events_->post(GpuMemoryClosed{session, request}); });
}

tl::expected<std::shared_ptr<const SharedGpuMemory>, Status> GpuOpener::open(
    std::shared_ptr<const transport::Segment> segment, const transport::GpuShare& share) {
  auto memory = gpus_->open(share);
  if (!memory) return tl::unexpected(memory.error());
  auto ready = gpus_->make_ready(segment->memory());
  if (!ready) return tl::unexpected(ready.error());
  const auto let_go = [this](const SharedGpuMemory* last) { put([last] { delete last; }); };
  return std::shared_ptr<const SharedGpuMemory>(
      new SharedGpuMemory{std::move(segment), std::move(*memory), std::move(*ready)}, let_go);
}

}  // namespace gradring::daemon
