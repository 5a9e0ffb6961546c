// A libnvidia-ml.so.1 with three GPUs: two with four NVLinks between them and two to an NVSwitch,
// and one that has fallen off the bus. GRADRING_FAKE_NVML changes what it does: "refuse", "crash",
// "hang".
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kDriverNotLoaded = 9,
              kLost = 15;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};

char devices[3];  // a handle is the address of one

size_t index_of(const void* device) {
  return static_cast<size_t>(static_cast<const char*>(device) - devices);
}

void fill(PciInfo* info, size_t index) {
  *info = {};
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", unsigned(0xA1 + index));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's.
extern "C" {

int nvmlInit_v2() {
  const char* mood = std::getenv("GRADRING_FAKE_NVML");
  const std::string_view how = mood == nullptr ? "" : mood;
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
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, kSuccess; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 2) return kLost;
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
  return std::snprintf(text, size, "GPU-%zu", index_of(device)), kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) { return memory->total = 1ull << 34, kSuccess; }
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
}
// NOLINTEND(readability-identifier-naming)
