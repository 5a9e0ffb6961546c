#include "daemon/gpu_direct.h"

#include <spdlog/spdlog.h>

#include <cstdint>

namespace gradring::daemon {
namespace {

Status reach(transport::Gpus& gpus, const Lanes& lanes) {
  constexpr uint64_t kTried = 64 << 10;
  const auto entered = gpus.enter();
  if (!entered) return entered.error();
  const auto memory = gpus.allocate(0, kTried);
  if (!memory) return memory.error();
  for (const auto& lane : lanes) {
    if (Status able = lane->can_reach_gpus(gpus.lend_dmabufs()); !able.ok()) return able;
    const auto ready = lane->make_ready_on_gpu({(*memory)->address(), kTried});
    if (!ready) return ready.error();
  }
  return {};
}

std::string why_not(const Config& config, transport::Gpus& gpus, const Lanes& lanes) {
  if (!config.gpu_direct) return "gpu-direct is off";
  if (config.checksum) return "checksum is on, and only a processor can make one";
  if (config.verify) return "verify is on, and only a processor compares results";
  return reach(gpus, lanes).message();
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
