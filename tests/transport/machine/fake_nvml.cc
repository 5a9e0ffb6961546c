// A libnvidia-ml.so.1 with three GPUs: two with four NVLinks between them and two to an NVSwitch,
// and one that has fallen off the bus. They have the names of those of cuda_twin.h.
// GRADRING_FAKE_NVML changes what it does: "refuse", "crash", "hang", "deaf" (no GPU has events),
// "mig" (the second is cut into two parts). What happens to GPUs is read, a line each, from the
// FIFO that GRADRING_FAKE_NVML_EVENTS names:
//
//   xid GPU NUMBER       ecc GPU       mig GPU INSTANCE NUMBER
//   lost GPU             fail          die
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kDriverNotLoaded = 9,
              kTimeout = 10, kLost = 15, kUnknown = 999;
constexpr unsigned long long kDoubleBitEcc = 2, kXid = 8, kPowerSource = 0x80;
constexpr unsigned kNone = 0xffffffffu;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};

struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr size_t kGpus = 3, kParts = 2;
char devices[kGpus + kParts];  // a handle is the address of one; those of parts come last
bool lost[kGpus] = {false, false, true};
bool subscribed[kGpus];

size_t index_of(const void* device) {
  return static_cast<size_t>(static_cast<const char*>(device) - devices);
}

std::string_view mood() {
  const char* const how = std::getenv("GRADRING_FAKE_NVML");
  return how == nullptr ? "" : how;
}

// Nothing within that time.
std::string next_line(unsigned milliseconds) {
  static std::string rest;
  const char* const path = std::getenv("GRADRING_FAKE_NVML_EVENTS");
  static const int kFifo = path == nullptr ? -1 : open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  for (bool waited = false;;) {
    const size_t end = rest.find('\n');
    if (end != std::string::npos) {
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      return line;
    }
    if (waited) return "";
    pollfd item{kFifo, POLLIN, 0};  // poll() passes over -1
    waited = poll(&item, 1, static_cast<int>(milliseconds)) != 1;
    char bytes[256];
    const ssize_t count = waited ? 0 : read(kFifo, bytes, sizeof bytes);
    if (count > 0) rest.append(bytes, static_cast<size_t>(count));
  }
}

void fill(PciInfo* info, size_t index) {
  *info = {};
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", unsigned(0xA1 + index));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's.
extern "C" {

int nvmlInit_v2() {
  const std::string_view how = mood();
  if (how == "crash") std::abort();
  if (how == "hang") pause();
  return how == "refuse" ? kDriverNotLoaded : kSuccess;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int error) {
  return error == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return std::snprintf(text, size, "999.1"), kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = kGpus, kSuccess; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (lost[index]) return kLost;
  *device = &devices[index];
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  return fill(info, index_of(device)), kSuccess;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  return std::snprintf(text, size, "NVIDIA Fake 1000"), kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  const size_t index = index_of(device);
  const char* const what = index < kGpus ? "GPU" : "MIG";
  return std::snprintf(text, size, "%s-67726164-7269-6e67-2074-77696e20233%zu", what, index),
         kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (lost[index_of(device)]) return kLost;
  return memory->total = 1ull << 34, kSuccess;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  if (link >= 8) return kInvalidArgument;
  return *active = link < 6 ? 1 : 0, kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned link, unsigned* type) {
  if (link >= 8) return kNotSupported;
  return *type = link < 4 ? 0 : 2, kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  return fill(info, 1 - index_of(device)), kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = mood() == "mig" && index_of(device) == 1 ? kParts + 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** device) {
  if (index >= kParts) return kInvalidArgument;
  *device = &devices[kGpus + index];
  return kSuccess;
}
int nvmlDeviceGetGpuInstanceId(void* device, unsigned* id) {
  return *id = static_cast<unsigned>(index_of(device) - kGpus) + 5, kSuccess;
}
int nvmlDeviceGetComputeInstanceId(void*, unsigned* id) { return *id = 0, kSuccess; }

int nvmlEventSetCreate(void** set) { return *set = &subscribed, kSuccess; }
int nvmlEventSetFree(void*) {
  std::memset(subscribed, 0, sizeof subscribed);
  return kSuccess;
}
int nvmlDeviceGetSupportedEventTypes(void*, unsigned long long* types) {
  *types = mood() == "deaf" ? 0 : kDoubleBitEcc | kXid | kPowerSource;
  return kSuccess;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  if (set != &subscribed || types != (kDoubleBitEcc | kXid)) return kInvalidArgument;
  if (lost[index_of(device)]) return kLost;
  subscribed[index_of(device)] = true;
  return kSuccess;
}
int nvmlEventSetWait_v2(void* set, EventData* event, unsigned milliseconds) {
  if (set != &subscribed) return kInvalidArgument;
  for (const bool& one : lost) {
    if (one && subscribed[&one - lost]) return kLost;  // for ever, as the real one
  }
  const std::string line = next_line(milliseconds);
  if (line.empty()) return kTimeout;
  if (line == "die") std::abort();
  if (line == "fail") return kUnknown;
  char what[8] = "";
  size_t gpu = 0;
  unsigned long long first = 0, second = 0;
  std::sscanf(line.c_str(), "%7s %zu %llu %llu", what, &gpu, &first, &second);
  if (gpu >= kGpus) return kUnknown;
  const std::string_view kind = what;
  if (kind == "lost") return lost[gpu] = true, kLost;
  *event = {&devices[gpu], kind == "ecc" ? kDoubleBitEcc : kXid, first, kNone, kNone};
  if (kind == "mig") {
    event->data = second;
    event->gpu_instance = static_cast<unsigned>(first);
  }
  return kSuccess;
}
}
// NOLINTEND(readability-identifier-naming)
