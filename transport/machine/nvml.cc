#include "transport/machine/nvml.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "transport/machine/nvml_library.h"

namespace gradring::machine {
namespace {

using nvml::Device;
using nvml::kGpusMax;
using nvml::kSuccess;
using nvml::Memory;
using nvml::PciInfo;

constexpr unsigned kActive = 1;
constexpr unsigned kRemoteIsSwitch = 2;
constexpr unsigned kLinksMax =
    18;  // of an H100; nvmlDeviceGetNvLinkState refuses what is not there

class Nvml {
 public:
  // Empty if all is well.
  std::string load(const std::string& library) {
    if (std::string fault = library_.open(library); !fault.empty()) return fault;
    const bool complete =
        find("nvmlInit_v2", &init) && find("nvmlShutdown", &shutdown) &&
        find("nvmlErrorString", &error_string) &&
        find("nvmlSystemGetDriverVersion", &driver_version) &&
        find("nvmlDeviceGetCount_v2", &count) && find("nvmlDeviceGetHandleByIndex_v2", &handle) &&
        find("nvmlDeviceGetPciInfo_v3", &pci_info) && find("nvmlDeviceGetName", &name) &&
        find("nvmlDeviceGetUUID", &uuid) && find("nvmlDeviceGetMemoryInfo", &memory) &&
        find("nvmlDeviceGetNvLinkState", &link_state) &&
        find("nvmlDeviceGetNvLinkRemotePciInfo_v2", &link_remote);
    if (!complete) return fmt::format("{} lacks functions of NVML: its driver is too old", library);
    find("nvmlDeviceGetNvLinkRemoteDeviceType", &link_remote_type);  // since driver 460
    return "";
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*pci_info)(Device, PciInfo*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_remote)(Device, unsigned, PciInfo*) = nullptr;
  int (*link_remote_type)(Device, unsigned, unsigned*) = nullptr;  // may be missing

 private:
  template <typename Function>
  bool find(const char* symbol, Function* function) const {
    return library_.find(symbol, function);
  }

  nvml::Library library_;
};

std::string text_from(int (*function)(Device, char*, unsigned), Device device) {
  std::array<char, 128> text{};
  return function(device, text.data(), text.size() - 1) == kSuccess ? text.data() : "";
}

std::optional<PciAddress> address_of(PciInfo& info) {
  info.bus_id[sizeof info.bus_id - 1] = '\0';
  return parse_pci(info.bus_id);
}

std::vector<NvLinkEnd> links_of(const Nvml& nvml, Device device) {
  std::vector<NvLinkEnd> ends;
  for (unsigned link = 0; link < kLinksMax; ++link) {
    unsigned state = 0, type = 0;
    if (nvml.link_state(device, link, &state) != kSuccess || state != kActive) continue;
    const bool told =
        nvml.link_remote_type != nullptr && nvml.link_remote_type(device, link, &type) == kSuccess;
    PciInfo info{};
    NvLinkEnd end;
    end.to_switch = told && type == kRemoteIsSwitch;
    if (!end.to_switch) {
      if (nvml.link_remote(device, link, &info) != kSuccess) continue;
      const auto pci = address_of(info);
      if (!pci) continue;
      end.gpu = *pci;
    }
    ends.push_back(end);
  }
  return ends;
}

std::optional<NvmlGpu> gpu_at(const Nvml& nvml, unsigned index) {
  Device device = nullptr;
  PciInfo info{};
  if (nvml.handle(index, &device) != kSuccess || nvml.pci_info(device, &info) != kSuccess) {
    return std::nullopt;
  }
  const auto pci = address_of(info);
  if (!pci) return std::nullopt;
  NvmlGpu gpu;
  gpu.pci = *pci;
  gpu.name = text_from(nvml.name, device);
  gpu.uuid = text_from(nvml.uuid, device);
  Memory memory{};
  if (nvml.memory(device, &memory) == kSuccess) gpu.memory_bytes = memory.total;
  gpu.nvlinks = links_of(nvml, device);
  return gpu;
}

}  // namespace

NvmlAnswers ask_nvml(const std::string& library) {
  NvmlAnswers answers;
  Nvml nvml;
  answers.absent = nvml.load(library);
  if (!answers.absent.empty()) return answers;
  if (const int error = nvml.init(); error != kSuccess) {
    answers.absent = fmt::format("NVML does not start: {}", nvml.error_string(error));
    return answers;
  }
  std::array<char, 96> driver{};
  if (nvml.driver_version(driver.data(), driver.size() - 1) == kSuccess) {
    answers.driver = driver.data();
  }
  unsigned count = 0;
  if (const int error = nvml.count(&count); error != kSuccess) {
    answers.absent = fmt::format("NVML does not count its GPUs: {}", nvml.error_string(error));
  }
  for (unsigned i = 0; i < count && i < kGpusMax; ++i) {
    if (auto gpu = gpu_at(nvml, i)) answers.gpus.push_back(std::move(*gpu));
  }
  nvml.shutdown();
  return answers;
}

}  // namespace gradring::machine
