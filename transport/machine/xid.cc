#include "transport/machine/xid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gradring::machine {
namespace {

constexpr const char* kApplication = "look at the program that ran there";
constexpr const char* kReset =
    "drain the node, stop gradringd and reset the GPU (nvidia-smi --gpu-reset); if it comes again, "
    "replace it";
constexpr const char* kPowerCycle =
    "drain the node and power it off and on; if it comes again, replace the GPU";
constexpr const char* kAtNextReset = "reset the GPU when the node is idle (nvidia-smi --gpu-reset)";
constexpr const char* kLink =
    "nvidia-smi nvlink --status names the link; if it comes again, have the GPU or the switch "
    "looked at";

struct Known {
  uint32_t xid;
  GpuMeaning meaning;
};

// What NVIDIA says of them, and the immediate action that it asks for, is at
// https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html; of older GPUs at
// https://docs.nvidia.com/deploy/xid-errors/index.html. Where it asks for a reset or a restart of
// the node before anything else is computed there, the GPU is unusable. Ascending.
constexpr auto kNote = GpuVerdict::kNote;
constexpr auto kLook = GpuVerdict::kLook;
constexpr auto kUnusable = GpuVerdict::kUnusable;
constexpr std::array<Known, 43> kKnown = {{
    {8, {kNote, "stopped a program that took too long", kApplication}},
    {11, {kNote, "was given commands that make no sense", kApplication}},
    {13, {kNote, "had a kernel that computed out of bounds or wrongly", kApplication}},
    {31, {kNote, "had a kernel that read or wrote memory which is not its own", kApplication}},
    {32, {kNote, "was given commands that make no sense", kApplication}},
    {43, {kNote, "had a program's work ended by the driver", kApplication}},
    {45,
     {kNote, "had a program's work cleaned up after an earlier error or its end", kApplication}},
    {46, {kUnusable, "has stopped processing", kReset}},
    {48, {kUnusable, "has memory with an error that ECC could not correct", kReset}},
    {54, {kLook, "lacks power from its own connector", "look at the cables of the GPU's power"}},
    {61, {kUnusable, "has a microcontroller that stopped at a fault", kReset}},
    {62, {kUnusable, "has a microcontroller that has halted", kReset}},
    {63, {kLook, "has put a row of its memory aside", kAtNextReset}},
    {64, {kUnusable, "could not put a bad row of its memory aside", kReset}},
    {68, {kNote, "had an error in its video decoder", kApplication}},
    {69, {kNote, "was given commands that its engine does not know", kApplication}},
    {74, {kLook, "has an NVLink that made errors", kLink}},
    {79, {kUnusable, "has fallen off the bus", kPowerCycle}},
    {92, {kLook, "corrects many errors of its memory", kAtNextReset}},
    {94,
     {kLook, "has memory with an error that hit one program alone, which the driver ends",
      kAtNextReset}},
    {95, {kUnusable, "has memory with an error that may have hit every program", kReset}},
    {109, {kUnusable, "could not change from one program to the next", kReset}},
    {110, {kUnusable, "has a fault of its security engine", kPowerCycle}},
    {119, {kUnusable, "has a system processor (GSP) that does not answer the driver", kReset}},
    {120, {kUnusable, "has a system processor (GSP) that failed", kReset}},
    {121, {kLook, "has a link to its processor (C2C) that made errors", kAtNextReset}},
    {123, {kUnusable, "does not answer the driver about its power", kReset}},
    {136, {kUnusable, "could not bring up its links", kReset}},
    {137, {kNote, "was told over NVLink of a peer's access that is not allowed", kApplication}},
    {140, {kUnusable, "has memory with errors that ECC could not correct", kReset}},
    {143, {kUnusable, "could not be started by the driver", kReset}},
    {144, {kLook, "has an NVLink that made errors", kLink}},
    {145, {kLook, "has an NVLink that made errors", kLink}},
    {146, {kLook, "has an NVLink that made errors", kLink}},
    {147, {kLook, "has an NVLink that made errors", kLink}},
    {148, {kLook, "has an NVLink that made errors", kLink}},
    {149, {kLook, "has an NVLink that made errors", kLink}},
    {150, {kLook, "has an NVLink that made errors", kLink}},
    {154,
     {kLook, "is to be seen to, as the driver now says",
      "nvidia-smi -q shows under GPU Recovery Action what it asks for: often a reset"}},
    {155, {kLook, "has an NVLink that made errors", kLink}},
    {156, {kLook, "has put a part of its memory aside", kAtNextReset}},
    {157, {kUnusable, "could not put a bad part of its memory aside", kReset}},
    {158, {kUnusable, "ran out of time at something it must finish", kReset}},
}};

}  // namespace

const char* name_of(GpuVerdict verdict) {
  constexpr std::array<const char*, 3> kNames = {"note", "look", "unusable"};
  return kNames.at(static_cast<size_t>(verdict));
}

GpuMeaning meaning_of(GpuFault fault, uint64_t xid) {
  if (fault == GpuFault::kDoubleBitEcc) return meaning_of(GpuFault::kXid, 48);
  if (fault == GpuFault::kLost) {
    return {kUnusable, "cannot be reached by the driver any more", kPowerCycle};
  }
  const auto* const known =
      std::lower_bound(kKnown.begin(), kKnown.end(), xid,
                       [](const Known& one, uint64_t number) { return one.xid < number; });
  if (known != kKnown.end() && known->xid == xid) return known->meaning;
  return {kLook, "has an error that gradring does not know",
          "look the number up in NVIDIA's catalogue of Xid errors"};
}

std::string title_of(GpuFault fault, uint64_t xid) {
  if (fault == GpuFault::kXid) return fmt::format("Xid {}", xid);
  return fault == GpuFault::kLost ? "lost to NVML" : "double-bit ECC error";
}

std::string word_of(GpuFault fault, uint64_t xid) {
  if (fault == GpuFault::kXid) return std::to_string(xid);
  return fault == GpuFault::kLost ? "lost" : "double_bit_ecc";
}

}  // namespace gradring::machine
