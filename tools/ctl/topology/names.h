#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client.pb.h"

namespace gradring::tools {

// Empty if every index of the report is in its list and the distances are a square; else a
// sentence. Whoever shows a report asks this first, and shows the sentence instead.
std::string nonsense_in(const wire::TopologyReport& report);

std::string gpu_name(int index);  // "GPU0", as nvidia-smi calls it
std::string nic_name(int index);  // "NIC0"
// Of a place in the rows of `distances`: GPUs, then NICs.
std::string device_name(const wire::MachineReport& machine, int row);

// "400G", "2.5G", "?": bits per second as people name network cards.
std::string rate_name(uint64_t bits_per_second);
// "80 GiB"
std::string memory_name(uint64_t bytes);
// The same in fewer letters, for pictures: "1b:00.0" where all are in domain 0000, "H100 80GB
// HBM3", "Intel Xeon Gold 6338".
std::string short_pci(const std::string& pci);
std::string short_model(const std::string& model);
// A CPU list that is not longer than fits a table: "0,2,4,...,126".
std::string short_cpus(const std::string& cpus);
// "RoCE", "InfiniBand", "Ethernet"
std::string kind_of(const wire::NicReport& nic);
// Of all interfaces: "ens1np0", "ens1f0,ens1f1".
std::string interfaces_of(const wire::NicReport& nic);

// The bond that it is part of, or empty.
std::string bond_of(const wire::NicReport& nic);

// The rail that the card belongs to; null: there is none.
const wire::RailReport* rail_of(const wire::MachineReport& machine, int nic);

// "0-3,8": numbers in ascending order.
std::string ranges_of(const std::vector<uint32_t>& numbers);

}  // namespace gradring::tools
