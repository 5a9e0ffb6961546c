// What ports count, by folders as sysfs shows them, of several makers' drivers.
#include "transport/machine/port_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/tools/process.h"
#include "transport/machine/recording.h"

namespace gradring::machine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A /sys of our own.
class Sysfs {
 public:
  void file(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = folder_.path() + "/class/infiniband/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  void counters(const std::string& port, const std::map<std::string, uint64_t>& values) const {
    for (const auto& [name, value] : values) file(port + "/" + name, std::to_string(value));
  }
  const std::string& path() const { return folder_.path(); }

 private:
  tools::TemporaryFolder folder_;
};

TEST(PortCounters, OfConnectX) {
  const Sysfs sysfs;
  sysfs.counters("mlx5_0/ports/1/hw_counters", {{"local_ack_timeout_err", 1},
                                                {"packet_seq_err", 20},
                                                {"implied_nak_seq_err", 300},
                                                {"roce_adp_retrans", 4000},
                                                {"out_of_sequence", 5},
                                                {"rnr_nak_retry_err", 6},
                                                {"np_cnp_sent", 7},
                                                {"rp_cnp_handled", 8},
                                                {"np_ecn_marked_roce_packets", 9},
                                                {"rx_write_requests", 1'000'000},
                                                {"lifespan", 10}});
  sysfs.counters("mlx5_0/ports/1/counters", {{"symbol_error", 10},
                                             {"port_rcv_errors", 1},
                                             {"link_downed", 2},
                                             {"port_xmit_data", 1'000'000}});
  const PortCounters counters = read_port_counters({"mlx5_0", 1}, sysfs.path());
  EXPECT_EQ(counters[PortCounter::kRetransmits], 4321u);
  EXPECT_EQ(counters[PortCounter::kOutOfSequence], 5u);
  EXPECT_EQ(counters[PortCounter::kRnr], 6u);
  EXPECT_EQ(counters[PortCounter::kCnpSent], 7u);
  EXPECT_EQ(counters[PortCounter::kCnpHandled], 8u);
  EXPECT_EQ(counters[PortCounter::kEcnMarked], 9u);
  EXPECT_EQ(counters[PortCounter::kErrors], 11u);
  EXPECT_EQ(counters[PortCounter::kLinkDowned], 2u);
  EXPECT_EQ(counters[PortCounter::kPausesSent], std::nullopt) << "its interface has them";
}

TEST(PortCounters, OfSoftware) {
  const Sysfs sysfs;
  sysfs.counters("rxe0/ports/1/hw_counters", {{"sent_pkts", 100},
                                              {"completer_retry_err", 3},
                                              {"rcvd_seq_err", 2},
                                              {"out_of_seq_request", 4},
                                              {"rcvd_rnr_err", 5},
                                              {"send_rnr_err", 50},
                                              {"retry_exceeded_err", 1},
                                              {"link_downed", 6}});
  const PortCounters counters = read_port_counters({"rxe0", 1}, sysfs.path());
  EXPECT_EQ(counters[PortCounter::kRetransmits], 3u) << "a NAK's retry is one of them";
  EXPECT_EQ(counters[PortCounter::kOutOfSequence], 4u);
  EXPECT_EQ(counters[PortCounter::kRnr], 5u);
  EXPECT_EQ(counters[PortCounter::kErrors], 1u);
  EXPECT_EQ(counters[PortCounter::kLinkDowned], 6u);
  EXPECT_EQ(counters[PortCounter::kCnpSent], std::nullopt) << "not counted is not 0";
}

TEST(PortCounters, OfOthers) {
  const Sysfs sysfs;
  sysfs.counters(
      "bnxt_re0/ports/1/hw_counters",
      {{"to_retransmits", 1}, {"seq_err_naks_rcvd", 2}, {"rx_cnp_pkts", 3}, {"oos_drop_count", 4}});
  sysfs.counters("irdma0/ports/1/hw_counters", {{"RetransSegs", 5}, {"cnpHandled", 6}});
  sysfs.counters("efa_0/ports/1/hw_counters", {{"retrans_pkts", 7}, {"rx_drops", 8}});
  const auto of = [&](const char* device) { return read_port_counters({device, 1}, sysfs.path()); };
  EXPECT_EQ(of("bnxt_re0")[PortCounter::kRetransmits], 3u);
  EXPECT_EQ(of("bnxt_re0")[PortCounter::kCnpHandled], 3u);
  EXPECT_EQ(of("bnxt_re0")[PortCounter::kOutOfSequence], 4u);
  EXPECT_EQ(of("irdma0")[PortCounter::kRetransmits], 5u);
  EXPECT_EQ(of("irdma0")[PortCounter::kCnpHandled], 6u);
  EXPECT_EQ(of("efa_0")[PortCounter::kRetransmits], 7u);
  EXPECT_EQ(of("efa_0")[PortCounter::kErrors], 8u);
}

TEST(PortCounters, WhatIsInBothFoldersOrMakesNoSenseIsNotAdded) {
  const Sysfs sysfs;
  sysfs.counters("rxe0/ports/1/hw_counters", {{"link_downed", 3}});
  sysfs.counters("rxe0/ports/1/counters", {{"link_downed", 3}});
  sysfs.file("rxe0/ports/1/counters/symbol_error", "N/A (no PMA)");
  const PortCounters counters = read_port_counters({"rxe0", 1}, sysfs.path());
  EXPECT_EQ(counters[PortCounter::kLinkDowned], 3u);
  EXPECT_EQ(counters[PortCounter::kErrors], std::nullopt);
  EXPECT_FALSE(read_port_counters({"rxe1", 1}, sysfs.path()).any());
}

TEST(PortCounters, PortsAndTheirInterfaces) {
  const Sysfs sysfs;
  sysfs.file("mlx5_1/ports/2/state", "4: ACTIVE");
  sysfs.file("mlx5_1/ports/1/gid_attrs/ndevs/0", "");
  sysfs.file("mlx5_1/ports/1/gid_attrs/ndevs/1", "eth7");
  sysfs.file("mlx5_0/ports/1/state", "1: DOWN");
  EXPECT_THAT(list_rdma_ports(sysfs.path()),
              ElementsAre(PortId{"mlx5_0", 1}, PortId{"mlx5_1", 1}, PortId{"mlx5_1", 2}));
  EXPECT_EQ(interface_of({"mlx5_1", 1}, sysfs.path()), "eth7");
  EXPECT_EQ(interface_of({"mlx5_0", 1}, sysfs.path()), "");
  EXPECT_THAT(list_rdma_ports(sysfs.path() + "/none"), IsEmpty());
}

TEST(PortCounters, PausesAreOfTheInterface) {
  PortCounters counters;
  add_pauses({{"rx_packets", 9}, {"tx_errors", 1}}, &counters);
  EXPECT_FALSE(counters.any());
  // mlx5 with PFC of two priorities, which are among all pauses or are not.
  add_pauses({{"rx_pause_ctrl_phy", 3},
              {"tx_pause_ctrl_phy", 50},
              {"rx_prio3_pause", 4},
              {"rx_prio4_pause", 5},
              {"rx_prio3_pause_duration", 1000},
              {"tx_prio3_pause", 6}},
             &counters);
  EXPECT_EQ(counters[PortCounter::kPausesReceived], 9u);
  EXPECT_EQ(counters[PortCounter::kPausesSent], 50u);
  add_pauses({{"rx_pfc_ena_frames_pri3", 2}, {"tx_pause_frames", 0}}, &counters);
  EXPECT_EQ(counters[PortCounter::kPausesReceived], 2u);
  EXPECT_EQ(counters[PortCounter::kPausesSent], 0u);
}

TEST(PortCounters, AnInterfaceThatIsNotThereHasNoStatistics) {
  EXPECT_THAT(ask_net_statistics("no-such-thing"), IsEmpty());
  EXPECT_THAT(ask_net_statistics(std::string(100, 'x')), IsEmpty());
  ask_net_statistics("lo");  // may have some
}

TEST(PortCounters, HaveNames) {
  for (size_t i = 0; i < kPortCounters; ++i) {
    const auto counter = static_cast<PortCounter>(i);
    EXPECT_EQ(counter_named(name_of(counter)), counter);
  }
  EXPECT_EQ(counter_named("luck"), std::nullopt);
}

TEST(PortCounters, AreRecorded) {
  Answers answers;
  answers.host = "node";
  RdmaDevice& device = answers.rdma.emplace_back();
  device.name = "mlx5_0";
  device.ports.resize(2);
  device.ports[0].number = 1;
  device.ports[0].counters[PortCounter::kRetransmits] = 0;
  device.ports[0].counters[PortCounter::kPausesReceived] = uint64_t{1} << 60;
  device.ports[1].number = 2;
  const auto again = parse_answers(yaml_of(answers));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(*again == answers) << yaml_of(answers);
  const auto odd = parse_answers(
      "gradring-machine: 1\nrdma:\n  - name: a\n    ports:\n      - counters: {rnr: -1}\n");
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().message(),
            "line 5: \"rnr\" is not a number from 0 to 18446744073709551615");
}

}  // namespace
}  // namespace gradring::machine
