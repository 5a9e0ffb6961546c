#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// As the daemons answer: the one that was asked comes first.
TEST(ShowRates, OfManyNodesWhatCanBeReadAndAllOfItForScripts) {
  std::vector<LaneRate> rates;
  for (const int from : {3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
    for (int to = 0; to < 20; ++to) {
      if (to == from) continue;
      const bool next = to == (from + 1) % 20;
      rates.push_back({"n" + std::to_string(from), "n" + std::to_string(to), "eth0",
                       from == 7 && to == 2 ? "lost" : "up", next ? 125e6 : 0.0});
    }
  }
  const Answer answer = show_rates(rates, 2, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth"), document_of(answer)), "");
  EXPECT_EQ(answer.json["lanes"].size(), 380u);
  EXPECT_EQ(answer.json["lanes"][0]["from"], "n0");
  EXPECT_THAT(answer.text, HasSubstr("\nn0    n1   eth0  up      1.000\nn1    n2 "));
  EXPECT_THAT(answer.text, HasSubstr("\nn7    n2   eth0  lost    0.000\nn7    n8 "));
  EXPECT_THAT(answer.text, HasSubstr("\nn19   n0   eth0  up      1.000\n359 lanes that are up "));
  EXPECT_EQ(std::count(answer.text.begin(), answer.text.end(), '\n'), 46);
  EXPECT_THAT(answer.text, HasSubstr("from \\ to     n0 ")) << "of 20 there is room for";
  rates.push_back({"a-node-with-a-name", "n1", "eth0", "up", 1});
  EXPECT_THAT(show_rates(rates, 2, Style{}).text, HasSubstr("the matrix of 21 nodes is too wide"));
  for (LaneRate& rate : rates) rate.sent_bytes_per_second = 0;
  EXPECT_THAT(show_rates(rates, 2, Style{}).text, HasSubstr("\n380 lanes that are up carried"));
}

TEST(ShowRates, ASlowLinkIsAProblem) {
  const std::vector<LaneRate> rates = {{"a", "b", "eth0", "up", 20e6, 100e6},
                                       {"b", "c", "eth0", "up", 20e6, 20e6},
                                       {"c", "a", "eth0", "up", 20e6, 110e6}};
  const Answer answer = show_rates(rates, 2, Style{});
  EXPECT_EQ(offence(schema_of("bandwidth"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, ElementsAre("slow link: b -> c by eth0 reaches 0.160 Gbit/s, the "
                                           "median of all is 0.800"));
}

}  // namespace
}  // namespace gradring::tools
