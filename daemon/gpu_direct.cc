#include "daemon/gpu_direct.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <utility>

namespace gradring::daemon {
namespace {

Status reach(transport::Gpus& gpus, size_t gpu, const Lanes& lanes) {
  constexpr uint64_t kTried = 64 << 10;
  const auto memory = gpus.allocate(gpu, kTried);
  if (!memory) return memory.error();
  for (const auto& lane : lanes) {
    const auto ready = lane->make_ready_on_gpu({(*memory)->address(), kTried});
    if (!ready) return ready.error();
  }
  return {};
}

// One that is full or lost is no reason for what lies on the others.
Status reach_any(transport::Gpus& gpus, const Lanes& lanes) {
  const auto entered = gpus.enter();
  if (!entered) return entered.error();
  for (const auto& lane : lanes) {
    if (Status able = lane->can_reach_gpus(gpus.lend_dmabufs()); !able.ok()) return able;
  }
  Status first;
  for (size_t gpu = 0; gpu < gpus.count(); ++gpu) {
    Status reached = reach(gpus, gpu, lanes);
    if (reached.ok()) return {};
    if (first.ok()) first = std::move(reached);
  }
  return first;
}

std::string why_not(const Config& config, transport::Gpus& gpus, const Lanes& lanes) {
  if (!config.gpu_direct) return "gpu-direct is off";
  if (config.checksum) return "checksum is on, and only a processor can make one";
  if (config.verify) return "verify is on, and only a processor compares results";
  return reach_any(gpus, lanes).message();
}

}  // namespace

GpuDirect gpu_direct_of(const Config& config, transport::Gpus* gpus, const Lanes& lanes) {
  if (gpus == nullptr) return {};
  const std::string why = why_not(config, *gpus, lanes);
  const std::string how = why.empty() ? "from the GPUs' memory" : "from the host's memory: " + why;
  if (config.gpu_direct) {
    spdlog::log(why.empty() ? spdlog::level::info : spdlog::level::warn,
                "what is summed on GPUs goes to other nodes {}", how);
  }
  GpuDirect chosen{why.empty(), how, {}};
  for (size_t gpu = 0; chosen.on && gpu < gpus->count(); ++gpu) {
    chosen.gpus.push_back(gpus->uuid(gpu));
  }
  return chosen;
}

}  // namespace gradring::daemon
