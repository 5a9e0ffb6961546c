#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/machine/distance.h"
#include "transport/machine/machine.h"

namespace gradring::machine {

// What an operator has said about it.
struct Wishes {
  std::vector<std::string> net_devices;  // the cards to use; none: whatever is fit
  // Cards of GPUs, each "GPU=NIC": a GPU by its index, PCI address or UUID, a card by the name of
  // its RDMA device or interface, or by PCI address.
  std::vector<std::string> gpu_nics;
};

// The card that a name means, as in "mlx5_0:1", "eth0 (TCP)", "0000:17:00.0"; -1: none.
int find_nic(const Machine& machine, const std::string& name);

// A card, or the cards of one bond, which share one RDMA device and count as one of their joint
// rate.
struct Rail {
  std::vector<size_t> nics;  // the first one names it: that with the RDMA device
  bool used = false;
  std::string reason;
  uint64_t rate_bps = 0;
};
// Pure. Which cards are for gradients: those that are wished for; else all that are up and at least
// half as fast as the fastest, RDMA before others, since a slow one is for management.
std::vector<Rail> rails_of(const Machine& machine, const Wishes& wishes);

struct Choice {
  size_t nic = 0;
  Distance distance = Distance::kSys;
  std::string reason;
};
struct Affinity {
  // Of each GPU; the first choice is the main one. Several where there are at least twice as many
  // rails as GPUs; none where there is no rail.
  std::vector<std::vector<Choice>> choices;
  std::vector<std::string> complaints;  // about wishes that cannot be met
};
// Pure. Nearest first, no rail for more GPUs than is its share, and of several solutions with the
// same distances the one in order of PCI addresses: GPU i, NIC i where nothing tells them apart.
Affinity affinity_of(const Machine& machine, const std::vector<Rail>& rails, const Wishes& wishes);

}  // namespace gradring::machine
