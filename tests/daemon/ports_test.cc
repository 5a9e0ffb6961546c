// What becomes of news of ports: which lanes it means, and what people are shown.
#include "daemon/control/hardware/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::daemon {
namespace {

using machine::PortChange;
using machine::PortId;
using testing::ElementsAre;
using testing::IsEmpty;

machine::PortNews news(const PortId& port, PortChange change, int64_t at = 5 * core::kSecond) {
  return {port, change, at};
}

TEST(PortsOfLanes, AreReadFromWhatTheTransportCallsThem) {
  EXPECT_THAT(ports_of_lane("mlx5_0:1 (RDMA)"), ElementsAre(PortId{"mlx5_0", 1}));
  EXPECT_THAT(ports_of_lane("mlx5_0:1, rxe0:2 (RDMA)"),
              ElementsAre(PortId{"mlx5_0", 1}, PortId{"rxe0", 2}));
  EXPECT_THAT(ports_of_lane("eth0 (TCP)"), ElementsAre(PortId{"eth0", 0}));
  EXPECT_THAT(ports_of_lane("eth0:1 (TCP)"), ElementsAre(PortId{"eth0:1", 0}));
  EXPECT_THAT(ports_of_lane(""), IsEmpty());
  EXPECT_THAT(ports_of_lanes({"eth1 (TCP)", "eth0 (TCP)", "eth1 (TCP)"}),
              ElementsAre(PortId{"eth0", 0}, PortId{"eth1", 0}));
  EXPECT_EQ(name_of(PortId{"mlx5_0", 1}), "mlx5_0:1");
  EXPECT_EQ(name_of(PortId{"eth0", 0}), "eth0");
}

TEST(Ports, ALaneGoesDownAndComesBackWithItsPort) {
  Ports ports({"rxe0:1 (RDMA)", "rxe1:1 (RDMA)"}, nullptr);
  EXPECT_THAT(ports.heard(news({"rxe1", 1}, PortChange::kDown)),
              ElementsAre(Ports::LaneChange{1, true, "its port rxe1:1 is down"}));
  EXPECT_THAT(ports.heard(news({"rxe1", 1}, PortChange::kGone)), IsEmpty()) << "it is already";
  EXPECT_THAT(ports.heard(news({"rxe1", 1}, PortChange::kActive)),
              ElementsAre(Ports::LaneChange{1, false, ""}));
  EXPECT_THAT(ports.heard(news({"rxe7", 1}, PortChange::kDown)), IsEmpty()) << "none of ours";
}

TEST(Ports, OtherChangesTakeNoLaneDown) {
  Ports ports({"rxe0:1 (RDMA)"}, nullptr);
  for (const PortChange change : {PortChange::kAddresses, PortChange::kLid,
                                  PortChange::kSubnetManager, PortChange::kReregistration}) {
    EXPECT_THAT(ports.heard(news({"rxe0", 1}, change)), IsEmpty());
  }
}

TEST(Ports, ALaneOverTwoPortsGoesDownWithTheLast) {
  Ports ports({"eth0, eth1 (TCP)"}, nullptr);
  EXPECT_THAT(ports.heard(news({"eth0", 0}, PortChange::kDown)), IsEmpty());
  EXPECT_THAT(ports.heard(news({"eth1", 0}, PortChange::kGone)),
              ElementsAre(Ports::LaneChange{0, true, "its port eth1 is gone"}));
  EXPECT_THAT(ports.heard(news({"eth0", 0}, PortChange::kActive)),
              ElementsAre(Ports::LaneChange{0, false, ""}));
}

TEST(Ports, AreShown) {
  Ports ports({"rxe0:1 (RDMA)"}, nullptr);
  wire::TopologyReport report;
  report.add_lanes()->set_device("rxe0:1 (RDMA)");
  ports.add_to(&report, 9 * core::kSecond);
  ASSERT_EQ(report.lanes(0).ports_size(), 1);
  EXPECT_EQ(report.lanes(0).ports(0).state(), "active");
  EXPECT_EQ(report.lanes(0).ports(0).last_change(), "");

  ports.heard(news({"rxe0", 1}, PortChange::kDown));
  ports.heard(news({"rxe0", 1}, PortChange::kAddresses, 7 * core::kSecond));
  report.mutable_lanes(0)->clear_ports();
  ports.add_to(&report, 9 * core::kSecond);
  const wire::PortReport& port = report.lanes(0).ports(0);
  EXPECT_EQ(port.port(), "rxe0:1");
  EXPECT_EQ(port.state(), "down");
  EXPECT_EQ(port.state_ms(), 4000u);
  EXPECT_EQ(port.last_change(), "addresses");
  EXPECT_EQ(port.last_change_ms(), 2000u);
  EXPECT_EQ(port.changes(), 2u);

  wire::PeersReport peers;
  peers.add_peers()->add_lanes();
  ports.add_to(&peers);
  EXPECT_EQ(peers.peers(0).lanes(0).port_state(), "down");
  EXPECT_FALSE(peers.peers(0).lanes(0).port_counted());

  const auto series = ports.series();
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].device, "rxe0");
  EXPECT_EQ(series[0].port, 1u);
  EXPECT_FALSE(series[0].active);
  EXPECT_THAT(series[0].changes, testing::Contains(testing::Pair("down", 1u)));
}

}  // namespace
}  // namespace gradring::daemon
