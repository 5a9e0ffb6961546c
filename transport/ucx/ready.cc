// Memory that a card may reach. UCX's cache of registrations finds it there whenever it moves
// something, so that nothing is registered on the way of a message.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "transport/ucx/body.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::transport {
namespace {

class Mapped final : public Registration {
 public:
  Mapped(ucp_context_h context, ucp_mem_h handle, uint64_t bytes, Counters* counters)
      : context_(context), handle_(handle), bytes_(bytes), counters_(counters) {
    ++counters_->registrations;
    counters_->registered_bytes += bytes_;
  }
  ~Mapped() override {
    ucp_mem_unmap(context_, handle_);
    counters_->registered_bytes -= bytes_;
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

 private:
  const ucp_context_h context_;
  const ucp_mem_h handle_;
  const uint64_t bytes_;
  Counters* const counters_;
};

class MappedOnGpu final : public Registration {
 public:
  MappedOnGpu(std::unique_ptr<Registration> mapped, std::map<const std::byte*, size_t>* all,
              std::span<std::byte> memory)
      : mapped_(std::move(mapped)), all_(all), at_(memory.data()) {
    all_->emplace(at_, memory.size());
  }
  ~MappedOnGpu() override { all_->erase(at_); }
  MappedOnGpu(const MappedOnGpu&) = delete;
  MappedOnGpu& operator=(const MappedOnGpu&) = delete;

 private:
  const std::unique_ptr<Registration> mapped_;
  std::map<const std::byte*, size_t>* const all_;
  const std::byte* const at_;
};

}  // namespace

tl::expected<std::unique_ptr<Registration>, Status> UcxTransport::make_ready(
    std::span<std::byte> memory) {
  if (whole_bytes_ && !awaits_wiring_) return nullptr;  // the kernel's sockets copy
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(worker_.context(), &params, &handle);
  if (status != UCS_OK) {
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("{} cannot lock {} KiB of memory more (UCX: {}); run gradringd with ulimit -l "
                    "unlimited (LimitMEMLOCK=infinity) or CAP_IPC_LOCK, or lower slots or "
                    "slice-bytes",
                    devices(), memory.size() >> 10, ucs_status_string(status))));
  }
  return std::make_unique<Mapped>(worker_.context(), handle, memory.size(), &counters_);
}

// UCX takes memory of GPUs that no card reaches as well: ucp_mem_map() tells it to what copies
// there alone, and each message would go by way of the host's memory after all.
Status can_reach_gpus(const DeviceChoice& choice, bool dmabufs) {
  for (const UcxDevice& device : choice.devices) {
    if (!device.rdma || device.peer_memory || (device.dmabufs && dmabufs)) continue;
    return {Code::kUnavailable,
            fmt::format("{} cannot reach memory of GPUs by UCX {}, {}: modprobe nvidia_peermem (or "
                        "nv_peer_mem); or use DMA-BUF, which takes UCX 1.14 or later, a kernel and "
                        "a driver of the card with it, and NVIDIA's open kernel modules",
                        device.name, ucx_version(),
                        device.dmabufs ? "which the GPUs' driver does not lend as DMA-BUF"
                                       : "which sees neither a module for that nor DMA-BUF")};
  }
  return {};
}

Status UcxTransport::can_reach_gpus(bool dmabufs) const {
  if (!choice_.any_rdma()) {
    return {Code::kUnavailable, devices() + " is no RDMA device: what it sends the kernel copies"};
  }
  if (!reaches_gpus()) {
    return {Code::kUnavailable,
            fmt::format("{} does not reach GPUs, since UCX {} was built without CUDA, or sees no "
                        "GPU here",
                        devices(), ucx_version())};
  }
  return transport::can_reach_gpus(choice_, dmabufs);
}

tl::expected<std::unique_ptr<Registration>, Status> UcxTransport::make_ready_on_gpu(
    std::span<std::byte> memory) {
  if (Status status = can_reach_gpus(true); !status.ok()) {
    return tl::unexpected(std::move(status));
  }
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = UCS_MEMORY_TYPE_CUDA;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(worker_.context(), &params, &handle);
  if (status != UCS_OK) {
    return tl::unexpected(
        Status(Code::kUnavailable,
               fmt::format("{} does not take {} KiB of a GPU's memory (UCX: {}): see "
                           "what the kernel's log says of nvidia_peermem",
                           devices(), memory.size() >> 10, ucs_status_string(status))));
  }
  auto mapped = std::make_unique<Mapped>(worker_.context(), handle, memory.size(), &counters_);
  return std::make_unique<MappedOnGpu>(std::move(mapped), &on_gpu_, memory);
}

void UcxTransport::tell_memory_of(const std::byte* payload, ucp_request_param_t* param) const {
  if (on_gpu_.empty()) return;
  const auto behind = on_gpu_.upper_bound(payload);
  const bool on_gpu =
      behind != on_gpu_.begin() && payload < std::prev(behind)->first + std::prev(behind)->second;
  param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param->memory_type = on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

}  // namespace gradring::transport
