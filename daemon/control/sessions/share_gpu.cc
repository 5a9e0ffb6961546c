// Memory of a GPU that a trainer lets the daemon open.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/sessions/requests.h"

namespace gradring::daemon {
namespace {

template <size_t kBytes>
bool bytes_of(const std::string& from, std::array<std::byte, kBytes>* to) {
  if (from.size() != kBytes) return false;
  std::transform(from.begin(), from.end(), to->begin(), [](char c) { return std::byte(c); });
  return true;
}

// A trainer's words, as far as they fit a line of the log.
std::string one_line(std::string words) {
  constexpr size_t kMost = 300;
  words.resize(std::min(words.size(), kMost));
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, ' ');
  return words;
}

Status check(const wire::ShareGpuMemory& share, const SharedSegment& segment,
             transport::GpuShare* to) {
  to->bytes = share.bytes();
  const bool by_handle = share.offered() == 0;
  if (by_handle) to->offset = share.offset();
  if ((by_handle && !bytes_of(share.handle(), &to->handle)) || !bytes_of(share.gpu(), &to->gpu)) {
    return {Code::kInvalidArgument,
            fmt::format("a handle of {} bytes for a GPU named in {}; they have 64 and 16",
                        share.handle().size(), share.gpu().size())};
  }
  if (share.bytes() == 0 || share.bytes() > segment.bytes()) {
    return {Code::kInvalidArgument,
            fmt::format("{} bytes of a GPU do not fit a segment of {} bytes", share.bytes(),
                        segment.bytes())};
  }
  return {};
}

}  // namespace

void Requests::refuse_share(const Session& session, uint64_t request, const Status& why) {
  if (told_shares_.lets(why.message(), monotonic_now())) {
    spdlog::info("a GPU's memory of {} goes by way of its trainer: {}", describe(session.who),
                 why.message());
  }
  parts_.clients->refuse(session.routing_id, request, why);
}

void Requests::share_gpu(const Asked& asked, Session& session, const wire::ShareGpuMemory& share) {
  const auto offered = session.offered.extract(share.offered());  // closed, whatever comes of it
  const auto refuse = [&](const Status& why) { refuse_share(session, asked.request, why); };
  if (!parts_.opener->works()) {  // as libgradring knows from the welcome
    return parts_.clients->refuse(
        session.routing_id, asked.request,
        {Code::kUnavailable, "the GPUs of this daemon sum for nobody (gpu-sums)"});
  }
  const auto it = session.segments.find(share.segment());
  if (it == session.segments.end()) {
    return refuse({Code::kNotFound,
                   fmt::format("segment {} does not belong to this session", share.segment())});
  }
  if (!share.cannot().empty()) {
    return refuse({Code::kUnavailable, one_line(share.cannot())});
  }
  if (it->second.gpu_asked) {
    return refuse({Code::kInvalidArgument,
                   fmt::format("segment {} stands for a GPU's memory already", share.segment())});
  }
  if (share.offered() != 0 && offered.empty()) {
    return refuse({Code::kNotFound,
                   fmt::format("no memory of a GPU was offered by request {}", share.offered())});
  }
  transport::GpuShare what;
  if (Status wrong = check(share, it->second, &what); !wrong.ok()) return refuse(wrong);
  const std::string fault = parts_.gpu_health->why_unusable(uuid_text(what.gpu));
  if (!fault.empty()) return refuse({Code::kUnavailable, fault});
  it->second.gpu_asked = true;
  it->second.gpu_of = what.gpu;
  parts_.opener->open(session.id, asked.request, share.segment(), it->second.shared, what,
                      offered.empty() ? nullptr : offered.mapped());
}

void Requests::gpu_opened(GpuMemoryOpened& opened) {
  Session* const session = parts_.sessions->find(opened.session);
  if (session == nullptr || session->gone) return;
  const auto it = session->segments.find(opened.segment);
  if (it == session->segments.end()) {
    const bool is_open = opened.memory != nullptr;
    const size_t gpu = is_open ? opened.memory->open->gpu() : 0;
    opened.memory.reset();  // before its end is asked for, and not with the event
    refuse_share(*session, opened.request,
                 {Code::kNotFound, fmt::format("segment {} was freed before its GPU's memory "
                                               "was open",
                                               opened.segment)});
    const auto freed = session->freed_early.extract(opened.segment);
    if (freed.empty()) return;
    const auto tell = once_free(session->id, freed.mapped());
    return is_open ? parts_.opener->when_closed(gpu, tell) : tell();
  }
  if (opened.memory == nullptr) {
    it->second.gpu_asked = false;
    return refuse_share(*session, opened.request, opened.refused);
  }
  // It may have become so meanwhile.
  const std::string fault = parts_.gpu_health->why_unusable(uuid_text(it->second.gpu_of));
  if (!fault.empty()) {
    it->second.gpu_asked = false;
    return refuse_share(*session, opened.request, {Code::kUnavailable, fault});
  }
  it->second.gpu = opened.memory;
  parts_.rings->lend(*session, opened.segment);
  spdlog::debug("{} bytes on a GPU of {} are open here", opened.memory->open->bytes(),
                describe(session->who));
  wire::DaemonMessage message;
  message.set_request(opened.request);
  message.mutable_gpu_shared();
  parts_.clients->tell(*session, std::move(message));
}

// Its trainer may free what lies on the GPU when that is told, so nobody else may have it by then:
// other sessions of the process, which have borrowed the segment, need it for ops under way alone.
void Requests::close_gpu(Session& session, uint64_t request,
                         const std::shared_ptr<const SharedGpuMemory>& memory) {
  parts_.sessions->for_each([&memory](Session& other) {
    for (auto& [id, segment] : other.segments) {
      if (segment.gpu == memory && segment.uses == 0) segment.gpu.reset();
    }
  });
  parts_.commands->post(LetGoOfGpuMemory{session.id, request, memory.get(), memory->open->gpu()});
}

void Requests::gpu_let_go(const GpuMemoryLetGo& let_go) {
  parts_.opener->when_closed(let_go.gpu, once_free(let_go.session, let_go.request));
}

}  // namespace gradring::daemon
