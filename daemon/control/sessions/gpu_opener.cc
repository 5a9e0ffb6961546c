#include "daemon/control/sessions/gpu_opener.h"

#include <utility>

namespace gradring::daemon {

void GpuOpener::open(SessionId session, uint64_t request, uint64_t segment,
                     std::shared_ptr<const transport::Segment> stands_for_it,
                     const transport::GpuShare& share, std::shared_ptr<const Fd> descriptor) {
  worker_.put([this, session, request, segment, share, memory = std::move(stands_for_it),
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

tl::expected<std::shared_ptr<const SharedGpuMemory>, Status> GpuOpener::open(
    std::shared_ptr<const transport::Segment> segment, const transport::GpuShare& share) {
  auto memory = gpus_->open(share);
  if (!memory) return tl::unexpected(memory.error());
  auto ready = gpus_->make_ready(segment->memory());
  if (!ready) return tl::unexpected(ready.error());
  const auto let_go = [this](const SharedGpuMemory* last) { worker_.put([last] { delete last; }); };
  return std::shared_ptr<const SharedGpuMemory>(
      new SharedGpuMemory{std::move(segment), std::move(*memory), std::move(*ready)}, let_go);
}

}  // namespace gradring::daemon
