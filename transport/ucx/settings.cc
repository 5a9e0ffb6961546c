#include "transport/ucx/settings.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <algorithm>

#include "transport/ucx/constants.h"

namespace gradring::transport {
namespace {

// Options of a transport (as against UCX's own) are found by their full name from this version on;
// up to then by the name without the transport's, by every transport that has such an option.
constexpr unsigned kFullNamesSinceMinor = 17;
constexpr unsigned kClosesUnwiredSinceMinor = 14;
// From this version on UD reads from the packet itself whether it came by IPv4 or IPv6.
constexpr unsigned kDgidReadSinceMinor = 19;

bool is_at_least(unsigned wanted_minor) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return major > 1 || minor >= wanted_minor;
}

std::string tcp_option(const std::string& name) {
  return (is_at_least(kFullNamesSinceMinor) ? "TCP_" : "") + name;
}

// Those of the transports lie in tables that have the same names in all versions, one for RC and UD
// together (IB_) and one for RC; the GID's belongs to the card, which has a prefix only since.
void add_rdma(const RdmaOptions& options, std::vector<UcxSetting>* settings) {
  const auto add = [settings](const std::string& name, const auto& value, const char* unit = "") {
    if (value) settings->push_back({name, std::to_string(*value) + unit});
  };
  add(is_at_least(kFullNamesSinceMinor) ? "IB_GID_INDEX" : "GID_INDEX", options.gid_index);
  add("IB_TRAFFIC_CLASS", options.traffic_class);
  add("IB_SL", options.service_level);
  add("IB_PATH_MTU", options.path_mtu);
  if (options.timeout) add("RC_TIMEOUT", std::optional(options.timeout->count()), "ms");
  add("RC_RETRY_COUNT", options.retries);
  add("RC_RNR_RETRY_COUNT", options.rnr_retries);
}

}  // namespace

bool ucx_closes_unwired() { return is_at_least(kClosesUnwiredSinceMinor); }

std::vector<UcxSetting> settings_for(const DeviceChoice& choice,
                                     const std::optional<size_t>& rendezvous_bytes,
                                     const RdmaOptions& options, bool gpus,
                                     const PortRange& ports) {
  const bool rdma = choice.any_rdma();
  const bool tcp = std::any_of(choice.devices.begin(), choice.devices.end(),
                               [](const UcxDevice& device) { return !device.rdma; });
  std::vector<UcxSetting> settings = {
      {"NET_DEVICES", choice.names()},
      // Named one by one: "all" would bring the shared-memory transports, which make segments of
      // their own and cannot tell that a peer died. With RDMA, tcp stays in for a TCP device that
      // was named.
      {"TLS", !rdma  ? "tcp,self"
              : gpus ? "rc,ud,tcp,self,cuda_copy,gdr_copy"
                     : "rc,ud,tcp,self"},
  };
  // Set only where used: UCX warns about settings of transports that it did not open.
  if (tcp) {
    settings.push_back({tcp_option("RX_SEG_SIZE"), std::to_string(kTcpSegmentBytes)});
    settings.push_back({tcp_option("TX_SEG_SIZE"), std::to_string(kTcpSegmentBytes)});
    // Else ucp_ep_create() waits for the peer, and the whole data thread with it. (How long a
    // silent peer is tried stays with the kernel: SYN_CNT of 1.13 overwrites its neighbour in the
    // table.)
    settings.push_back({tcp_option("CONN_NB"), "y"});
    // UCX handles several events of one look at its sockets; when the first of them closes the
    // connection that a later one is of, it aborts the process. So it looks for one at a time.
    settings.push_back({tcp_option("MAX_POLL"), "1"});
    if (ports) {
      settings.push_back({tcp_option("PORT_RANGE"), fmt::format("{}-{}", ports.first, ports.last)});
    }
  }
  if (tcp && !rdma) {
    // Buffers are added one by one instead of eight by eight: a receive buffer is twice the
    // segment, and a daemon has as many busy connections as neighbours in the ring. (With RDMA the
    // old names would reach the cards' pools, too, where eight is right.)
    settings.push_back({tcp_option("RX_BUFS_GROW"), "1"});
    settings.push_back({tcp_option("TX_BUFS_GROW"), "1"});
  }
  if (!rdma) {
    // UCX's zero-copy sends over TCP end twice when writing to a dead peer fails, which aborts the
    // process (all versions up to 1.22). Without them a send that leaves in one piece is not
    // limited either: its largest size is the smaller of segment and zero-copy threshold.
    settings.push_back({"ZCOPY_THRESH", "inf"});
    // Newer versions choose the protocol by estimates that know nothing of the above.
    settings.push_back({"PROTO_ENABLE", "n"});
  }
  // Up to then UD drops every packet of RoCEv2 over IPv4 whose card does not tell its kind in the
  // service level of the completion, as only those of one maker do; no connection comes about then.
  if (rdma && !is_at_least(kDgidReadSinceMinor)) settings.push_back({"UD_ETH_DGID_CHECK", "n"});
  // An endpoint that gives up connecting is closed, which it must not be. So it goes on, for 30
  // days, and tries again when as little as a hundredth of the time has passed that it took so far.
  if (rdma && !ucx_closes_unwired()) {
    settings.push_back({"UD_TIMEOUT", "2592000s"});
    settings.push_back({"UD_TIMER_BACKOFF", "1.01"});
  }
  if (rdma) add_rdma(options, &settings);
  if (rendezvous_bytes) {
    settings.push_back({"RNDV_THRESH", std::to_string(*rendezvous_bytes)});
  } else if (!rdma) {
    settings.push_back({"RNDV_THRESH", "inf"});
  }
  return settings;
}

}  // namespace gradring::transport
