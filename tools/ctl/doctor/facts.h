#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client.pb.h"
#include "proto/status.h"
#include "tools/ctl/rates.h"

namespace gradring::tools::doctor {

// What was read of a node and of its peers: plain values, so that every check can be tried on any
// machine. What could not be read is not there, and leads to a SKIP.

// Of the daemon where it may be looked into, else of this process.
struct LimitFacts {
  bool of_daemon = false;
  std::optional<uint64_t> memlock;  // bytes; the largest number: no limit
  bool may_lock_all = false;        // CAP_IPC_LOCK: no limit holds
  std::optional<uint64_t> open_files;
  std::optional<int> seccomp;  // as in /proc/PID/status: 0 none, 1 strict, 2 filter
};

struct MemoryFacts {
  std::optional<uint64_t> shm_bytes;  // size of /dev/shm
  std::string memfd_fault;            // why no sealed memory file can be made; empty: it can
  std::optional<uint64_t> total_bytes;
  std::optional<uint64_t> huge_pages;
  std::optional<uint64_t>
      cgroup_bytes;  // the tightest limit of the daemon's cgroups; none: no limit
  std::optional<double> cgroup_processors;  // likewise
  uint32_t processors = 0;
};

struct FolderFacts {
  std::string path;
  bool there = false;
  uint32_t mode = 0;
  uint32_t owner = 0;
  std::optional<uint32_t> daemon_uid;
};

struct ClockFacts {
  std::optional<bool> synchronised;           // by the kernel's word
  std::map<std::string, uint32_t> governors;  // of how many processors
};

// An interface as sysfs has it.
struct NetFacts {
  std::string name;
  bool loopback = false;
  bool up = false;
  bool bridge_or_virtual = false;  // made of software: its speed says nothing
  int64_t speed_mbps = -1;         // -1: not told
  uint32_t mtu = 0;
  std::string duplex;
};

// What the driver of an RDMA port tells beside what verbs do.
struct RdmaFacts {
  std::string device;
  uint32_t port = 0;
  std::optional<bool> ecn;  // on for any priority
};

struct PciFacts {
  std::optional<std::string> iommu;  // type of the domains: "DMA", "DMA-FQ", "identity"; none: off
  std::vector<std::string> acs_bridges;  // that send what goes from device to device over the root
  bool acs_readable = false;
  bool peer_memory = false;         // nvidia_peermem is loaded
  bool open_kernel_driver = false;  // NVIDIA's, which gives out dmabuf
  bool unified_memory = false;      // nvidia_uvm's device is there
};

struct NodeFacts {
  std::string node;
  std::string fault;  // why it did not answer
  wire::StatusReport status;
  wire::PeersReport peers;
  // Of this daemon to that and back, the quickest of several; none of itself.
  std::optional<int64_t> round_trip_ns;
  int64_t clock_ahead_ns = 0;  // of this node's; off by half the round trip at most
};

struct Facts {
  std::string runtime_dir;
  std::string daemon_fault;  // why there is no answer; then all below that is the daemon's is empty
  Code daemon_fault_code = Code::kUnavailable;
  LimitFacts limits;
  MemoryFacts memory;
  FolderFacts folder;
  ClockFacts clock;
  std::vector<NetFacts> net;
  std::vector<RdmaFacts> rdma;
  PciFacts pci;
  wire::TopologyReport topology;
  std::vector<NodeFacts> nodes;  // this one first
  std::vector<LaneRate> rates;   // over the last seconds
};

}  // namespace gradring::tools::doctor
