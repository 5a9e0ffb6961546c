#include "transport/ucx/settings.h"

#include <ucp/api/ucp.h>

#include <algorithm>

#include "transport/ucx/constants.h"

namespace gradring::transport {
namespace {

// Options of a transport (as against UCX's own) are found by their full name from this version on;
// up to then by the name without the transport's, by every transport that has such an option.
constexpr unsigned kFullNamesSinceMinor = 17;

std::string tcp_option(const std::string& name) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return (major > 1 || minor >= kFullNamesSinceMinor ? "TCP_" : "") + name;
}

}  // namespace

std::vector<UcxSetting> settings_for(const DeviceChoice& choice,
                                     const std::optional<size_t>& rendezvous_bytes) {
  const bool rdma = choice.any_rdma();
  const bool tcp = std::any_of(choice.devices.begin(), choice.devices.end(),
                               [](const UcxDevice& device) { return !device.rdma; });
  std::vector<UcxSetting> settings = {
      {"NET_DEVICES", choice.names()},
      // Named one by one: "all" would bring the shared-memory transports, which make segments of
      // their own and cannot tell that a peer died. With RDMA, tcp stays in for a TCP device that
      // was named.
      {"TLS", rdma ? "rc,ud,tcp,self" : "tcp,self"},
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
  if (rendezvous_bytes) {
    settings.push_back({"RNDV_THRESH", std::to_string(*rendezvous_bytes)});
  } else if (!rdma) {
    settings.push_back({"RNDV_THRESH", "inf"});
  }
  return settings;
}

}  // namespace gradring::transport
