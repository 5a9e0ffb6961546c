#include "transport/machine/port_counters.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace gradring::machine {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, kPortCounters> kCounterNames = {
    "retransmits", "out_of_sequence", "rnr",    "cnp_sent",   "cnp_handled", "ecn_marked",
    "pauses_sent", "pauses_received", "errors", "link_downed"};

struct Row {
  const char* file;  // of hw_counters, or of counters
  PortCounter counter;
};
using Counter = PortCounter;

// Files of several rows with one counter are added up, so no event may be in two of them. Sources
// are of Linux, drivers/infiniband; what they mean on ConnectX is in NVIDIA's "Understanding mlx5
// Linux counters".
constexpr Row kRows[] = {
    // hw/mlx5/counters.c
    {"local_ack_timeout_err", Counter::kRetransmits},
    {"packet_seq_err", Counter::kRetransmits},
    {"implied_nak_seq_err", Counter::kRetransmits},
    {"roce_adp_retrans", Counter::kRetransmits},
    {"out_of_sequence", Counter::kOutOfSequence},
    {"rnr_nak_retry_err", Counter::kRnr},
    {"np_cnp_sent", Counter::kCnpSent},
    {"rp_cnp_handled", Counter::kCnpHandled},
    {"np_ecn_marked_roce_packets", Counter::kEcnMarked},
    {"req_transport_retries_exceeded", Counter::kErrors},
    {"req_rnr_retries_exceeded", Counter::kErrors},
    {"rx_icrc_encapsulated", Counter::kErrors},
    // sw/rxe/rxe_hw_counters.c; rcvd_seq_err leads to a retry, and is in that counter already
    {"completer_retry_err", Counter::kRetransmits},
    {"out_of_seq_request", Counter::kOutOfSequence},
    {"rcvd_rnr_err", Counter::kRnr},
    {"retry_exceeded_err", Counter::kErrors},
    {"retry_rnr_exceeded_err", Counter::kErrors},
    {"send_err", Counter::kErrors},
    // hw/bnxt_re/hw_counters.c
    {"to_retransmits", Counter::kRetransmits},
    {"seq_err_naks_rcvd", Counter::kRetransmits},
    {"missing_resp", Counter::kRetransmits},
    {"oos_drop_count", Counter::kOutOfSequence},
    {"rnr_naks_rcvd", Counter::kRnr},
    {"tx_cnp_pkts", Counter::kCnpSent},
    {"rx_cnp_pkts", Counter::kCnpHandled},
    {"rx_ecn_marked_pkts", Counter::kEcnMarked},
    {"max_retry_exceeded", Counter::kErrors},
    {"rx_roce_errors", Counter::kErrors},
    {"tx_roce_errors", Counter::kErrors},
    // hw/irdma/verbs.c, with the names of before and after Linux 6.5
    {"tcpRetransSegs", Counter::kRetransmits},
    {"RetransSegs", Counter::kRetransmits},
    {"cnpSent", Counter::kCnpSent},
    {"cnpHandled", Counter::kCnpHandled},
    {"RxECNMrkd", Counter::kEcnMarked},
    // hw/efa/efa_verbs.c
    {"retrans_pkts", Counter::kRetransmits},
    {"rx_drops", Counter::kErrors},
    // core/sysfs.c: InfiniBand's own, of every card
    {"symbol_error", Counter::kErrors},
    {"link_error_recovery", Counter::kErrors},
    {"port_rcv_errors", Counter::kErrors},
    {"port_xmit_discards", Counter::kErrors},
    {"local_link_integrity_errors", Counter::kErrors},
    {"excessive_buffer_overrun_errors", Counter::kErrors},
    {"link_downed", Counter::kLinkDowned},
};

fs::path port_folder_of(const PortId& port, const std::string& sysfs) {
  return fs::path(sysfs) / "class/infiniband" / port.device / "ports" / std::to_string(port.number);
}

std::string first_line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr != text.data() ? std::optional(value) : std::nullopt;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

void count_up(std::optional<uint64_t>* to, uint64_t value) { *to = to->value_or(0) + value; }

// "rx_prio3_pause" of mlx5; "rx_pfc_ena_frames_pri3" of bnxt.
bool is_of_priority(std::string_view name, std::string_view way) {
  if (!name.starts_with(way)) return false;
  name.remove_prefix(way.size());
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.starts_with("_pfc_ena_frames_pri")) return digit(name.back());
  constexpr std::string_view kFront = "_prio", kBack = "_pause";
  return name.size() == kFront.size() + 1 + kBack.size() && name.starts_with(kFront) &&
         digit(name[kFront.size()]) && name.ends_with(kBack);
}

bool is_of_link(std::string_view name, std::string_view way) {
  if (!name.starts_with(way)) return false;
  name.remove_prefix(way.size());
  return name == "_pause_ctrl_phy" || name == "_pause_frames";
}

}  // namespace

const char* name_of(PortCounter counter) { return kCounterNames.at(static_cast<size_t>(counter)); }

std::optional<PortCounter> counter_named(const std::string& name) {
  const auto it = std::find(kCounterNames.begin(), kCounterNames.end(), name);
  if (it == kCounterNames.end()) return std::nullopt;
  return static_cast<PortCounter>(it - kCounterNames.begin());
}

bool PortCounters::any() const {
  return std::any_of(values.begin(), values.end(), [](const auto& one) { return one.has_value(); });
}

std::vector<PortId> list_rdma_ports(const std::string& sysfs) {
  std::vector<PortId> ports;
  const fs::path devices = fs::path(sysfs) / "class/infiniband";
  for (const std::string& device : names_in(devices)) {
    for (const std::string& number : names_in(devices / device / "ports")) {
      if (const auto value = number_in(number)) {
        ports.push_back({device, static_cast<uint32_t>(*value)});
      }
    }
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

PortCounters read_port_counters(const PortId& port, const std::string& sysfs) {
  PortCounters counters;
  const fs::path folder = port_folder_of(port, sysfs);
  for (const Row& row : kRows) {
    // The driver's own first: some files are in both folders, with the same number.
    auto value = number_in(first_line_of(folder / "hw_counters" / row.file));
    if (!value) value = number_in(first_line_of(folder / "counters" / row.file));
    if (value) count_up(&counters[row.counter], *value);
  }
  return counters;
}

// Each entry of the table of GIDs has its interface; those that are free cannot be read.
std::string interface_of(const PortId& port, const std::string& sysfs) {
  const fs::path folder = port_folder_of(port, sysfs) / "gid_attrs/ndevs";
  std::vector<std::string> entries = names_in(folder);
  std::sort(entries.begin(), entries.end());
  for (const std::string& entry : entries) {
    const std::string name = first_line_of(folder / entry);
    if (!name.empty()) return name;
  }
  return "";
}

// A card that counts pauses of priorities may count them among all pauses as well: the larger of
// the two is told, which is right either way where only one of both kinds is in use.
void add_pauses(const NetStatistics& statistics, PortCounters* counters) {
  struct Way {
    const char* name;
    PortCounter counter;
  };
  for (const Way& way : {Way{"tx", Counter::kPausesSent}, Way{"rx", Counter::kPausesReceived}}) {
    std::optional<uint64_t> of_link, of_priorities;
    for (const auto& [name, value] : statistics) {
      if (is_of_link(name, way.name)) count_up(&of_link, value);
      if (is_of_priority(name, way.name)) count_up(&of_priorities, value);
    }
    if (!of_link && !of_priorities) continue;
    (*counters)[way.counter] = std::max(of_link.value_or(0), of_priorities.value_or(0));
  }
}

}  // namespace gradring::machine
