#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/tools/schema.h"
#include "tools/ctl/probe/cells.h"
#include "tools/ctl/probe/show.h"

namespace gradring::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ProbeCell bandwidth(const std::string& from, const std::string& to, double gigabits,
                    double of_jobs = 0, uint32_t lane = 0) {
  ProbeCell cell{.from = from, .to = to, .lane = lane};
  cell.device = "eth" + std::to_string(lane) + " (TCP)";
  wire::ProbeReport report;
  report.set_message_bytes(256 << 10);
  report.set_nanoseconds(2'000'000'000);
  report.set_bytes(static_cast<uint64_t>(std::llround(gigabits * 2e9 / 8)));
  report.set_jobs_bytes(static_cast<uint64_t>(std::llround(of_jobs * 2e9 / 8)));
  cell.figures = report;
  return cell;
}

ProbeCell latency(const std::string& from, const std::string& to, uint64_t median_ns) {
  ProbeCell cell{.from = from, .to = to};
  wire::ProbeReport report;
  report.set_round_trips(1000);
  report.set_min_ns(median_ns / 2);
  report.set_median_ns(median_ns);
  report.set_p99_ns(median_ns * 3);
  cell.figures = report;
  return cell;
}

ProbeMatrix three_nodes() {
  ProbeMatrix matrix;
  matrix.seconds = 1;
  matrix.nodes = {"a", "b", "c"};
  for (const std::string& from : matrix.nodes) {
    for (const std::string& to : matrix.nodes) {
      if (from != to) matrix.cells.push_back(bandwidth(from, to, from == "c" ? 0.191 : 0.941));
    }
  }
  matrix.cells[4] = bandwidth("c", "a", 0.19);
  return matrix;
}

TEST(Probes, TheWorstIsMarkedAndWhoeverIsSlowIsNamed) {
  const Answer answer = show_probes(three_nodes(), Style{});
  EXPECT_EQ(offence(schema_of("bandwidth-matrix"), document_of(answer)), "");
  EXPECT_THAT(answer.text, HasSubstr("from \\ to      a       b       c\n"
                                     "a              -   0.941   0.941\n"
                                     "b          0.941       -   0.941\n"
                                     "c          0.190*  0.191       -\n"));
  EXPECT_THAT(answer.text, HasSubstr("min 0.190, median 0.941, max 0.941 Gbit/s\n"
                                     "* worst: c to a\n"));
  EXPECT_THAT(answer.problems,
              ElementsAre("c to a gets 0.190 Gbit/s, which is 20 % of the median",
                          "c to b gets 0.191 Gbit/s, which is 20 % of the median"));
  EXPECT_EQ(answer.json["worst"]["from"], "c");
  EXPECT_EQ(answer.json["worst"]["to"], "a");
  EXPECT_NEAR(answer.json["median_bytes_per_second"], 0.941e9 / 8, 1);
  EXPECT_THAT(show_probes(three_nodes(), Style{true}).text, HasSubstr("\x1b[31m0.190*\x1b[0m"));
}

TEST(Probes, OfAKnownLinkTheShareIsTold) {
  ProbeMatrix matrix;
  matrix.nodes = {"a", "b"};
  matrix.cells = {bandwidth("a", "b", 90), bandwidth("b", "a", 94, 2)};
  matrix.cells[0].link_bytes_per_second = matrix.cells[1].link_bytes_per_second = 100e9 / 8;
  const Answer answer = show_probes(matrix, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth-matrix"), document_of(answer)), "");
  EXPECT_THAT(answer.text, HasSubstr("90.000  90 %*"));
  EXPECT_THAT(answer.text, HasSubstr("96.000  96 % ")) << "with what jobs got";
  EXPECT_NEAR(answer.json["cells"][1]["jobs_bytes_per_second"], 0.25e9, 1);
  EXPECT_NEAR(answer.json["cells"][1]["share_of_link"], 0.96, 1e-9);
  EXPECT_THAT(answer.problems, IsEmpty());
}

TEST(Probes, EachLaneHasAMatrix) {
  ProbeMatrix matrix;
  matrix.nodes = {"a", "b"};
  matrix.cells = {bandwidth("a", "b", 10), bandwidth("a", "b", 5, 0, 1), bandwidth("b", "a", 10),
                  bandwidth("b", "a", 10, 0, 1)};
  const Answer answer = show_probes(matrix, Style{});
  EXPECT_THAT(answer.text, HasSubstr("\nlane 1\nfrom \\ to       a       b\n"
                                     "a               -   5.000*\n"));
  EXPECT_THAT(answer.problems, ElementsAre("a to b by lane 1 (eth1 (TCP)) gets 5.000 Gbit/s, "
                                           "which is 50 % of the median"));
}

TEST(Probes, WhatWasNotMeasuredIsAProblemAndNoZero) {
  ProbeMatrix matrix;
  matrix.nodes = {"a", "b"};
  matrix.cells = {bandwidth("a", "b", 1), {.from = "b", .to = "a", .fault = "the lane is lost"}};
  const Answer answer = show_probes(matrix, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth-matrix"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, ElementsAre("b to a was not measured: the lane is lost"));
  EXPECT_THAT(answer.text, HasSubstr("min 1.000, median 1.000, max 1.000"));
  matrix.cells.erase(matrix.cells.begin());
  EXPECT_EQ(offence(schema_of("bandwidth-matrix"), document_of(show_probes(matrix, Style{}))), "");
  EXPECT_FALSE(spread_of(matrix));
}

TEST(Probes, LatencyHasMinMedianAndTail) {
  ProbeMatrix matrix;
  matrix.latency = true;
  matrix.nodes = {"a", "b"};
  matrix.cells = {latency("a", "b", 40'000), latency("b", "a", 80'000)};
  const Answer answer = show_probes(matrix, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth-matrix"), document_of(answer)), "");
  EXPECT_THAT(answer.text, HasSubstr("20.0 / 40.0 / 120.0\n"));
  EXPECT_THAT(answer.text, HasSubstr("40.0 / 80.0 / 240.0*"));
  EXPECT_THAT(answer.text, HasSubstr("\nmedians: min 40.0, median 60.0, max 80.0 us\n"))
      << "not of all three figures of a cell";
  EXPECT_THAT(answer.text, HasSubstr("* worst: b to a\n"));
  EXPECT_THAT(answer.problems, IsEmpty());
  const std::string picture = draw_probes(matrix);  // its cells have the medians alone
  EXPECT_THAT(picture, HasSubstr(">medians: min 40.0, median 60.0, max 80.0 us<"));
  EXPECT_THAT(picture, HasSubstr(">there and back in us, medians, "));
}

TEST(Probes, CellsAreAllWaysThatStand) {
  ProbedNode a{.node = "a"}, b{.node = "b"}, c{.node = "c"};
  const auto meet = [](ProbedNode* node, const ProbedNode& peer, const std::string& lane) {
    wire::PeerReport* report = node->peers.add_peers();
    report->set_node(peer.node);
    report->set_state("up");
    report->add_lanes()->set_state(lane);
  };
  meet(&a, b, "up");
  meet(&b, a, "lost");
  meet(&a, c, "up");
  meet(&c, a, "up");
  wire::NicReport* nic = a.topology.mutable_machine()->add_nics();
  nic->set_rate_bps(50'000'000'000);
  nic->add_interfaces()->set_name("eth0");
  nic->mutable_interfaces(0)->set_rate_bps(25'000'000'000);
  wire::LaneChoice* lane = a.topology.add_lanes();
  lane->set_device("eth0 (TCP)");
  EXPECT_EQ(lane_rate(a.topology, 0), 25e9 / 8);
  EXPECT_EQ(lane_rate(a.topology, 1), 0);
  lane->set_nic(-1);
  EXPECT_EQ(lane_rate(a.topology, 0), 0);
  lane->set_nic(0);

  const ProbeMatrix matrix = cells_of({c, a, b});
  EXPECT_THAT(matrix.nodes, ElementsAre("a", "b", "c"));
  EXPECT_EQ(matrix.cells.size(), 6u);
  EXPECT_EQ(matrix.find("a", "b", 0)->fault, "");
  EXPECT_EQ(matrix.find("a", "b", 0)->link_bytes_per_second, 25e9 / 8) << "b's is not known";
  EXPECT_EQ(matrix.find("b", "a", 0)->fault, "the lane is lost");
  EXPECT_EQ(matrix.find("b", "c", 0)->fault, "they are not connected");
}

TEST(Probes, AreDrawnWhateverTheyAre) {
  const std::string svg = draw_probes(three_nodes());
  EXPECT_THAT(svg, HasSubstr("class=\"worst\""));
  EXPECT_THAT(svg, HasSubstr("c to a, 0.190 Gbit/s"));
  EXPECT_THAT(svg, HasSubstr(">0.94<"));

  ProbeMatrix many;
  for (int i = 0; i < 64; ++i) many.nodes.push_back("<node " + std::to_string(i) + ">");
  for (const auto& from : many.nodes) {
    for (const auto& to : many.nodes) {
      if (from != to) many.cells.push_back(bandwidth(from, to, 100));
    }
  }
  EXPECT_THAT(draw_probes(many), Not(HasSubstr("<node")));
  EXPECT_THAT(draw_probes(ProbeMatrix{}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace gradring::tools
