// What gradringctl doctor finds between nodes, and how it tells all of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/doctor_facts.h"
#include "tests/tools/schema.h"
#include "tools/ctl/doctor/gather.h"
#include "tools/ctl/doctor/show.h"

namespace gradring::tools::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DoctorPeers, WhoIsNotUpIsToldWithWhatToTry) {
  Facts facts = healthy_facts();
  wire::PeerReport* peer = facts.nodes[0].peers.mutable_peers(0);
  peer->set_state("lost");
  peer->set_reason("connection refused");
  const Finding found = finding_of(check_peers(facts), "peer b");
  EXPECT_EQ(found.level, Level::kFail);
  EXPECT_EQ(found.found, "lost: connection refused");
  EXPECT_THAT(found.remedy, HasSubstr("nc -vz b.example 7300"));
  EXPECT_THAT(found.remedy, HasSubstr("open, see whether that daemon is stopped"));
}

TEST(DoctorPeers, ThatSomebodyStoppedOneIsNoFailure) {
  Facts facts = healthy_facts();
  facts.nodes[0].peers.mutable_peers(0)->set_state("stopped");
  const Finding found = finding_of(check_peers(facts), "peer b");
  EXPECT_EQ(found.level, Level::kWarn);
  EXPECT_THAT(found.remedy, HasSubstr("start gradringd there"));
}

TEST(DoctorPeers, OfWhoIsConnectedTheControlPortIsNotDoubted) {
  Facts facts = healthy_facts();
  wire::PeerReport* peer = facts.nodes[0].peers.mutable_peers(0);
  peer->set_state("suspect");
  peer->set_reason("nothing came by the data network");
  const std::string remedy = finding_of(check_peers(facts), "peer b").remedy;
  EXPECT_THAT(remedy, HasSubstr("data ports"));
  EXPECT_THAT(remedy, Not(HasSubstr("nc -vz")));
}

TEST(DoctorPeers, NothingIsSaidOfNodesThatCouldNotBeAsked) {
  Facts facts = healthy_facts();
  EXPECT_EQ(finding_of(check_peers(facts), "versions").found, "0.1.0 on all nodes");
  facts.nodes[2].fault = "node c did not answer within 2 s";
  Findings findings = check_peers(facts);
  EXPECT_EQ(finding_of(findings, "versions").found, "0.1.0 on the 2 nodes that answered");
  EXPECT_EQ(finding_of(findings, "settings").found,
            "2 settings alike on the 2 nodes that answered");
  EXPECT_THAT(finding_of(findings, "clocks").found, HasSubstr("apart on the 2 nodes"));
  EXPECT_THAT(finding_of(check_links(facts), "lanes").found, HasSubstr("between 2 nodes"));
  facts.nodes.resize(1);
  for (wire::PeerReport& peer : *facts.nodes[0].peers.mutable_peers()) {
    peer.set_state("refused");
    peer.clear_lanes();
  }
  findings = check_peers(facts);
  for (Finding& one : check_links(facts)) findings.push_back(std::move(one));
  for (const char* check : {"versions", "settings", "clocks", "lanes"}) {
    EXPECT_EQ(finding_of(findings, check).level, Level::kSkip) << check;
    EXPECT_EQ(finding_of(findings, check).found, "no other node answered") << check;
  }
}

// Both are content, and a job on both waits for ever.
TEST(DoctorPeers, NodesThatDoNotKnowEachOther) {
  Facts facts = healthy_facts();
  EXPECT_EQ(finding_of(check_peers(facts), "peer lists").check, "");
  facts.nodes[1].peers.mutable_peers()->DeleteSubrange(1, 1);  // of b: c
  facts.nodes[2].peers.mutable_peers()->DeleteSubrange(1, 1);
  const Finding found = finding_of(check_peers(facts), "peer lists");
  EXPECT_EQ(found.level, Level::kFail);
  EXPECT_EQ(found.found, "not each other's peers: b and c");
  EXPECT_THAT(found.remedy, HasSubstr("never forms"));
  Facts at_c = facts;  // which can ask a alone, and hears of b from it
  at_c.nodes = {facts.nodes[2], facts.nodes[0]};
  EXPECT_EQ(finding_of(check_peers(at_c), "peer lists").found, "not each other's peers: b and c");
  // It may be that one, by an address at which nobody answered yet.
  wire::PeerReport* unknown = facts.nodes[1].peers.add_peers();
  unknown->set_address("c.example:7300");
  unknown->set_state("connecting");
  EXPECT_EQ(finding_of(check_peers(facts), "peer lists").found, "not each other's peers: b and c")
      << "c has no such peer";
  *facts.nodes[2].peers.add_peers() = *unknown;
  EXPECT_EQ(finding_of(check_peers(facts), "peer lists").check, "");
}

// This node sees no fault, and a job on all three ends again and again.
TEST(DoctorPeers, TwoOthersThatHaveLostEachOther) {
  Facts facts = healthy_facts();
  for (const int one : {1, 2}) {
    wire::PeerReport* other = facts.nodes[one].peers.mutable_peers(1);
    other->set_state("lost");
    other->set_reason("silent for 3.0 s");
  }
  Finding found = finding_of(check_peers(facts), "b and c");
  EXPECT_EQ(found.level, Level::kFail);
  EXPECT_EQ(found.found, "to b node c is lost: silent for 3.0 s, and this node reaches both");
  EXPECT_THAT(found.remedy, HasSubstr("between the two"));
  facts.nodes[1].peers.mutable_peers(1)->set_state("up");
  EXPECT_THAT(finding_of(check_peers(facts), "b and c").found, HasSubstr("to c node b is lost"));
  wire::PeerReport* own = facts.nodes[0].peers.mutable_peers(0);  // that it is lost here is told
  own->set_state("lost");
  EXPECT_EQ(finding_of(check_peers(facts), "b and c").check, "");
}

// Packets get through one way alone.
TEST(DoctorPeers, OneToWhichThisNodeIsSuspect) {
  Facts facts = healthy_facts();
  facts.nodes[2].peers.mutable_peers(0)->set_state("suspect");
  EXPECT_THAT(finding_of(check_peers(facts), "a and c").found, HasSubstr("to c node a is suspect"));
}

TEST(DoctorPeers, NodesThatDiffer) {
  Facts facts = healthy_facts();
  facts.nodes[1].status.set_version("0.2.0");
  facts.nodes[2].status.mutable_settings(0)->set_value("off");
  facts.nodes[2].status.mutable_settings(1)->set_value("1500");
  const Findings findings = check_peers(facts);
  EXPECT_EQ(finding_of(findings, "versions").found, "0.1.0 on a, c; 0.2.0 on b");
  EXPECT_EQ(finding_of(findings, "checksum").found, "off on c; on on a, b");
  EXPECT_EQ(finding_of(findings, "mtu of lane 0").level, Level::kWarn);
  EXPECT_EQ(finding_of(findings, "port").check, "");
  EXPECT_THAT(finding_of(findings, "mtu of lane 0").remedy, HasSubstr("vanish"));
}

TEST(DoctorPeers, AddressesOfCardsThatDoNotMeet) {
  Facts facts = healthy_facts();
  for (NodeFacts& node : facts.nodes) {
    wire::Setting* setting = node.status.add_settings();
    setting->set_name("addresses of lane 0");
    setting->set_value(node.node == "b" ? "RoCE v2, IPv6" : "RoCE v2, IPv4");
  }
  const Finding found = finding_of(check_peers(facts), "addresses of lane 0");
  EXPECT_EQ(found.found, "RoCE v2, IPv4 on a, c; RoCE v2, IPv6 on b");
  EXPECT_THAT(found.remedy, HasSubstr("rdma-gid-index"));
}

TEST(DoctorPeers, PortsThatDifferOnMachinesThatDiffer) {
  Facts facts = healthy_facts();
  facts.nodes[0].status.set_listen("10.0.0.1:7300");
  facts.nodes[1].status.set_listen("10.0.0.2:7301");
  EXPECT_EQ(finding_of(check_peers(facts), "port").found, "7300 on a; 7301 on b");
  facts.nodes[1].status.set_listen("10.0.0.1:7301");
  EXPECT_EQ(finding_of(check_peers(facts), "port").check, "");
}

TEST(DoctorPeers, ClocksThatAreApart) {
  Facts facts = healthy_facts();
  facts.nodes[2].clock_ahead_ns = -90'000'000'000;
  EXPECT_EQ(finding_of(check_peers(facts), "clocks").found, "c is 90.0 s behind");
  // Within what the comparison can tell.
  facts.nodes[2].clock_ahead_ns = 2'000'000'000;
  facts.nodes[2].round_trip_ns = 3'000'000'000;
  EXPECT_EQ(finding_of(check_peers(facts), "clocks").level, Level::kOk);
}

TEST(DoctorPeers, WhoIsSilentAndWhoIsAlone) {
  Facts facts = healthy_facts();
  facts.nodes[1].fault = "node b did not answer within 2 s";
  EXPECT_EQ(finding_of(check_peers(facts), "node b").level, Level::kWarn);
  facts.nodes.resize(1);
  facts.nodes[0].peers.clear_peers();
  EXPECT_EQ(finding_of(check_peers(facts), "peers").level, Level::kSkip);
  EXPECT_THAT(check_links(facts), IsEmpty());
}

TEST(DoctorLinks, FewerLanes) {
  Facts facts = healthy_facts();
  wire::LaneReport* lane = facts.nodes[1].peers.mutable_peers(0)->add_lanes();
  lane->set_device("eth1 (TCP)");
  lane->set_state("lost");
  lane->set_reason("silent for 3.0 s");
  const Findings findings = check_links(facts);
  EXPECT_EQ(finding_of(findings, "lanes b -> a").level, Level::kFail);
  EXPECT_EQ(finding_of(findings, "lanes b -> a").found,
            "1 of 2 lanes, eth1 (TCP) is lost: silent for 3.0 s");
  EXPECT_EQ(finding_of(findings, "lanes a -> b").level, Level::kWarn);
}

TEST(DoctorLinks, ARoundTripThatIsFarLonger) {
  Facts facts = healthy_facts();
  facts.nodes.push_back(facts.nodes[2]);
  facts.nodes.back().node = "d";
  facts.nodes.back().round_trip_ns = 60'000'000;
  EXPECT_EQ(finding_of(check_links(facts), "round trip d").found,
            "60.0 ms, the median of all is 0.4 ms");
  facts.nodes.back().round_trip_ns = 4'000'000;  // a busy machine's
  EXPECT_EQ(finding_of(check_links(facts), "round trips").level, Level::kOk);
}

TEST(DoctorLinks, ASlowLink) {
  Facts facts = healthy_facts();
  facts.rates[1].path_bytes_per_second = 0.5e9;
  const Finding slow = finding_of(check_links(facts), "slow link");
  EXPECT_EQ(slow.level, Level::kFail);
  EXPECT_EQ(slow.found, "b -> c by eth0 (TCP) reaches 4.000 Gbit/s, the median of all is 24.000");
  for (LaneRate& rate : facts.rates) rate.path_bytes_per_second = 0;
  EXPECT_EQ(finding_of(check_links(facts), "slow link").level, Level::kSkip);
  for (LaneRate& rate : facts.rates) rate.sent_bytes_per_second = 0;
  EXPECT_THAT(finding_of(check_links(facts), "slow link").found, HasSubstr("no gradients"));
}

TEST(SlowLinks, AreThoseFarBelowTheMedianOfLanesThatCarry) {
  std::vector<LaneRate> rates = {{"a", "b", "eth0", "up", 100, 1000},
                                 {"b", "c", "eth0", "up", 100, 900},
                                 {"c", "d", "eth0", "up", 100, 449},
                                 {"d", "a", "eth0", "up", 100, 1100},
                                 {"a", "c", "eth0", "up", 9, 1}};  // hardly used: not measured
  const auto slow = slow_links(rates);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].lane.from, "c");
  rates[3].path_bytes_per_second = 100;  // then c's waits for acknowledgements over d's, or may
  ASSERT_EQ(slow_links(rates).size(), 1u);
  EXPECT_EQ(slow_links(rates)[0].lane.from, "d");
  rates[3].path_bytes_per_second = 1100;
  rates[2].path_bytes_per_second = 500;
  EXPECT_THAT(slow_links(rates), IsEmpty());
  rates.resize(2);
  rates[0].path_bytes_per_second = 1;
  EXPECT_THAT(slow_links(rates), IsEmpty());
}

// What TCP says of ways that only small sums go by differs a hundredfold on healthy links.
TEST(SlowLinks, AreNoneThatCarryLittleOfWhatTheyCould) {
  std::vector<LaneRate> rates = {{"a", "b", "eth0", "up", 5e6, 5e9},
                                 {"b", "c", "eth0", "up", 5e6, 4e9},
                                 {"c", "a", "eth0", "up", 5e6, 0.16e9}};
  EXPECT_THAT(slow_links(rates), IsEmpty());
  for (LaneRate& rate : rates) rate.sent_bytes_per_second = 0.02e9;
  ASSERT_EQ(slow_links(rates).size(), 1u);
  EXPECT_EQ(slow_links(rates)[0].lane.from, "c");
}

TEST(ShowDoctor, LinesForPeopleAndTheSameForScripts) {
  Facts facts = healthy_facts();
  facts.net[1].up = false;
  facts.clock.synchronised = false;
  const Answer answer = show(examine(facts), Style{});
  EXPECT_EQ(offence(schema_of("doctor"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, ElementsAre("device eth0: is down"));
  EXPECT_THAT(answer.text, HasSubstr("FAIL  device eth0"));
  EXPECT_THAT(answer.text, HasSubstr("-> ip link set eth0 up"));
  EXPECT_THAT(answer.text, HasSubstr("WARN  clock"));
  EXPECT_EQ(answer.json["fail"], 1);
  EXPECT_EQ(answer.json["warn"], 1);
  EXPECT_THAT(show(examine(facts), Style{true}).text, HasSubstr("\x1b[31mFAIL\x1b[0m"));
}

TEST(ShowDoctor, WithoutADaemonTheMachineIsStillLookedAt) {
  Facts facts;
  facts.runtime_dir = "/nowhere";
  facts.daemon_fault = "no gradringd at /nowhere/control.sock";
  gather_host("", 0, &facts);
  const Answer answer = show(examine(facts), Style{});
  EXPECT_EQ(offence(schema_of("doctor"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, testing::Contains(HasSubstr("daemon: no gradringd")));
  EXPECT_THAT(answer.text, HasSubstr("memlock"));
}

TEST(Acs, IsFoundInTheListOfCapabilities) {
  std::string config(4096, '\0');
  EXPECT_EQ(redirects(config.substr(0, 64)), std::nullopt);  // all that others than root see
  EXPECT_EQ(redirects(config), false);
  config[0x100] = 1;  // another capability, the next at 0x140
  config[0x103] = 0x14;
  config[0x140] = 13;
  EXPECT_EQ(redirects(config), false);
  config[0x146] = 0x04;
  EXPECT_EQ(redirects(config), true);
  config[0x103] = 0x10;  // a list that bites its tail
  EXPECT_EQ(redirects(config), false);
}

}  // namespace
}  // namespace gradring::tools::doctor
