// gradringctl topology, for people.
#include "tools/common/text.h"

#include <fmt/format.h>

#include "tools/common/table.h"
#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/show.h"

namespace gradring::tools {
namespace {

std::string numa_name(int numa) { return numa < 0 ? "N/A" : std::to_string(numa); }

const wire::PlaceReport& place_of(const wire::MachineReport& machine, int row) {
  return row < machine.gpus_size() ? machine.gpus(row).place()
                                   : machine.nics(row - machine.gpus_size()).place();
}

std::string heading_of(const wire::TopologyReport& report) {
  const wire::MachineReport& machine = report.machine();
  std::string text = fmt::format(
      "node {}: {}{}, {}, {}, {}{}\n", printable(report.node()),
      report.node() == machine.host() ? "" : printable(machine.host()) + ": ",
      counted(machine.sockets_size(), "socket"), counted(machine.numa_size(), "NUMA node"),
      counted(machine.gpus_size(), "GPU"), counted(machine.nics_size(), "network card"),
      machine.driver().empty() ? "" : ", NVIDIA driver " + printable(machine.driver()));
  if (!machine.recording().empty()) {
    text += fmt::format("  as recorded in {}; this is not the machine here\n",
                        printable(machine.recording()));
  }
  for (const auto& numa : machine.numa()) {
    const std::string model =
        numa.socket() < 0 ? "" : ": " + printable(machine.sockets(numa.socket()).model());
    text +=
        fmt::format("  NUMA node {}: CPUs {}, {}{}\n", numa.id(), short_cpus(numa.cpus()),
                    memory_name(numa.memory_bytes()),
                    numa.socket() < 0 ? "" : fmt::format(", socket {}{}", numa.socket(), model));
  }
  return text;
}

// The codes that stand in the matrix, and no others.
std::string legend_of(const wire::MachineReport& machine) {
  struct Code {
    std::string_view name;
    std::string_view meaning;
  };
  constexpr Code kCodes[] = {
      {"NV", "NV#   that many NVLinks"},
      {"PIX", "PIX   behind one PCIe switch"},
      {"PXB", "PXB   over several PCIe switches, not over the host bridge"},
      {"PHB", "PHB   over a host bridge of PCIe, as a rule the processor"},
      {"NODE", "NODE  between host bridges of one NUMA node"},
      {"SYS", "SYS   between NUMA nodes"},
  };
  std::string text;
  for (const Code& code : kCodes) {
    for (const std::string& cell : machine.distances()) {
      if (cell.substr(0, code.name.size()) != code.name) continue;
      text += fmt::format("  {}\n", code.meaning);
      break;
    }
  }
  return text;
}

std::string matrix_of(const wire::MachineReport& machine) {
  const int devices = machine.gpus_size() + machine.nics_size();
  if (devices == 0) return "\nno GPU and no network card on PCI\n";
  std::vector<Table::Column> columns = {{""}};
  for (int row = 0; row < devices; ++row) columns.push_back({device_name(machine, row)});
  columns.insert(columns.end(), {{"CPU affinity"}, {"NUMA"}});
  Table table(std::move(columns));
  for (int row = 0; row < devices; ++row) {
    std::vector<std::string> cells = {device_name(machine, row)};
    for (int column = 0; column < devices; ++column) {
      cells.push_back(printable(machine.distances(row * devices + column)));
    }
    cells.push_back(short_cpus(place_of(machine, row).cpus()));
    cells.push_back(numa_name(place_of(machine, row).numa()));
    table.add(std::move(cells));
  }
  return "\n" + table.str() + "\n" + legend_of(machine);
}

std::string gpus_of(const wire::MachineReport& machine) {
  if (machine.gpus().empty()) return "";
  Table table({{"GPU"},
               {"PCI"},
               {"model"},
               {"memory", Table::Align::kRight},
               {"card"},
               {"at"},
               {"because"}});
  for (int i = 0; i < machine.gpus_size(); ++i) {
    const wire::GpuReport& gpu = machine.gpus(i);
    std::vector<std::string> front = {
        gpu_name(i), printable(gpu.place().pci()), printable(gpu.name()),
        gpu.memory_bytes() == 0 ? "?" : memory_name(gpu.memory_bytes())};
    bool any = false;
    for (const auto& one : machine.affinity()) {
      if (one.gpu() != uint32_t(i)) continue;
      for (const auto& choice : one.choices()) {
        if (any) front.assign(4, "");  // a second card of the same GPU
        any = true;
        std::vector<std::string> cells = front;
        cells.insert(cells.end(), {printable(machine.nics(int(choice.nic())).name()),
                                   printable(choice.distance()), printable(choice.reason())});
        table.add(std::move(cells));
      }
    }
    if (any) continue;
    front.insert(front.end(), {"-", "-", "there is no card for gradients"});
    table.add(std::move(front));
  }
  return "\n" + table.str();
}

// What the driver told since the daemon began; the table above is of when it did.
std::string gpu_errors_of(const wire::TopologyReport& report, const Style& style) {
  const auto& gpus = report.machine().gpus();
  Table table({{"GPU"}, {"UUID"}, {"error"}, {"times", Table::Align::kRight}, {"last"}, {"means"}});
  for (const wire::GpuErrorReport& error : report.gpu_errors().errors()) {
    const auto it = std::find_if(gpus.begin(), gpus.end(), [&error](const wire::GpuReport& gpu) {
      return gpu.uuid() == error.gpu() || gpu.place().pci() == error.pci();
    });
    const bool bad = error.verdict() == "unusable";
    const std::string means =
        bad ? "unusable: it " + printable(error.what()) : "it " + printable(error.what());
    table.add({it == gpus.end() ? printable(error.pci()) : gpu_name(int(it - gpus.begin())),
               printable(error.gpu()), printable(error.error()), std::to_string(error.count()),
               format_duration(error.last_ms()) + " ago", bad ? style.bad(means) : means});
  }
  std::string text = table.empty() ? "" : "\n" + table.str();
  if (!report.gpu_errors().reason().empty()) {
    text += fmt::format("\nerrors of GPUs are not heard of: {}\n",
                        printable(report.gpu_errors().reason()));
  }
  return text;
}

std::string state_of(const wire::NicReport& nic, const Style& style) {
  return nic.up() ? style.good("up") : style.bad("down");
}

std::string nics_of(const wire::MachineReport& machine, const Style& style) {
  if (machine.nics().empty()) return "";
  Table table({{"NIC"},
               {"card"},
               {"PCI"},
               {"interfaces"},
               {"link"},
               {"rate", Table::Align::kRight},
               {"kind"},
               {"MTU", Table::Align::kRight},
               {"fit for gradients"}});
  for (int i = 0; i < machine.nics_size(); ++i) {
    const wire::NicReport& nic = machine.nics(i);
    const wire::RailReport* rail = rail_of(machine, i);
    const bool first = rail != nullptr && rail->nics(0) == uint32_t(i);
    std::string use =
        rail == nullptr ? "no" : (rail->used() ? "yes: " : "no: ") + printable(rail->reason());
    if (rail != nullptr && !first)
      use = "with " + printable(machine.nics(int(rail->nics(0))).name());
    const uint32_t mtu = nic.interfaces().empty() ? 0 : nic.interfaces(0).mtu();
    table.add({nic_name(i), printable(nic.name()), printable(nic.place().pci()), interfaces_of(nic),
               state_of(nic, style), rate_name(nic.rate_bps()), kind_of(nic),
               mtu == 0 ? "?" : std::to_string(mtu), use});
  }
  return "\n" + table.str();
}

std::string ports_of(const wire::MachineReport& machine, const Style& style) {
  Table table({{"port"},
               {"state"},
               {"link"},
               {"rate", Table::Align::kRight},
               {"GID"},
               {"type"},
               {"address"},
               {"interface"}});
  for (const auto& nic : machine.nics()) {
    if (!nic.has_rdma()) continue;
    for (const auto& port : nic.rdma().ports()) {
      std::vector<std::string> front = {
          fmt::format("{}:{}", printable(nic.rdma().name()), port.number()),
          port.state() == "active" ? style.good("active") : style.bad(printable(port.state())),
          printable(port.link_layer()), rate_name(port.rate_bps())};
      for (const auto& gid : port.gids()) {
        std::vector<std::string> cells = front;
        cells.insert(cells.end(), {std::to_string(gid.index()), printable(gid.type()),
                                   printable(gid.address()), printable(gid.interface())});
        table.add(std::move(cells));
        front.assign(4, "");
      }
      if (port.gids().empty()) {
        front.insert(front.end(), {"-", "-", "-", "-"});
        table.add(std::move(front));
      }
    }
  }
  return table.empty() ? "" : "\n" + table.str();
}

// Those that are not 0: most are.
template <typename List>
std::string words_of_counters(const List& counters) {
  std::string text;
  for (const wire::PortCounterReport& one : counters) {
    if (one.value() == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(one.name()), one.value());
  }
  return text;
}

std::string counts_of(const wire::MachineReport& machine) {
  Table table({{"port"}, {"has counted since it was started"}});
  for (const auto& nic : machine.nics()) {
    for (const auto& port : nic.rdma().ports()) {
      const std::string counters = words_of_counters(port.counters());
      if (counters.empty()) continue;
      table.add({fmt::format("{}:{}", printable(nic.rdma().name()), port.number()), counters});
    }
  }
  return table.empty() ? "" : "\n" + table.str();
}

// As the kernel tells it while it happens; the tables above are of when the daemon began.
std::string lane_ports_of(const wire::TopologyReport& report, const Style& style) {
  Table table({{"lane"}, {"port"}, {"now"}, {"for"}, {"told last"}, {"counters"}});
  for (int i = 0; i < report.lanes_size(); ++i) {
    for (const wire::PortReport& port : report.lanes(i).ports()) {
      const std::string told = port.last_change().empty()
                                   ? "-"
                                   : fmt::format("{}, {} ago", printable(port.last_change()),
                                                 format_duration(port.last_change_ms()));
      const std::string counters = words_of_counters(port.counters());
      table.add(
          {std::to_string(i), printable(port.port()),
           port.state() == "active" ? style.good("active") : style.bad(printable(port.state())),
           port.state_ms() == 0 ? "-" : format_duration(port.state_ms()), told,
           !counters.empty()         ? counters
           : port.counters().empty() ? "-"
                                     : "all 0"});
    }
  }
  return table.empty() ? "" : "\n" + table.str();
}

std::string nodes_of(const wire::TopologyReport& report, const Style& style) {
  std::string text = "\n";
  Table lanes({{"lane"}, {"device"}, {"card"}, {"because"}});
  for (int i = 0; i < report.lanes_size(); ++i) {
    const wire::LaneChoice& lane = report.lanes(i);
    lanes.add({std::to_string(i), printable(lane.device()),
               lane.nic() < 0 ? "-" : nic_name(lane.nic()), printable(lane.reason())});
  }
  text += lanes.empty() ? "no lanes: no daemon was asked\n" : lanes.str();
  text += lane_ports_of(report, style);
  Table nodes({{"node"}, {"address"}, {"state"}, {"lanes"}});
  for (const auto& peer : report.peers()) {
    std::string ways;
    for (const auto& lane : peer.lanes()) {
      const std::string device = printable(lane.device());
      ways +=
          (ways.empty() ? "" : ", ") +
          (lane.state() == "up" ? device : fmt::format("{} ({})", device, printable(lane.state())));
    }
    const std::string state = printable(peer.state());
    nodes.add({peer.node().empty() ? "?" : printable(peer.node()), printable(peer.address()),
               state == "up" ? style.good(state) : style.bad(state), ways.empty() ? "-" : ways});
  }
  if (!nodes.empty()) text += "\n" + nodes.str();
  return text;
}

std::string rings_text(const wire::TopologyReport& report) {
  std::string text;
  for (const auto& ring : report.rings()) {
    text += fmt::format("\nring of job {} (epoch {}):\n  ", printable(ring.job()), ring.epoch());
    for (const auto& member : ring.members()) {
      text += fmt::format("{} [{}] -> ", printable(member.node()),
                          ranges_of({member.ranks().begin(), member.ranks().end()}));
    }
    const std::string first = ring.members().empty() ? "?" : printable(ring.members(0).node());
    text += fmt::format("{}\n  {}\n", first, printable(ring.reason()));
  }
  return text;
}

// Of a machine without GPUs there is nothing to say.
std::string gpu_sums_of(const wire::TopologyReport& report) {
  const wire::GpuSumsReport& sums = report.gpu_sums();
  if (sums.reason().empty() || (report.machine().gpus().empty() && !sums.on_gpus())) return "";
  const std::string where = sums.on_gpus() ? "on " + printable(sums.by()) : "in the host's memory";
  const std::string way =
      sums.way().empty() ? "" : fmt::format("; of several GPUs {}", printable(sums.way()));
  const std::string beside =
      sums.on_gpus() ? fmt::format("; {}", sums.mps() ? "beside trainers' kernels (MPS)"
                                                      : "in turns with trainers' kernels (no MPS)")
                     : "";
  const std::string network =
      sums.network().empty() ? "" : fmt::format("; it goes {}", printable(sums.network()));
  return fmt::format("\nwhat ranks here have on GPUs is summed {}: {}{}{}{}\n", where,
                     printable(sums.reason()), way, beside, network);
}

}  // namespace

std::string text_of(const wire::TopologyReport& report, const Style& style) {
  const wire::MachineReport& machine = report.machine();
  std::string text;
  if (machine.fault().empty()) {
    text = heading_of(report) + matrix_of(machine) + gpus_of(machine) +
           gpu_errors_of(report, style) + nics_of(machine, style) + ports_of(machine, style) +
           counts_of(machine);
  } else {
    text = fmt::format("node {}: its machine cannot be shown: {}\n", printable(report.node()),
                       printable(machine.fault()));
  }
  for (const std::string& note : machine.notes()) {
    text += fmt::format("\nnote: {}\n", printable(note));
  }
  return text + gpu_sums_of(report) + nodes_of(report, style) + rings_text(report);
}

}  // namespace gradring::tools
