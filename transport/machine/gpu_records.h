#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/machine/gpu_watch.h"

namespace gradring::machine {

// What the child that watches GPUs writes into its pipe, whole each time: PIPE_BUF is larger.
struct GpuRecord {
  uint32_t mark = 0;
  uint16_t kind = 0;   // of GpuNews
  uint16_t fault = 0;  // of GpuFault
  uint64_t xid = 0;
  std::array<char, 96> gpu{};   // each ends with a zero byte
  std::array<char, 96> part{};  // empty: the GPU as a whole
  std::array<char, 32> pci{};
};
static_assert(sizeof(GpuRecord) == 240);

GpuRecord record_of(const GpuNews& news);
// Nothing if it makes no sense: the child has a driver in it.
std::optional<GpuNews> news_of(const GpuRecord& record);

// The life of that child: loads NVML from `library` and tells `to` until it is killed. Returns
// where there is nothing to watch, or nothing more. False: NVML has stopped working.
bool tell_gpu_events(const std::string& library, int to);

}  // namespace gradring::machine
