#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/data/messages.h"
#include "daemon/fd.h"
#include "daemon/worker.h"
#include "transport/gpus.h"
#include "transport/shm/segment.h"

namespace gradring::daemon {

// Opens memory of GPUs and pins the segments that stand for it, and closes and unpins them: with a
// driver that takes 0.1 s for each GB, longer for a GPU that is busy, and for ever for one that
// hangs: so on a thread for each GPU, in the order in which it was asked. Control thread, but for
// the last owner of what it opened, which may be let go of on any. It must outlive all of that.
class GpuOpener {
 public:
  // Null: there are no GPUs, and nothing is asked.
  GpuOpener(transport::Gpus* gpus, EventBox* events)
      : gpus_(gpus), events_(events), workers_(gpus == nullptr ? 0 : gpus->count()) {}
  GpuOpener(const GpuOpener&) = delete;
  GpuOpener& operator=(const GpuOpener&) = delete;

  bool works() const { return gpus_ != nullptr; }
  // Whether all that was asked is done in time. A driver takes for ever for what a GPU that hangs
  // is at work with.
  bool rests_within(std::chrono::milliseconds time);
  // Waits for what was asked. From then on nothing is opened, and whoever lets go of something
  // closes it himself.
  void end() {
    for (Worker& worker : workers_) worker.end();
  }

  // GpuMemoryOpened is the answer. `descriptor`: of the memory, where it was given one.
  void open(SessionId session, uint64_t request, uint64_t segment,
            std::shared_ptr<const transport::Segment> stands_for_it,
            const transport::GpuShare& share, std::shared_ptr<const Fd> descriptor);
  // Called by its thread, when all of this GPU that was let go of by now is closed.
  void when_closed(size_t gpu, std::function<void()> tell) { workers_[gpu].put(std::move(tell)); }

 private:
  tl::expected<std::shared_ptr<const SharedGpuMemory>, Status> open(
      std::shared_ptr<const transport::Segment> segment, const transport::GpuShare& share,
      Worker& worker);
  Worker& worker_of(const transport::GpuShare& share);

  transport::Gpus* const gpus_;
  EventBox* const events_;
  std::deque<Worker> workers_;  // by GPU
};

}  // namespace gradring::daemon
