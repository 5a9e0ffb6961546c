// GPUs, and what stands between them and the cards.
#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/doctor/finding.h"

namespace gradring::tools::doctor {
namespace {

uint32_t links_of(const wire::GpuReport& gpu) {
  uint32_t links = 0;
  for (const wire::NvLinkReport& link : gpu.nvlinks()) links += link.count();
  return links;
}

// GPUs of one machine have the same number of links, unless one is broken.
Finding nvlink(const wire::MachineReport& machine) {
  if (machine.gpus_size() < 2)
    return skip("NVLink", fmt::format("{} here", counted(machine.gpus_size(), "GPU")));
  uint32_t most = 0;
  for (const wire::GpuReport& gpu : machine.gpus()) most = std::max(most, links_of(gpu));
  if (most == 0) return skip("NVLink", "no GPU here has any");
  std::string fewer;
  for (int i = 0; i < machine.gpus_size(); ++i) {
    const uint32_t links = links_of(machine.gpus(i));
    if (links < most)
      fewer += fmt::format("{}GPU {} has {} of {}", fewer.empty() ? "" : ", ", i, links, most);
  }
  if (fewer.empty()) return ok("NVLink", fmt::format("{} on each GPU", counted(most, "link")));
  return fail("NVLink", fewer,
              "nvidia-smi nvlink --status names the link; dmesg | grep -i xid its fault");
}

// What the driver has told since the daemon began.
Findings errors(const wire::GpuErrorsReport& told) {
  constexpr const char* kCheck = "GPU errors";
  Findings findings;
  uint64_t notes = 0;
  for (const wire::GpuErrorReport& error : told.errors()) {
    if (error.verdict() == "note") {
      notes += error.count();
      continue;
    }
    const std::string found = fmt::format(
        "{} ({}) {} ({}), {} ago", printable(error.gpu()), printable(error.pci()),
        printable(error.what()), printable(error.error()), format_duration(error.last_ms()));
    const auto say = error.verdict() == "unusable" ? fail : warn;
    findings.push_back(say(kCheck, found, printable(error.remedy())));
  }
  if (!told.reason().empty()) {
    findings.push_back(warn(kCheck, "not heard of: " + printable(told.reason()),
                            "look at the driver (dmesg, nvidia-smi), then restart gradringd"));
  }
  if (!findings.empty()) return findings;
  if (notes > 0) return {ok(kCheck, fmt::format("{} of programs there", counted(notes, "error")))};
  if (!told.watched()) return {skip(kCheck, "no GPU here tells of its errors")};
  return {ok(kCheck, "none since gradringd was started")};
}

// GPUs that sum and reach one another over PCIe, if at all.
bool sum_over_pcie(const wire::TopologyReport& topology) {
  const auto& gpus = topology.machine().gpus();
  const auto is_alone = [](const wire::GpuReport& gpu) { return links_of(gpu) == 0; };
  return topology.gpu_sums().on_gpus() && gpus.size() > 1 && std::ranges::any_of(gpus, is_alone);
}

bool has_rdma(const wire::MachineReport& machine) {
  return std::ranges::any_of(
      machine.nics(), [](const wire::NicReport& nic) { return nic.rdma().ports_size() > 0; });
}

Finding cuda(const PciFacts& pci) {
  if (pci.unified_memory) return ok("CUDA", "its device is there");
  return fail("CUDA", "there is no /dev/nvidia-uvm: gradringd cannot begin to use it",
              "as root: nvidia-modprobe -c 0 -u, then restart gradringd");
}

Finding gpu_direct(const PciFacts& pci) {
  if (pci.peer_memory) return ok("GPUDirect", "nvidia_peermem is loaded");
  if (pci.open_kernel_driver) return ok("GPUDirect", "dmabuf, by NVIDIA's open kernel modules");
  return warn("GPUDirect", "neither nvidia_peermem nor dmabuf: cards cannot read GPUs' memory",
              "modprobe nvidia_peermem, or install NVIDIA's open kernel modules");
}

// A daemon that has GPUs and does not sum there any more.
bool are_given_up(const wire::GpuSumsReport& sums) { return !sums.on_gpus() && !sums.by().empty(); }

Finding sums_there(const wire::GpuSumsReport& sums) {
  constexpr const char* kCheck = "GPU sums";
  if (sums.on_gpus()) return ok(kCheck, "on " + printable(sums.by()));
  if (!are_given_up(sums)) return skip(kCheck, "none here (gpu-sums)");
  return fail(kCheck, "by way of the host: " + printable(sums.reason()),
              sums.mps()
                  ? "see nvidia-smi, dmesg and the log of MPS's server, which may take no new "
                    "trainer while gradringd runs: restart gradringd"
                  : "see nvidia-smi and dmesg; then restart gradringd");
}

// How long a sum waits, and what it costs the trainer: docs/gpu-notes.md.
Finding turns(const wire::GpuSumsReport& sums) {
  if (!sums.on_gpus()) return skip("MPS", "no GPU sums here (gpu-sums)");
  if (sums.mps()) return ok("MPS", "sums run beside trainers' kernels");
  return warn(
      "MPS",
      "does not run: a sum waits some 2.5 ms while a trainer's kernels fill the GPU, and "
      "they for it",
      "nvidia-cuda-mps-control -d as the user of gradringd and of trainers, all of them with "
      "the same CUDA_MPS_PIPE_DIRECTORY (the service's is /run/gradring/mps), then restart "
      "gradringd; or gpu-sums = off. A fault of one program then reaches all on its GPUs, and "
      "gradringd: see MPS in docs/collectives.md");
}

// gradringd has tried it when it began.
Finding network(const wire::TopologyReport& topology) {
  const std::string& how = topology.gpu_sums().network();
  if (how.empty()) return skip("slices of GPUs", "no GPU sums here (gpu-sums)");
  return ok("slices of GPUs", "go " + printable(how));
}

Finding iommu(const PciFacts& pci) {
  if (!pci.iommu) return ok("IOMMU", "off");
  if (*pci.iommu == "identity") return ok("IOMMU", "passes through");
  return warn(
      "IOMMU",
      fmt::format("translates ({}): what goes from device to device goes over it, or is lost",
                  printable(*pci.iommu)),
      "iommu=pt on the kernel's command line");
}

Finding acs(const PciFacts& pci) {
  if (!pci.acs_readable) return skip("PCI ACS", "only root may read it");
  if (pci.acs_bridges.empty()) return ok("PCI ACS", "redirects nothing");
  std::string some;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(pci.acs_bridges.size(), kShown); ++i)
    some += (i == 0 ? "" : ", ") + pci.acs_bridges[i];
  if (pci.acs_bridges.size() > kShown) some += ", ...";
  return warn(
      "PCI ACS",
      fmt::format(
          "on at {} ({}): what goes from device to device goes over the processor, or is lost",
          counted(pci.acs_bridges.size(), "bridge"), some),
      "turn ACS off in the firmware, or setpci -s BRIDGE ECAP_ACS+6.w=0000");
}

}  // namespace

Findings check_gpus(const Facts& facts) {
  const wire::MachineReport& machine = facts.topology.machine();
  const wire::GpuErrorsReport& told = facts.topology.gpu_errors();
  Findings findings = errors(told);
  if (machine.gpus().empty()) {
    if (!told.errors().empty() || !told.reason().empty()) return findings;
    return {skip("GPU", machine.fault().empty() ? "none here" : printable(machine.fault()))};
  }
  findings.push_back(cuda(facts.pci));
  findings.push_back(nvlink(machine));
  findings.push_back(sums_there(facts.topology.gpu_sums()));
  findings.push_back(turns(facts.topology.gpu_sums()));
  if (!facts.topology.lanes().empty()) findings.push_back(network(facts.topology));
  const bool rdma = has_rdma(machine);
  findings.push_back(rdma ? gpu_direct(facts.pci) : skip("GPUDirect", "no RDMA card here"));
  if (!rdma && !sum_over_pcie(facts.topology)) return findings;
  findings.push_back(iommu(facts.pci));
  findings.push_back(acs(facts.pci));
  return findings;
}

}  // namespace gradring::tools::doctor
