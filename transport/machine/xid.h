#pragma once

#include <cstdint>
#include <string>

namespace gradring::machine {

// Of what NVML tells that something is wrong with a GPU.
enum class GpuFault : uint8_t {
  kXid,           // an error of NVIDIA's driver, by its number
  kDoubleBitEcc,  // memory that ECC could not correct
  kLost,          // NVML cannot reach the GPU any more
};
inline constexpr size_t kGpuFaults = 3;

enum class GpuVerdict : uint8_t {
  kNote,      // some program's own fault, or in order: nobody has to do anything
  kLook,      // the GPU goes on, and somebody should look at it
  kUnusable,  // until it is reset, nothing that is computed there can be trusted, or nothing is
};
// "note", "look", "unusable"
const char* name_of(GpuVerdict verdict);

struct GpuMeaning {
  GpuVerdict verdict = GpuVerdict::kNote;
  const char* what = "";    // goes on after "the GPU": "has fallen off the bus"
  const char* remedy = "";  // what to do
};
// `xid` is of kXid alone. Of a number that is not known here it says so.
GpuMeaning meaning_of(GpuFault fault, uint64_t xid);

// "Xid 79", "double-bit ECC error", "lost to NVML"
std::string title_of(GpuFault fault, uint64_t xid);
// For labels and scripts: "79", "double_bit_ecc", "lost"
std::string word_of(GpuFault fault, uint64_t xid);

}  // namespace gradring::machine
