#include "transport/machine/distance.h"

#include <algorithm>

namespace gradring::machine {

const char* name_of(Distance distance) {
  switch (distance) {
    case Distance::kPix:
      return "PIX";
    case Distance::kPxb:
      return "PXB";
    case Distance::kPhb:
      return "PHB";
    case Distance::kNode:
      return "NODE";
    case Distance::kSys:
      break;
  }
  return "SYS";
}

const char* words_of(Distance distance) {
  switch (distance) {
    case Distance::kPix:
      return "behind the same PCIe switch";
    case Distance::kPxb:
      return "over PCIe switches alone";
    case Distance::kPhb:
      return "at the same root complex";
    case Distance::kNode:
      return "on the same NUMA node";
    case Distance::kSys:
      break;
  }
  return "on another NUMA node";
}

Distance distance_between(const Place& a, const Place& b) {
  const auto [end_a, end_b] =
      std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  const auto common = end_a - a.bridges.begin();
  if (common > 1) {
    // A switch is an upstream bridge with a downstream bridge for each device, so two devices of
    // one switch have at most one bridge each that the other has not.
    const bool one_switch = a.bridges.end() - end_a <= 1 && b.bridges.end() - end_b <= 1;
    return one_switch ? Distance::kPix : Distance::kPxb;
  }
  if (common == 1) return Distance::kPhb;
  return a.numa >= 0 && a.numa == b.numa ? Distance::kNode : Distance::kSys;
}

uint32_t nvlinks_between(const Machine& machine, size_t a, size_t b) {
  const auto count = [&](size_t from, int to) -> uint32_t {
    for (const NvLink& link : machine.gpus[from].nvlinks) {
      if (link.gpu == to) return link.count;
    }
    return 0;
  };
  if (const uint32_t straight = count(a, static_cast<int>(b)); straight > 0) return straight;
  return std::min(count(a, -1), count(b, -1));
}

std::vector<std::string> distances_of(const Machine& machine) {
  const size_t gpus = machine.gpus.size(), all = gpus + machine.nics.size();
  const auto place = [&](size_t i) -> const Place& {
    return i < gpus ? machine.gpus[i].place : machine.nics[i - gpus].place;
  };
  std::vector<std::string> codes;
  codes.reserve(all * all);
  for (size_t a = 0; a < all; ++a) {
    for (size_t b = 0; b < all; ++b) {
      const uint32_t links = a < gpus && b < gpus && a != b ? nvlinks_between(machine, a, b) : 0;
      codes.push_back(a == b      ? "X"
                      : links > 0 ? "NV" + std::to_string(links)
                                  : name_of(distance_between(place(a), place(b))));
    }
  }
  return codes;
}

}  // namespace gradring::machine
