#include "transport/ucx/ucx_transport.h"

#include <algorithm>
#include <utility>

#include "transport/ucx/body.h"
#include "transport/ucx/constants.h"
#include "transport/ucx/devices.h"
#include "transport/ucx/log.h"
#include "transport/ucx/memlock.h"
#include "transport/ucx/settings.h"
#include "transport/ucx/worker.h"

namespace gradring::transport {
namespace {

// Over RDMA nothing: the card sends from the owner's memory, and takes its time. Over TCP all
// slices, save those that are to go by rendezvous; UCX counts the header in with them.
std::optional<size_t> whole_bytes_of(const DeviceChoice& choice, const UcxOptions& options) {
  if (choice.any_rdma()) return std::nullopt;
  const size_t eager = options.rendezvous_bytes.value_or(kTcpSegmentBytes);
  return std::min(kTcpSliceBytes, eager - std::min(eager, kHeadersBytes));
}

tl::expected<DeviceChoice, Status> choose(const UcxOptions& options) {
  take_over_ucx_log();
  const auto inventory = take_device_inventory();
  if (!inventory) return tl::unexpected(inventory.error());
  return choose_devices(options.devices, options.listen_address, *inventory, options.by_sockets);
}

}  // namespace

tl::expected<UcxDevices, Status> choose_ucx_devices(const UcxOptions& options) {
  const auto choice = choose(options);
  if (!choice) return tl::unexpected(choice.error());
  UcxDevices devices{{}, choice->reason, choice->any_rdma()};
  for (const UcxDevice& device : choice->devices) devices.names.push_back(device.name);
  return devices;
}

tl::expected<std::unique_ptr<Transport>, Status> make_ucx_transport(const UcxOptions& options) {
  auto choice = choose(options);
  if (!choice) return tl::unexpected(choice.error());
  if (Status status = check_memlock(*choice, lockable_memory()); !status.ok()) {
    return tl::unexpected(status);
  }
  if (choice->any_rdma() && !options.rdma.gid_reason.empty()) {
    choice->reason += "; " + options.rdma.gid_reason;
  }
  const auto whole_bytes = whole_bytes_of(*choice, options);
  const bool awaits_wiring =
      options.rendezvous_bytes || (choice->any_rdma() && !ucx_closes_unwired());
  auto worker = UcxWorker::open(
      settings_for(*choice, options.rendezvous_bytes, options.rdma, options.gpus, options.ports));
  if (!worker) return tl::unexpected(worker.error());
  auto transport = std::make_unique<UcxTransport>(std::move(*worker), std::move(*choice),
                                                  whole_bytes, awaits_wiring);
  if (Status status = transport->listen(); !status.ok()) return tl::unexpected(status);
  return transport;
}

std::string ucx_version() { return ucp_get_version_string(); }

UcxViability ucx_viability() {
  take_over_ucx_log();
  const std::string version = "UCX " + ucx_version();
  const auto inventory = take_device_inventory();
  if (!inventory) return {false, version + ": " + inventory.error().message()};
  if (inventory->usable.empty()) {
    return {false, version + " finds no network device that is up and has an address"};
  }
  return {true, version + " can use " + list_devices(inventory->usable)};
}

}  // namespace gradring::transport
