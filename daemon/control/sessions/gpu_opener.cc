#include "daemon/control/sessions/gpu_opener.h"

#include <algorithm>
#include <utility>

namespace gradring::daemon {

bool GpuOpener::rests_within(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  return std::all_of(workers_.begin(), workers_.end(), [until](Worker& worker) {
    const auto left = until - std::chrono::steady_clock::now();
    return worker.rests_within(std::chrono::ceil<std::chrono::milliseconds>(left));
  });
}

// Of one that is none of these any will say so.
Worker& GpuOpener::worker_of(const transport::GpuShare& share) {
  for (size_t gpu = 0; gpu < workers_.size(); ++gpu) {
    if (gpus_->uuid(gpu) == share.gpu) return workers_[gpu];
  }
  return workers_.front();
}

void GpuOpener::open(SessionId session, uint64_t request, uint64_t segment,
                     std::shared_ptr<const transport::Segment> stands_for_it,
                     const transport::GpuShare& share, std::shared_ptr<const Fd> descriptor) {
  Worker& worker = worker_of(share);
  worker.put([this, session, request, segment, share, memory = std::move(stands_for_it),
              descriptor = std::move(descriptor), &worker] {
    transport::GpuShare what = share;
    if (descriptor != nullptr) what.descriptor = descriptor->get();
    auto opened = open(memory, what, worker);
    GpuMemoryOpened told{session, request, segment, nullptr, {}};
    if (opened) {
      told.memory = std::move(*opened);
    } else {
      told.refused = opened.error();
    }
    events_->post(std::move(told));
  });
}

tl::expected<std::shared_ptr<const SharedGpuMemory>, Status> GpuOpener::open(
    std::shared_ptr<const transport::Segment> segment, const transport::GpuShare& share,
    Worker& worker) {
  auto memory = gpus_->open(share);
  if (!memory) return tl::unexpected(memory.error());
  auto ready = gpus_->make_ready(segment->memory(), (*memory)->gpu());
  if (!ready) return tl::unexpected(ready.error());
  const auto let_go = [&worker](const SharedGpuMemory* last) {
    worker.put([last] { delete last; });
  };
  return std::shared_ptr<const SharedGpuMemory>(
      new SharedGpuMemory{std::move(segment), std::move(*memory), std::move(*ready)}, let_go);
}

}  // namespace gradring::daemon
