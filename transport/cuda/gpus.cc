#include "transport/cuda/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "transport/cuda/engine.h"

namespace gradring::transport {
namespace {

// One that takes them is enough: another says so when its memory is opened.
Status take_kernels(const std::vector<std::shared_ptr<cuda::Gpu>>& gpus) {
  Status status;
  for (const auto& gpu : gpus) {
    status = gpu->takes_kernels();
    if (status.ok()) break;
  }
  return status;
}

}  // namespace

void set_nccl_environment(GpuSumsBy by) {
  if (by == GpuSumsBy::kKernels) return;
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

tl::expected<std::shared_ptr<Gpus>, Status> open_gpus(std::span<const std::byte> kernels,
                                                      const GpuSums& sums) {
  const auto refuse = [](std::string why) {
    return tl::unexpected(Status(Code::kUnavailable, std::move(why)));
  };
  const auto found = cuda::driver();
  if (!found) return refuse(found.error());
  const cuda::Driver& driver = **found;
  int count = 0;
  const auto counted = driver.count_devices(&count);
  std::vector<std::shared_ptr<cuda::Gpu>> gpus;
  for (unsigned i = 0; i < std::min(static_cast<unsigned>(count), cuda::kGpusMax); ++i) {
    cuda::Driver::Device device = 0;
    if (driver.get_device(&device, static_cast<int>(i)) != cuda::Driver::kSuccess) break;
    gpus.push_back(std::make_shared<cuda::Gpu>(driver, device, i, kernels));
  }
  if (gpus.empty()) {
    return refuse(
        fmt::format("NVIDIA's driver has no GPU for the daemon ({}): see what nvidia-smi "
                    "says, and CUDA_VISIBLE_DEVICES",
                    driver.in_words(counted)));
  }
  Status taken = take_kernels(gpus);
  if (!taken.ok()) return tl::unexpected(std::move(taken));
  return std::make_shared<cuda::Engine>(std::move(gpus), sums);
}

}  // namespace gradring::transport
