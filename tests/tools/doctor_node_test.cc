// What gradringctl doctor finds on a node, from facts alone: in health, and with each thing spoilt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/tools/doctor_facts.h"

namespace gradring::tools::doctor {
namespace {

using ::testing::HasSubstr;

using Check = Findings (*)(const Facts&);

void expect(Check check, const std::string& name, Level level, const std::string& words,
            const std::function<void(Facts&)>& spoil = {}) {
  Facts facts = healthy_facts();
  if (spoil) spoil(facts);
  const Finding found = finding_of(check(facts), name);
  ASSERT_EQ(found.check, name);
  EXPECT_EQ(found.level, level) << name << ": " << found.found;
  EXPECT_THAT(found.found, HasSubstr(words));
  const bool complains = level == Level::kWarn || level == Level::kFail;
  EXPECT_EQ(found.remedy.empty(), !complains) << name;
}

void over_rdma(Facts& facts) { facts.topology.mutable_lanes(0)->set_device("mlx5_0:1 (RDMA)"); }
wire::RdmaPortReport& first_port(Facts& facts) {
  return *facts.topology.mutable_machine()->mutable_nics(0)->mutable_rdma()->mutable_ports(0);
}

TEST(Doctor, AHealthyNodeHasNothingToLookAt) {
  for (const Check check : {check_daemon, check_limits, check_host, check_network, check_rdma,
                            check_gpus, check_peers, check_links}) {
    const Findings findings = check(healthy_facts());
    EXPECT_FALSE(findings.empty());
    for (const Finding& one : findings) {
      EXPECT_EQ(one.level, Level::kOk) << one.check << ": " << one.found;
    }
  }
}

TEST(Doctor, TheDaemon) {
  expect(check_daemon, "daemon", Level::kFail, "nobody listens",
         [](Facts& facts) { facts.daemon_fault = "nobody listens at /run/gradring"; });
  expect(check_daemon, "daemon", Level::kWarn, "draining",
         [](Facts& facts) { facts.nodes[0].status.set_state("draining"); });
  Facts drains = healthy_facts();
  drains.nodes[0].status.set_state("draining");
  EXPECT_THAT(check_daemon(drains).front().remedy, HasSubstr("gradringctl drain --cancel"));
  expect(check_daemon, "limit max-jobs", Level::kWarn, "60 of 64 jobs", [](Facts& facts) {
    wire::Limit* limit = facts.nodes[0].status.add_limits();
    limit->set_name("max-jobs");
    limit->set_used(60);
    limit->set_cap(64);
    limit->set_unit("jobs");
  });
}

TEST(Doctor, OfADaemonThatRunsItIsNotSaidThatItEnded) {
  Facts facts = healthy_facts();
  facts.daemon_fault = "no answer";
  facts.daemon_fault_code = Code::kDeadlineExceeded;
  EXPECT_THAT(check_daemon(facts).front().remedy, HasSubstr("T is stopped"));
  facts.daemon_fault_code = Code::kIncompatible;
  EXPECT_THAT(check_daemon(facts).front().remedy, HasSubstr("of the release that runs"));
  facts.daemon_fault_code = Code::kUnavailable;
  EXPECT_THAT(check_daemon(facts).front().remedy, HasSubstr("why it ended"));
}

// What gradringd does not reread on SIGHUP would stay as it is.
TEST(Doctor, TellsToReloadOnlyWhatIsReread) {
  const auto remedy = [](const std::string& name) {
    Facts facts = healthy_facts();
    wire::Limit* limit = facts.nodes[0].status.add_limits();
    limit->set_name(name);
    limit->set_used(9);
    limit->set_cap(9);
    return finding_of(check_daemon(facts), "limit " + name).remedy;
  };
  for (const char* reread : {"segment-limit", "max-sessions", "sessions-per-uid"}) {
    EXPECT_EQ(remedy(reread), std::string("raise ") + reread + " in gradringd.conf and reload");
  }
  for (const char* fixed : {"max-jobs", "staging-limit", "feedback-limit"}) {
    EXPECT_EQ(remedy(fixed),
              std::string("raise ") + fixed + " in gradringd.conf and restart gradringd");
  }
  EXPECT_THAT(remedy("open files"), HasSubstr("LimitNOFILE"));
}

TEST(Doctor, LockedMemoryMattersToRdmaAlone) {
  const auto small = [](Facts& facts) { facts.limits.memlock = 8 << 20; };
  expect(check_limits, "memlock", Level::kOk, "enough for TCP", small);
  expect(check_limits, "memlock", Level::kFail, "RDMA locks", [&](Facts& facts) {
    small(facts);
    over_rdma(facts);
  });
  expect(check_limits, "memlock", Level::kOk, "CAP_IPC_LOCK", [&](Facts& facts) {
    small(facts);
    over_rdma(facts);
    facts.limits.may_lock_all = true;
  });
  expect(check_limits, "memlock", Level::kOk, "of this shell",
         [](Facts& facts) { facts.limits.of_daemon = false; });
  expect(check_limits, "memlock", Level::kSkip, "",
         [](Facts& facts) { facts.limits.memlock.reset(); });
}

TEST(Doctor, OtherLimits) {
  expect(check_limits, "open files", Level::kWarn, "1024",
         [](Facts& facts) { facts.limits.open_files = 1024; });
  expect(check_limits, "memory files", Level::kFail, "not permitted",
         [](Facts& facts) { facts.memory.memfd_fault = "memfd_create: Operation not permitted"; });
  expect(check_limits, "/dev/shm", Level::kWarn, "64",
         [](Facts& facts) { facts.memory.shm_bytes = 64 << 20; });
  expect(check_limits, "/dev/shm", Level::kSkip, "",
         [](Facts& facts) { facts.memory.shm_bytes.reset(); });
  expect(check_limits, "seccomp", Level::kOk, "filter",
         [](Facts& facts) { facts.limits.seccomp = 2; });
  expect(check_limits, "huge pages", Level::kOk, "512 reserved",
         [](Facts& facts) { facts.memory.huge_pages = 512; });
}

TEST(Doctor, Containers) {
  expect(check_limits, "container memory", Level::kWarn, "segments count",
         [](Facts& facts) { facts.memory.cgroup_bytes = uint64_t{4} << 30; });
  expect(check_limits, "container memory", Level::kOk, "200",
         [](Facts& facts) { facts.memory.cgroup_bytes = uint64_t{200} << 30; });
  expect(check_limits, "processors", Level::kWarn, "0.50 of 64",
         [](Facts& facts) { facts.memory.cgroup_processors = 0.5; });
  expect(check_limits, "processors", Level::kOk, "4.00",
         [](Facts& facts) { facts.memory.cgroup_processors = 4; });
}

TEST(Doctor, TheRuntimeFolder) {
  expect(check_limits, "runtime folder", Level::kFail, "not there",
         [](Facts& facts) { facts.folder.there = false; });
  expect(check_limits, "runtime folder", Level::kFail, "anybody",
         [](Facts& facts) { facts.folder.mode = 0777; });
  expect(check_limits, "runtime folder", Level::kWarn, "the daemon is uid 998",
         [](Facts& facts) { facts.folder.owner = 0; });
}

TEST(Doctor, ClockAndProcessors) {
  expect(check_host, "clock", Level::kWarn, "not synchronised",
         [](Facts& facts) { facts.clock.synchronised = false; });
  expect(check_host, "clock", Level::kSkip, "",
         [](Facts& facts) { facts.clock.synchronised.reset(); });
  expect(check_host, "governor", Level::kWarn, "powersave on 64 processors", [](Facts& facts) {
    facts.clock.governors = {{"powersave", 64}};
  });
  expect(check_host, "governor", Level::kSkip, "",
         [](Facts& facts) { facts.clock.governors.clear(); });
}

TEST(Doctor, Interfaces) {
  expect(check_network, "device eth0", Level::kFail, "down",
         [](Facts& facts) { facts.net[1].up = false; });
  expect(check_network, "device eth0", Level::kFail, "half duplex",
         [](Facts& facts) { facts.net[1].duplex = "half"; });
  expect(check_network, "device eth0", Level::kWarn, "MTU of 1500",
         [](Facts& facts) { facts.net[1].mtu = 1500; });
  expect(check_network, "device eth0", Level::kWarn, "eth1 has 100000", [](Facts& facts) {
    facts.net.push_back({"eth1", false, true, false, 100'000, 9000, "full"});
  });
  expect(check_network, "device eth0", Level::kFail, "not there",
         [](Facts& facts) { facts.net.pop_back(); });
  expect(check_network, "device lo", Level::kFail, "other machines",
         [](Facts& facts) { facts.topology.mutable_lanes(0)->set_device("lo (TCP)"); });
  expect(check_network, "device lo", Level::kOk, "loopback", [](Facts& facts) {
    facts.topology.mutable_lanes(0)->set_device("lo (TCP)");
    for (auto& peer : *facts.nodes[0].peers.mutable_peers()) peer.set_address("127.0.0.1:7301");
  });
  // Made of software, or down: no better way.
  expect(check_network, "device eth0", Level::kOk, "25000", [](Facts& facts) {
    facts.net.push_back({"veth", false, true, true, 100'000, 9000, "full"});
    facts.net.push_back({"eth1", false, false, false, 100'000, 9000, "full"});
  });
  expect(check_network, "device", Level::kSkip, "no lane", over_rdma);
}

TEST(Doctor, RdmaPorts) {
  const std::string port = "RDMA mlx5_0:1";
  const auto down = [](Facts& facts) { first_port(facts).set_state("down"); };
  expect(check_rdma, port, Level::kWarn, "down", down);
  expect(check_rdma, port, Level::kFail, "down", [&](Facts& facts) {
    down(facts);
    over_rdma(facts);
  });
  expect(check_rdma, port, Level::kWarn, "25 Gbit/s",
         [](Facts& facts) { first_port(facts).set_rate_bps(25'000'000'000); });
  expect(check_rdma, port, Level::kWarn, "1024",
         [](Facts& facts) { first_port(facts).set_mtu(1024); });
  expect(check_rdma, port, Level::kFail, "no RoCE v2 address",
         [](Facts& facts) { first_port(facts).mutable_gids(0)->set_address("fe80::1"); });
  expect(check_rdma, port, Level::kWarn, "ECN is off",
         [](Facts& facts) { facts.rdma[0].ecn = false; });
  const auto with_gid = [](Facts& facts) {
    over_rdma(facts);
    *facts.topology.mutable_lanes(0)->mutable_gid() = first_port(facts).gids(0);
  };
  expect(check_rdma, port, Level::kOk, "active", with_gid);
  expect(check_rdma, port, Level::kFail, "not there any more", [&](Facts& facts) {
    with_gid(facts);
    facts.topology.mutable_lanes(0)->mutable_gid()->set_address("::ffff:10.0.0.9");
  });
  expect(check_rdma, port, Level::kWarn, "RoCE v1", [&](Facts& facts) {
    wire::GidReport* other = first_port(facts).add_gids();
    *other = first_port(facts).gids(0);
    other->set_index(1);
    other->set_type("RoCE v1");
    over_rdma(facts);
    *facts.topology.mutable_lanes(0)->mutable_gid() = *other;
  });
  expect(check_rdma, port, Level::kFail, "rdma-path-mtu is 4096, and the port's active MTU 1024",
         [](Facts& facts) {
           over_rdma(facts);
           facts.topology.mutable_lanes(0)->set_path_mtu(4096);
           first_port(facts).set_link_layer("InfiniBand");
           first_port(facts).set_mtu(1024);
         });
  // InfiniBand needs neither an IP address nor Ethernet's flow control.
  expect(check_rdma, port, Level::kOk, "InfiniBand", [](Facts& facts) {
    first_port(facts).set_link_layer("InfiniBand");
    first_port(facts).clear_gids();
  });
  expect(check_rdma, "RDMA", Level::kSkip, "no card",
         [](Facts& facts) { facts.topology.mutable_machine()->clear_nics(); });
}

TEST(Doctor, WhatRdmaPortsCount) {
  const std::string port = "RDMA mlx5_0:1";
  const auto counts = [](const char* name, uint64_t of_daemon, double per_second) {
    return [=](Facts& facts) {
      wire::PortCounterReport* counter = first_port(facts).add_counters();
      counter->set_name(name);
      counter->set_value(1000 + of_daemon);
      counter->set_of_daemon(of_daemon);
      counter->set_per_second(per_second);
    };
  };
  for (const auto& [name, words] :
       {std::pair{"retransmits", "7 packets were sent again"},
        std::pair{"out_of_sequence", "7 packets came out of sequence"},
        std::pair{"rnr", "7 times the far end had no buffer"}, std::pair{"errors", "7 errors"},
        std::pair{"link_downed", "7 times its link was lost"}}) {
    expect(check_rdma, port, Level::kWarn, words, counts(name, 7, 0));
    expect(check_rdma, port, Level::kOk, "active", counts(name, 0, 0));  // of long ago
  }
  for (const char* name : {"cnp_handled", "cnp_sent", "pauses_received", "pauses_sent"}) {
    expect(check_rdma, port, Level::kOk, "active", counts(name, 7, 3));  // that is what it is for
    expect(check_rdma, port, Level::kWarn, "500.0 a second", counts(name, 7000, 500));
  }
  expect(check_rdma, port, Level::kOk, "active", counts("ecn_marked", 7, 500));
}

TEST(Doctor, RdmaOfSoftwareIsLookedAtByItsLane) {
  const auto soft = [](Facts& facts) {
    facts.topology.mutable_machine()->clear_nics();
    wire::LaneChoice* lane = facts.topology.mutable_lanes(0);
    lane->set_device("rxe0:1 (RDMA)");
    lane->set_nic(-1);
    wire::PortReport* port = lane->add_ports();
    port->set_port("rxe0:1");
    port->set_state("active");
  };
  expect(check_rdma, "RDMA rxe0:1", Level::kOk, "made of software", soft);
  expect(check_rdma, "RDMA rxe0:1", Level::kFail, "its port is down", [&](Facts& facts) {
    soft(facts);
    facts.topology.mutable_lanes(0)->mutable_ports(0)->set_state("down");
  });
}

TEST(Doctor, ErrorsOfGpus) {
  const auto told = [](const char* verdict) {
    return [verdict](Facts& facts) {
      wire::GpuErrorReport* const error = facts.topology.mutable_gpu_errors()->add_errors();
      error->set_gpu("GPU-1234");
      error->set_pci("0000:17:00.0");
      error->set_error("Xid 79");
      error->set_what("has fallen off the bus");
      error->set_remedy("power it off and on");
      error->set_verdict(verdict);
      error->set_count(2);
      error->set_last_ms(3'000);
    };
  };
  constexpr const char* kCheck = "GPU errors";
  expect(check_gpus, kCheck, Level::kFail,
         "GPU-1234 (0000:17:00.0) has fallen off the bus (Xid 79), 3.0 s ago", told("unusable"));
  expect(check_gpus, kCheck, Level::kWarn, "Xid 79", told("look"));
  expect(check_gpus, kCheck, Level::kOk, "2 errors of programs", told("note"));
  expect(check_gpus, kCheck, Level::kWarn, "not heard of: it ended", [](Facts& facts) {
    facts.topology.mutable_gpu_errors()->set_watched(false);
    facts.topology.mutable_gpu_errors()->set_reason("it ended");
  });
  expect(check_gpus, kCheck, Level::kSkip, "tells of its errors",
         [](Facts& facts) { facts.topology.mutable_gpu_errors()->set_watched(false); });
  expect(check_gpus, kCheck, Level::kFail, "Xid 79", [&](Facts& facts) {
    facts.topology.mutable_machine()->clear_gpus();  // it was lost before it could be looked at
    told("unusable")(facts);
  });
}

TEST(Doctor, Gpus) {
  expect(check_gpus, "NVLink", Level::kFail, "GPU 1 has 11 of 12", [](Facts& facts) {
    facts.topology.mutable_machine()->mutable_gpus(1)->mutable_nvlinks(0)->set_count(11);
  });
  expect(check_gpus, "NVLink", Level::kSkip, "no GPU here has any", [](Facts& facts) {
    for (auto& gpu : *facts.topology.mutable_machine()->mutable_gpus()) gpu.clear_nvlinks();
  });
  expect(check_gpus, "CUDA", Level::kFail, "no /dev/nvidia-uvm",
         [](Facts& facts) { facts.pci.unified_memory = false; });
  expect(check_gpus, "GPUDirect", Level::kWarn, "neither",
         [](Facts& facts) { facts.pci.peer_memory = false; });
  expect(check_gpus, "GPUDirect", Level::kOk, "dmabuf", [](Facts& facts) {
    facts.pci.peer_memory = false;
    facts.pci.open_kernel_driver = true;
  });
  expect(check_gpus, "GPU sums", Level::kOk, "on 4 GPUs", [](Facts&) {});
  expect(check_gpus, "GPU sums", Level::kFail, "by way of the host: NCCL has failed",
         [](Facts& facts) {
           facts.topology.mutable_gpu_sums()->set_on_gpus(false);
           facts.topology.mutable_gpu_sums()->set_reason("NCCL has failed");
         });
  Facts given_up = healthy_facts();
  given_up.topology.mutable_gpu_sums()->set_on_gpus(false);
  EXPECT_THAT(finding_of(check_gpus(given_up), "GPU sums").remedy,
              HasSubstr("MPS's server, which may take no new trainer while gradringd runs"));
  given_up.topology.mutable_gpu_sums()->set_mps(false);
  EXPECT_EQ(finding_of(check_gpus(given_up), "GPU sums").remedy,
            "see nvidia-smi and dmesg; then restart gradringd");
  expect(check_gpus, "GPU sums", Level::kSkip, "none here (gpu-sums)", [](Facts& facts) {
    facts.topology.mutable_gpu_sums()->set_on_gpus(false);
    facts.topology.mutable_gpu_sums()->clear_by();
  });
  expect(check_gpus, "MPS", Level::kSkip, "no GPU sums here",
         [](Facts& facts) { facts.topology.mutable_gpu_sums()->set_on_gpus(false); });
  expect(check_gpus, "MPS", Level::kWarn, "does not run",
         [](Facts& facts) { facts.topology.mutable_gpu_sums()->set_mps(false); });
  Facts alone = healthy_facts();
  alone.topology.mutable_gpu_sums()->set_mps(false);
  EXPECT_THAT(finding_of(check_gpus(alone), "MPS").remedy,
              ::testing::AllOf(HasSubstr("same CUDA_MPS_PIPE_DIRECTORY"),
                               HasSubstr("A fault of one program then reaches all on its GPUs")));
  expect(check_gpus, "slices of GPUs", Level::kSkip, "no GPU sums here",
         [](Facts& facts) { facts.topology.mutable_gpu_sums()->clear_network(); });
  expect(check_gpus, "slices of GPUs", Level::kOk, "go from the host's memory: eth0",
         [](Facts& facts) {
           facts.topology.mutable_gpu_sums()->set_network("from the host's memory: eth0 is TCP");
         });
  expect(check_gpus, "IOMMU", Level::kWarn, "DMA-FQ",
         [](Facts& facts) { facts.pci.iommu = "DMA-FQ"; });
  expect(check_gpus, "IOMMU", Level::kOk, "off", [](Facts& facts) { facts.pci.iommu.reset(); });
  expect(check_gpus, "PCI ACS", Level::kWarn, "1 bridge",
         [](Facts& facts) { facts.pci.acs_bridges = {"0000:16:00.0"}; });
  const auto over_pcie = [](Facts& facts) {
    for (auto& gpu : *facts.topology.mutable_machine()->mutable_gpus()) gpu.clear_nvlinks();
    facts.topology.mutable_machine()->clear_nics();
    facts.pci.iommu = "DMA";
    facts.pci.acs_bridges = {"0000:16:00.0"};
  };
  expect(check_gpus, "GPUDirect", Level::kSkip, "no RDMA card", over_pcie);
  expect(check_gpus, "IOMMU", Level::kWarn, "or is lost", over_pcie);
  expect(check_gpus, "PCI ACS", Level::kWarn, "or is lost", over_pcie);
  expect(check_gpus, "PCI ACS", Level::kSkip, "root",
         [](Facts& facts) { facts.pci.acs_readable = false; });
  expect(check_gpus, "GPU", Level::kSkip, "none",
         [](Facts& facts) { facts.topology.mutable_machine()->clear_gpus(); });
}

}  // namespace
}  // namespace gradring::tools::doctor
