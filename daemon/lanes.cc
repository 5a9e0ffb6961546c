// The only file that names bodies of the message transport.
#include "daemon/lanes.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "transport/machine/gids.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::daemon {
namespace {

// In the network of which address an RDMA card's own is the right one.
machine::GidWish gid_wish_of(const Config& config) {
  machine::GidWish wish{config.rdma_gid_index, {}};
  const auto add = [&wish](const std::string& address, const char* what) {
    const auto parsed = parse_host_port(address);
    if (parsed && !is_any_address(parsed->host) && !is_loopback(parsed->host)) {
      wish.near.push_back({parsed->host, what});
    }
  };
  add(config.listen, "listen");
  for (const std::string& also : config.listen_also) add(also, "listen-also");
  for (const std::string& peer : config.peers) add(peer, "peer");
  return wish;
}

transport::RdmaOptions rdma_options_of(const Config& config) {
  transport::RdmaOptions options;
  options.traffic_class = config.rdma_traffic_class;
  options.service_level = config.rdma_service_level;
  options.path_mtu = config.rdma_path_mtu;
  options.timeout = std::chrono::milliseconds(config.rdma_timeout / core::kMillisecond);
  options.retries = config.rdma_retries;
  options.rnr_retries = config.rdma_rnr_retries;
  return options;
}

// Below so many it would take one from trainers.
constexpr unsigned kProcessorsForSending = 8;

size_t apart_bytes_of(const std::string& send_thread) {
  const bool has_processors = std::thread::hardware_concurrency() >= kProcessorsForSending;
  const bool apart = send_thread == "on" || (send_thread == "auto" && has_processors);
  return apart ? transport::kTcpApartBytes : 0;
}

size_t lanes_of(const Config& config) { return std::max<size_t>(config.net_devices.size(), 1); }

transport::UcxOptions ucx_options_of(const Config& config, size_t lane) {
  const std::string listen = parse_host_port(config.listen)->host;
  transport::UcxOptions options{
      {}, listen, {}, rdma_options_of(config), config.gpu_direct, config.data_ports};
  if (!config.net_devices.empty()) options.devices = {config.net_devices[lane]};
  // A cable that is out while the daemon runs costs a lane; it is not to cost more at its start.
  options.by_sockets = config.tcp_by != "ucx";
  return options;
}

// RDMA is UCX's. The kernel's sockets copy less of what goes by TCP than UCX does.
tl::expected<std::unique_ptr<transport::Transport>, Status> make_transport(
    const transport::UcxOptions& options, const Config& config) {
  const auto choice = transport::choose_ucx_devices(options);
  if (!choice) return tl::unexpected(choice.error());
  if (choice->rdma || config.tcp_by == "ucx") return transport::make_ucx_transport(options);
  return transport::make_tcp_transport(
      {choice->names, choice->reason, apart_bytes_of(config.tcp_send_thread), config.data_ports});
}

}  // namespace

tl::expected<MadeLanes, Status> make_lanes(const Config& config) {
  const machine::GidWish wish = gid_wish_of(config);
  const std::vector<machine::OwnAddress> own = machine::own_addresses();
  MadeLanes made;
  for (size_t lane = 0; lane < lanes_of(config); ++lane) {
    transport::UcxOptions options = ucx_options_of(config, lane);
    machine::GidChoice gid;
    const auto table =
        options.devices.empty() ? std::nullopt : machine::read_gid_table(options.devices.front());
    if (table) {
      auto choice = machine::choose_gid(*table, wish, own);
      if (!choice) return tl::unexpected(choice.error());
      gid = std::move(*choice);
    }
    if (gid.ours) options.rdma.gid_index = gid.gid->index;
    options.rdma.gid_reason = gid.reason;
    auto transport = make_transport(options, config);
    if (!transport) return tl::unexpected(transport.error());
    made.lanes.push_back(std::move(*transport));
    made.gids.push_back(gid.gid);
  }
  return made;
}

std::string missing_device(const Config& config) {
  for (size_t lane = 0; lane < lanes_of(config); ++lane) {
    const auto choice = transport::choose_ucx_devices(ucx_options_of(config, lane));
    if (!choice) return choice.error().message();
  }
  return "";
}

std::string compatible_name(const std::string& name) {
  const size_t dot = name.find('.');
  const size_t second = dot == std::string::npos ? dot : name.find('.', dot + 1);
  return name.substr(0, second);
}

}  // namespace gradring::daemon
