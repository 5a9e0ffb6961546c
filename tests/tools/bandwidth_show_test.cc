#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/schema.h"
#include "tools/ctl/bandwidth.h"

namespace gradring::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

SentSample sample(const std::string& node, int64_t seconds, const std::string& peer,
                  const std::vector<uint64_t>& sent) {
  SentSample made{node, {}};
  made.peers.set_counted_at(seconds * 1'000'000'000 + 1);
  wire::PeerReport* report = made.peers.add_peers();
  report->set_node(peer);
  for (const uint64_t bytes : sent) {
    wire::LaneReport* lane = report->add_lanes();
    lane->set_device("eth" + std::to_string(report->lanes_size() - 1));
    lane->set_state("up");
    lane->set_sent_bytes(bytes);
  }
  return made;
}

TEST(Rates, AreWhatWasSentInTheMeantimeByTheSendersClock) {
  const auto rates =
      rates_between({sample("a", 10, "b", {1000, 0}), sample("b", 900, "a", {5, 7})},
                    {sample("a", 14, "b", {9000, 4}), sample("b", 902, "a", {5, 9})});
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_EQ(rates[0].from, "a");
  EXPECT_EQ(rates[0].to, "b");
  EXPECT_EQ(rates[0].device, "eth0");
  EXPECT_EQ(rates[0].sent_bytes_per_second, 2000);
  EXPECT_EQ(rates[1].sent_bytes_per_second, 1);
  EXPECT_EQ(rates[2].sent_bytes_per_second, 0);
  EXPECT_EQ(rates[3].sent_bytes_per_second, 1);
}

TEST(Rates, WhoCountsAnewOrIsNewHasNone) {
  EXPECT_TRUE(rates_between({sample("a", 10, "b", {1000})}, {sample("a", 11, "b", {10})}).empty());
  EXPECT_TRUE(
      rates_between({sample("a", 10, "b", {1000})}, {sample("a", 10, "b", {2000})}).empty());
  EXPECT_TRUE(rates_between({}, {sample("a", 11, "b", {10})}).empty());
  EXPECT_TRUE(rates_between({sample("a", 10, "b", {1})}, {sample("a", 11, "c", {10})}).empty());
}

TEST(ShowRates, WhatPortsCountWhereTheyDo) {
  std::vector<LaneRate> rates = {{"a", "b", "mlx5_0:1 (RDMA)", "up", 125e6, 0, true, 2.5, 12},
                                 {"b", "a", "eth0 (TCP)", "up", 125e6}};
  const Answer answer = show_rates(rates, 2, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth"), document_of(answer)), "");
  EXPECT_THAT(answer.text, HasSubstr("Gbit/s  sent again/s  pauses/s\n"));
  EXPECT_THAT(answer.text, HasSubstr(" 1.000           2.5      12.0\n"));
  EXPECT_THAT(answer.text, HasSubstr(" 1.000             -         -\n"));
  EXPECT_EQ(answer.json["lanes"][0]["retransmits_per_second"], 2.5);
  rates.erase(rates.begin());
  EXPECT_THAT(show_rates(rates, 2, Style{}).text, Not(HasSubstr("pauses")));
}

TEST(ShowRates, AMatrixOfNodesAndARowForEachLane) {
  std::vector<LaneRate> rates = {{"a", "b", "eth0", "up", 125e6},
                                 {"a", "b", "eth1", "up", 62.5e6},
                                 {"b", "a", "eth0", "lost", 0}};
  const Answer answer = show_rates(rates, 2, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth"), document_of(answer)), "");
  EXPECT_THAT(answer.text, HasSubstr("from \\ to      a      b\n"
                                     "a              -  1.500\n"
                                     "b          0.000      -\n"));
  EXPECT_THAT(answer.text, HasSubstr("a     b   eth1  up      0.500\n"));
  EXPECT_THAT(answer.problems, ElementsAre("the lane on eth0 from b to a is lost"));
  EXPECT_THAT(show_rates({}, 2, Style{}).text, HasSubstr("nothing was counted"));
}

TEST(ShowRates, ASlowLinkIsAProblem) {
  const std::vector<LaneRate> rates = {{"a", "b", "eth0", "up", 1e6, 100e6},
                                       {"b", "c", "eth0", "up", 1e6, 20e6},
                                       {"c", "a", "eth0", "up", 1e6, 110e6}};
  const Answer answer = show_rates(rates, 2, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, ElementsAre("slow link: b -> c by eth0 reaches 0.160 Gbit/s, the "
                                           "median of all is 0.800"));
}

}  // namespace
}  // namespace gradring::tools
