// Memory of a GPU that a trainer lets the daemon open.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/control/requests.h"

namespace gradring::daemon {
namespace {

template <size_t kBytes>
bool bytes_of(const std::string& from, std::array<std::byte, kBytes>* to) {
  if (from.size() != kBytes) return false;
  std::transform(from.begin(), from.end(), to->begin(), [](char c) { return std::byte(c); });
  return true;
}

tl::expected<std::shared_ptr<const SharedGpuMemory>, Status> open_for(
    transport::Gpus* gpus, const SharedSegment& segment, const wire::ShareGpuMemory& share) {
  transport::GpuShare what;
  what.offset = share.offset();
  what.bytes = share.bytes();
  if (!bytes_of(share.handle(), &what.handle) || !bytes_of(share.gpu(), &what.gpu)) {
    return tl::unexpected(Status(Code::kInvalidArgument,
                                 fmt::format("a handle of {} bytes for a GPU named in {}; they "
                                             "have 64 and 16",
                                             share.handle().size(), share.gpu().size())));
  }
  if (share.bytes() == 0 || share.bytes() > segment.bytes()) {
    return tl::unexpected(Status(Code::kInvalidArgument,
                                 fmt::format("{} bytes of a GPU do not fit a segment of {} bytes",
                                             share.bytes(), segment.bytes())));
  }
  auto open = gpus->open(what);
  if (!open) return tl::unexpected(open.error());
  auto ready = gpus->make_ready(segment.memory());
  if (!ready) return tl::unexpected(ready.error());
  return std::make_shared<const SharedGpuMemory>(
      SharedGpuMemory{std::move(*open), std::move(*ready)});
}

}  // namespace

void Requests::share_gpu(const Asked& asked, Session& session, const wire::ShareGpuMemory& share) {
  const auto refuse = [&](const Status& why) {
    spdlog::info("a GPU's memory of {} goes by way of its trainer: {}", describe(session.who),
                 why.message());
    parts_.clients->refuse(asked.routing_id, asked.request, why);
  };
  if (parts_.gpus == nullptr) {
    return refuse({Code::kUnavailable, "the GPUs of this daemon sum for nobody (gpu-sums)"});
  }
  const auto it = session.segments.find(share.segment());
  if (it == session.segments.end()) {
    return refuse({Code::kNotFound,
                   fmt::format("segment {} does not belong to this session", share.segment())});
  }
  if (it->second.gpu) {
    return refuse({Code::kInvalidArgument,
                   fmt::format("segment {} stands for a GPU's memory already", share.segment())});
  }
  auto shared = open_for(parts_.gpus, it->second, share);
  if (!shared) return refuse(shared.error());
  it->second.gpu = std::move(*shared);
  spdlog::debug("{} bytes on a GPU of {} are open here", share.bytes(), describe(session.who));
  wire::DaemonMessage message;
  message.set_request(asked.request);
  message.mutable_gpu_shared();
  parts_.clients->tell(session, std::move(message));
}

}  // namespace gradring::daemon
