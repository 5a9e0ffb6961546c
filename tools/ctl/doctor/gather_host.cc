#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tools/ctl/doctor/gather.h"

namespace gradring::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kCapIpcLock = 14;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<uint64_t> number_in(const std::string& text, int base = 10) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (end.ec != std::errc() || end.ptr == text.data()) return std::nullopt;
  return value;
}

// What follows "NAME" in a file of lines, blanks left out; empty if there is no such line.
std::string field_of(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(" \t", name.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    entries.push_back(it->path());
  }
  std::ranges::sort(entries);
  return entries;
}

std::optional<uint64_t> limit_in(const fs::path& process, const std::string& name) {
  const std::string text = field_of(process / "limits", name);
  if (text.starts_with("unlimited")) return std::numeric_limits<uint64_t>::max();
  return number_in(text);
}

LimitFacts limits_of(const fs::path& process, bool of_daemon) {
  LimitFacts limits;
  limits.of_daemon = of_daemon;
  limits.memlock = limit_in(process, "Max locked memory");
  limits.open_files = limit_in(process, "Max open files");
  const auto caps = number_in(field_of(process / "status", "CapEff:"), 16);
  limits.may_lock_all = caps && (*caps >> kCapIpcLock & 1) != 0;
  if (const auto mode = number_in(field_of(process / "status", "Seccomp:")))
    limits.seccomp = static_cast<int>(*mode);
  return limits;
}

// Those of version 2, from the process's own up to the root.
void add_cgroup(const std::string& root, const fs::path& process, MemoryFacts* memory) {
  fs::path path = field_of(process / "cgroup", "0::");
  const fs::path top = root + "/sys/fs/cgroup";
  for (;; path = path.parent_path()) {
    const fs::path folder = top / path.relative_path();
    if (const auto bytes = number_in(line_of(folder / "memory.max"))) {
      memory->cgroup_bytes = std::min(memory->cgroup_bytes.value_or(*bytes), *bytes);
    }
    std::istringstream line(line_of(folder / "cpu.max"));
    double quota = 0, period = 0;
    if (line >> quota >> period && period > 0) {
      memory->cgroup_processors =
          std::min(memory->cgroup_processors.value_or(quota / period), quota / period);
    }
    if (!path.has_relative_path()) return;
  }
}

std::string fault_of_memfd() {
  const int fd = memfd_create("gradring-doctor", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  if (fd < 0) return fmt::format("memfd_create: {}", std::strerror(errno));
  std::string fault;
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    fault = fmt::format("sealing it: {}", std::strerror(errno));
  }
  close(fd);
  return fault;
}

MemoryFacts memory_of(const std::string& root, const fs::path& process) {
  MemoryFacts memory;
  struct statvfs shm {};
  if (statvfs((root + "/dev/shm").c_str(), &shm) == 0)
    memory.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  memory.memfd_fault = fault_of_memfd();
  if (const auto kilobytes = number_in(field_of(root + "/proc/meminfo", "MemTotal:")))
    memory.total_bytes = *kilobytes * 1024;
  memory.huge_pages = number_in(field_of(root + "/proc/meminfo", "HugePages_Total:"));
  memory.processors = static_cast<uint32_t>(get_nprocs());
  add_cgroup(root, process, &memory);
  return memory;
}

FolderFacts folder_of(const std::string& path, std::optional<uint64_t> uid) {
  FolderFacts folder;
  folder.path = path;
  struct stat about {};
  if (stat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return folder;
  folder.there = true;
  folder.mode = about.st_mode & 07777;
  folder.owner = about.st_uid;
  if (uid) folder.daemon_uid = static_cast<uint32_t>(*uid);
  return folder;
}

ClockFacts clock_of(const std::string& root) {
  ClockFacts clock;
  timex state{};
  if (const int result = adjtimex(&state); result >= 0)
    clock.synchronised = result != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  for (const fs::path& one : entries_of(root + "/sys/devices/system/cpu")) {
    const std::string governor = line_of(one / "cpufreq/scaling_governor");
    if (!governor.empty()) ++clock.governors[governor];
  }
  return clock;
}

NetFacts net_of(const fs::path& folder) {
  constexpr uint64_t kLoopbackFlag = 0x8;  // IFF_LOOPBACK
  constexpr uint64_t kUpFlag = 0x1;        // IFF_UP
  NetFacts device;
  device.name = folder.filename().string();
  const std::string flags = line_of(folder / "flags");
  const uint64_t bits = flags.starts_with("0x") ? number_in(flags.substr(2), 16).value_or(0) : 0;
  device.loopback = (bits & kLoopbackFlag) != 0;
  const std::string state = line_of(folder / "operstate");
  device.up = (bits & kUpFlag) != 0 &&
              (state == "up" || (state == "unknown" && line_of(folder / "carrier") != "0"));
  std::error_code error;
  device.bridge_or_virtual = !fs::exists(folder / "device", error);
  device.speed_mbps = static_cast<int64_t>(number_in(line_of(folder / "speed")).value_or(0));
  if (device.speed_mbps == 0) device.speed_mbps = -1;
  device.mtu = static_cast<uint32_t>(number_in(line_of(folder / "mtu")).value_or(0));
  device.duplex = line_of(folder / "duplex");
  return device;
}

// The switches of ECN are Mellanox's, below the interface.
std::optional<bool> ecn_of(const fs::path& device) {
  std::optional<bool> on;
  for (const fs::path& net : entries_of(device / "device/net")) {
    for (const fs::path& priority : entries_of(net / "ecn/roce_np/enable")) {
      on = on.value_or(false) || line_of(priority) == "1";
    }
  }
  return on;
}

std::vector<RdmaFacts> rdma_of(const std::string& root) {
  std::vector<RdmaFacts> ports;
  for (const fs::path& device : entries_of(root + "/sys/class/infiniband")) {
    for (const fs::path& port : entries_of(device / "ports")) {
      RdmaFacts facts;
      facts.device = device.filename().string();
      facts.port = static_cast<uint32_t>(number_in(port.filename().string()).value_or(0));
      if (line_of(port / "link_layer") == "Ethernet") facts.ecn = ecn_of(device);
      ports.push_back(std::move(facts));
    }
  }
  return ports;
}

PciFacts pci_of(const std::string& root) {
  PciFacts pci;
  if (!entries_of(root + "/sys/class/iommu").empty()) {
    pci.iommu = line_of(root + "/sys/kernel/iommu_groups/0/type");
  }
  std::error_code error;
  pci.peer_memory = fs::exists(root + "/sys/module/nvidia_peermem", error);
  pci.unified_memory = fs::exists(root + "/dev/nvidia-uvm", error);
  pci.open_kernel_driver =
      line_of(root + "/proc/driver/nvidia/version").find("Open Kernel Module") != std::string::npos;
  for (const fs::path& device : entries_of(root + "/sys/bus/pci/devices")) {
    if (!line_of(device / "class").starts_with("0x0604")) continue;  // a bridge
    std::ifstream in(device / "config", std::ios::binary);
    const std::string config((std::istreambuf_iterator<char>(in)), {});
    const auto on = redirects(config);
    pci.acs_readable = pci.acs_readable || on.has_value();
    if (on.value_or(false)) pci.acs_bridges.push_back(device.filename().string());
  }
  return pci;
}

}  // namespace

// PCI Express base specification, 7.6.3 and 7.7.8: extended capabilities are a list that begins at
// 0x100; ACS is number 13, its control register lies 6 bytes behind its head.
std::optional<bool> redirects(const std::string& pci_config) {
  constexpr size_t kFirst = 0x100, kControl = 6;
  constexpr uint32_t kAcs = 13, kRequestRedirect = 1u << 2, kCompletionRedirect = 1u << 3;
  const auto byte = [&](size_t at) {
    return static_cast<uint32_t>(static_cast<unsigned char>(pci_config[at]));
  };
  if (pci_config.size() < kFirst + 4) return std::nullopt;
  size_t at = kFirst;
  for (size_t steps = 0;
       at >= kFirst && at + kControl + 2 <= pci_config.size() && steps < pci_config.size();
       ++steps) {
    const uint32_t head = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    if ((head & 0xffff) == kAcs) {
      const uint32_t control = byte(at + kControl) | byte(at + kControl + 1) << 8;
      return (control & (kRequestRedirect | kCompletionRedirect)) != 0;
    }
    at = head >> 20;
  }
  return false;
}

void gather_host(const std::string& root, pid_t daemon, Facts* facts) {
  fs::path process = fmt::format("{}/proc/{}", root, daemon);
  const bool of_daemon = daemon > 0 && !line_of(process / "limits").empty();
  if (!of_daemon) process = root + "/proc/self";
  facts->limits = limits_of(process, of_daemon);
  facts->memory = memory_of(root, process);
  std::optional<uint64_t> uid;
  if (of_daemon) uid = number_in(field_of(process / "status", "Uid:"));
  facts->folder = folder_of(facts->runtime_dir, uid);
  facts->clock = clock_of(root);
  for (const fs::path& one : entries_of(root + "/sys/class/net")) {
    std::error_code error;
    if (fs::is_directory(one, error)) facts->net.push_back(net_of(one));
  }
  facts->rdma = rdma_of(root);
  facts->pci = pci_of(root);
}

}  // namespace gradring::tools::doctor
