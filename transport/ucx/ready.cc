// Memory that a card may reach. UCX's cache of registrations finds it there whenever it moves
// something, so that nothing is registered on the way of a message.
#include <fmt/format.h>

#include <utility>

#include "transport/ucx/body.h"

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

}  // namespace gradring::transport
