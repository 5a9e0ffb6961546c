#pragma once

#include <string>
#include <vector>

#include "transport/machine/machine.h"

namespace gradring::machine {

// How far two devices are from one another, from near to far: the codes of `nvidia-smi topo -m`.
enum class Distance {
  kPix,   // behind one PCIe switch
  kPxb,   // over several PCIe switches, but not over the host bridge
  kPhb,   // over the host bridge: in common is a root complex
  kNode,  // over the way between the host bridges of a NUMA node
  kSys,   // over the way between NUMA nodes
};
const char* name_of(Distance distance);  // "PIX"
// As in "behind the same PCIe switch".
const char* words_of(Distance distance);

// Pure, and the same in both directions. Only the root complex is compared where bridges are not
// known; where not even that is, NUMA nodes; and two that are not known are as far apart as can be.
Distance distance_between(const Place& a, const Place& b);

// NVLinks that join two GPUs: straight ones, else as many as both have to NVSwitches; 0: none.
uint32_t nvlinks_between(const Machine& machine, size_t a, size_t b);

// All codes, row by row, GPUs before NICs: "X" on the diagonal, "NV18", "PIX" and so on.
std::vector<std::string> distances_of(const Machine& machine);

}  // namespace gradring::machine
