// What the machine tells of its ports and GPUs while it happens.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/control/control_thread.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

bool has_memory_of(const Session& session, const std::string& gpu) {
  return std::any_of(session.segments.begin(), session.segments.end(), [&gpu](const auto& entry) {
    return entry.second.gpu_asked && uuid_text(entry.second.gpu_of) == bare_uuid(gpu);
  });
}

}  // namespace

Status ControlThread::open_hardware() {
  if (ports_.event_fd() >= 0) epoll_.add(ports_.event_fd(), tag_of(Source::kPorts));
  if (gpu_health_.event_fd() >= 0) epoll_.add(gpu_health_.event_fd(), tag_of(Source::kGpus));
  return open_signals();
}

// At once, and not when heartbeats or the transport's retries end.
void ControlThread::read_ports(core::Time now) {
  for (const Ports::LaneChange& change : ports_.take()) {
    if (change.down) {
      peers_.port_down(change.lane, change.why, now);
    } else {
      peers_.port_active(change.lane);
    }
  }
}

void ControlThread::read_gpus(core::Time now) {
  for (const GpuHealth::Lost& lost : gpu_health_.take(now)) {
    std::vector<SessionId> theirs;
    sessions_.for_each([&](const Session& session) {
      if (!session.gone && has_memory_of(session, lost.gpu)) theirs.push_back(session.id);
    });
    for (const SessionId id : theirs) gpu_lost(id, lost);
  }
}

// A trainer whose GPU is lost computes nothing any more, so its rank leaves as that of a dead one
// does. Its process is there, and is told why; it may leave, and join again with another GPU.
void ControlThread::gpu_lost(SessionId id, const GpuHealth::Lost& lost) {
  Session* const session = sessions_.find(id);
  if (session == nullptr || session->part == JobPart::kNone || session->part == JobPart::kClosed) {
    return;
  }
  const bool joining = session->part == JobPart::kJoining;
  const Failure failure = lose(session, "its GPU " + lost.why, lost.gpu);
  if (joining) {
    jobs_.refuse(id, {Code::kUnavailable, describe(failure)});
  } else {
    jobs_.close(id, session->job, failure);
  }
}

}  // namespace gradring::daemon
