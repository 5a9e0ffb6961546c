// What NVML tells while it happens; in the child of GpuWatch.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "transport/machine/gpu_records.h"
#include "transport/machine/nvml_library.h"

namespace gradring::machine {
namespace {

// Of nvml.h: https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html
using EventSet = void*;
struct EventData {
  nvml::Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kDoubleBitEccError = 2;
constexpr unsigned long long kXidCriticalError = 8;
constexpr unsigned kNoInstance = 0xffffffffu;
constexpr int kTimedOut = 10;
constexpr int kGpuIsLost = 15;

// Only to see how GPUs are cut up: what happens is told at once.
constexpr unsigned kWaitMs = 60'000;
// NVML may be out of order for a moment, as while a driver is loaded anew.
constexpr int kStrikesMost = 60;
constexpr unsigned kPauseUs = 1'000'000;

struct EventFunctions {
  nvml::Library library;
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, nvml::Device*) = nullptr;
  int (*pci_info)(nvml::Device, nvml::PciInfo*) = nullptr;
  int (*uuid)(nvml::Device, char*, unsigned) = nullptr;
  int (*memory)(nvml::Device, nvml::Memory*) = nullptr;
  int (*set_create)(EventSet*) = nullptr;
  int (*set_free)(EventSet) = nullptr;
  int (*set_wait)(EventSet, EventData*, unsigned) = nullptr;
  int (*supported)(nvml::Device, unsigned long long*) = nullptr;
  int (*subscribe)(nvml::Device, unsigned long long, EventSet) = nullptr;
  // Of MIG; may be missing.
  int (*parts_max)(nvml::Device, unsigned*) = nullptr;
  int (*part_at)(nvml::Device, unsigned, nvml::Device*) = nullptr;
  int (*gpu_instance)(nvml::Device, unsigned*) = nullptr;
  int (*compute_instance)(nvml::Device, unsigned*) = nullptr;

  bool load(const std::string& name) {
    if (!library.open(name).empty()) return false;
    library.find("nvmlDeviceGetMaxMigDeviceCount", &parts_max);
    library.find("nvmlDeviceGetMigDeviceHandleByIndex", &part_at);
    library.find("nvmlDeviceGetGpuInstanceId", &gpu_instance);
    library.find("nvmlDeviceGetComputeInstanceId", &compute_instance);
    return library.find("nvmlInit_v2", &init) && library.find("nvmlDeviceGetCount_v2", &count) &&
           library.find("nvmlDeviceGetHandleByIndex_v2", &handle) &&
           library.find("nvmlDeviceGetPciInfo_v3", &pci_info) &&
           library.find("nvmlDeviceGetUUID", &uuid) &&
           library.find("nvmlDeviceGetMemoryInfo", &memory) &&
           library.find("nvmlEventSetCreate", &set_create) &&
           library.find("nvmlEventSetFree", &set_free) &&
           library.find("nvmlEventSetWait_v2", &set_wait) &&
           library.find("nvmlDeviceGetSupportedEventTypes", &supported) &&
           library.find("nvmlDeviceRegisterEvents", &subscribe);
  }
};

class GpuEvents {
 public:
  explicit GpuEvents(int to) : to_(to) {}
  bool run(const std::string& library);

 private:
  struct Part {
    std::string uuid;
    unsigned gpu_instance = kNoInstance;
    unsigned compute_instance = kNoInstance;
    bool operator==(const Part&) const = default;
  };
  struct Watched {
    nvml::Device device = nullptr;
    std::string uuid;
    PciAddress pci;
    std::vector<Part> parts;
    bool lost = false;
  };

  std::string uuid_of(nvml::Device device) const;
  void find_gpus();
  void find_parts(Watched& gpu);
  bool subscribe_all();
  void heard(const EventData& event);
  bool find_lost();
  void tell(const Watched& gpu, GpuNews::Kind kind, GpuFault fault, uint64_t xid,
            const std::string& part) const;

  const int to_;
  EventFunctions nvml_;
  std::vector<Watched> gpus_;
  EventSet set_ = nullptr;
};

bool GpuEvents::run(const std::string& library) {
  if (!nvml_.load(library) || nvml_.init() != nvml::kSuccess) return true;
  find_gpus();
  if (!subscribe_all()) return true;
  for (int strikes = 0; strikes < kStrikesMost;) {
    EventData event{nullptr, 0, 0, kNoInstance, kNoInstance};
    const int result = nvml_.set_wait(set_, &event, kWaitMs);
    if (result == nvml::kSuccess || result == kTimedOut) strikes = 0;
    if (result == nvml::kSuccess) {
      heard(event);
    } else if (result == kTimedOut) {
      for (Watched& gpu : gpus_) find_parts(gpu);
    } else if (result == kGpuIsLost && find_lost()) {
      // It would be told of the lost one for ever.
      if (!subscribe_all()) return true;
    } else {
      ++strikes;
      usleep(kPauseUs);
    }
  }
  return false;
}

std::string GpuEvents::uuid_of(nvml::Device device) const {
  std::array<char, 96> text{};
  return nvml_.uuid(device, text.data(), text.size() - 1) == nvml::kSuccess ? text.data() : "";
}

void GpuEvents::find_gpus() {
  unsigned count = 0;
  if (nvml_.count(&count) != nvml::kSuccess) return;
  for (unsigned i = 0; i < std::min(count, nvml::kGpusMax); ++i) {
    Watched gpu;
    nvml::PciInfo info{};
    if (nvml_.handle(i, &gpu.device) != nvml::kSuccess) continue;
    if (nvml_.pci_info(gpu.device, &info) != nvml::kSuccess) continue;
    info.bus_id[sizeof info.bus_id - 1] = '\0';
    const auto pci = parse_pci(info.bus_id);
    gpu.uuid = uuid_of(gpu.device);
    if (!pci || gpu.uuid.empty()) continue;
    gpu.pci = *pci;
    tell(gpu, GpuNews::Kind::kThere, GpuFault::kXid, 0, "");
    find_parts(gpu);
    gpus_.push_back(std::move(gpu));
  }
}

// They may be made anew while nobody uses the GPU.
void GpuEvents::find_parts(Watched& gpu) {
  const bool knows_parts = nvml_.parts_max != nullptr && nvml_.part_at != nullptr &&
                           nvml_.gpu_instance != nullptr && nvml_.compute_instance != nullptr;
  unsigned most = 0;
  if (!knows_parts || gpu.lost) return;
  if (nvml_.parts_max(gpu.device, &most) != nvml::kSuccess) return;
  std::vector<Part> parts;
  for (unsigned i = 0; i < std::min(most, nvml::kGpusMax); ++i) {
    nvml::Device device = nullptr;
    if (nvml_.part_at(gpu.device, i, &device) != nvml::kSuccess) continue;
    Part part{uuid_of(device)};
    nvml_.gpu_instance(device, &part.gpu_instance);
    nvml_.compute_instance(device, &part.compute_instance);
    if (part.uuid.empty()) continue;
    if (std::find(gpu.parts.begin(), gpu.parts.end(), part) == gpu.parts.end()) {
      tell(gpu, GpuNews::Kind::kPart, GpuFault::kXid, 0, part.uuid);
    }
    parts.push_back(std::move(part));
  }
  gpu.parts = std::move(parts);
}

// False: none of them tells anything.
bool GpuEvents::subscribe_all() {
  if (set_ != nullptr) nvml_.set_free(set_);
  set_ = nullptr;
  if (nvml_.set_create(&set_) != nvml::kSuccess) return false;
  bool any = false;
  for (const Watched& gpu : gpus_) {
    unsigned long long types = 0;
    if (gpu.lost || nvml_.supported(gpu.device, &types) != nvml::kSuccess) continue;
    types &= kXidCriticalError | kDoubleBitEccError;
    if (types != 0 && nvml_.subscribe(gpu.device, types, set_) == nvml::kSuccess) any = true;
  }
  return any;
}

void GpuEvents::heard(const EventData& event) {
  const bool xid = event.type == kXidCriticalError;
  if (!xid && event.type != kDoubleBitEccError) return;
  const GpuFault fault = xid ? GpuFault::kXid : GpuFault::kDoubleBitEcc;
  for (Watched& gpu : gpus_) {
    if (gpu.device != event.device) continue;
    if (event.gpu_instance != kNoInstance) find_parts(gpu);
    bool told = false;
    for (const Part& part : gpu.parts) {
      if (part.gpu_instance == kNoInstance || part.gpu_instance != event.gpu_instance) continue;
      const bool all = event.compute_instance == kNoInstance;
      if (!all && part.compute_instance != event.compute_instance) continue;
      tell(gpu, GpuNews::Kind::kFault, fault, xid ? event.data : 0, part.uuid);
      told = true;
    }
    if (!told) tell(gpu, GpuNews::Kind::kFault, fault, xid ? event.data : 0, "");
  }
}

// NVML says that one is lost, and not which. False: none that was not known to be.
bool GpuEvents::find_lost() {
  bool any = false;
  for (Watched& gpu : gpus_) {
    nvml::Memory memory{};
    if (gpu.lost || nvml_.memory(gpu.device, &memory) != kGpuIsLost) continue;
    gpu.lost = any = true;
    tell(gpu, GpuNews::Kind::kFault, GpuFault::kLost, 0, "");
  }
  return any;
}

void GpuEvents::tell(const Watched& gpu, GpuNews::Kind kind, GpuFault fault, uint64_t xid,
                     const std::string& part) const {
  const GpuRecord record = record_of({kind, fault, xid, gpu.uuid, part, gpu.pci});
  ssize_t written = 0;
  do {
    written = write(to_, &record, sizeof record);
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(sizeof record)) _exit(0);  // nobody reads any more
}

}  // namespace

bool tell_gpu_events(const std::string& library, int to) { return GpuEvents(to).run(library); }

}  // namespace gradring::machine
