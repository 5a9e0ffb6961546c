#include "daemon/core/obituaries.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "daemon/core/overlay.h"

namespace gradring::core {
namespace {

constexpr Time kPatience = 100 * kMillisecond;

// Nodes that tell one another over the links of an overlay; each hop takes a millisecond.
struct Gossip {
  explicit Gossip(uint32_t count) : overlay(names(count), 64), sent(count), believed(count) {
    for (uint32_t i = 0; i < overlay.count(); ++i) {
      nodes.emplace_back(overlay.name_at(i), boot_of(i), kPatience);
    }
  }
  static std::vector<std::string> names(uint32_t count) {
    std::vector<std::string> all;
    for (uint32_t i = 0; i < count; ++i) all.push_back("n" + std::to_string(10000 + i));
    return all;
  }
  static uint64_t boot_of(uint32_t place) { return 7000 + place; }

  void tell(uint32_t from, const std::vector<Notice>& notices, uint32_t except) {
    if (notices.empty()) return;
    for (const uint32_t link : overlay.links_of(from)) {
      if (link == except || mute.count(link) + mute.count(from) > 0) continue;
      sent[from] += 1;
      under_way.push_back({now + kMillisecond, from, link, notices});
    }
  }
  void lose(uint32_t at, uint32_t node) {
    tell(at, nodes[at].lost(overlay.name_at(node), boot_of(node), false, "closed", now), at);
  }
  void run(Time span) {
    for (const Time end = now + span; now < end; now += kMillisecond) {
      while (!under_way.empty() && under_way.front().at <= now) {
        const Told told = under_way.front();
        under_way.pop_front();
        for (const Notice& notice : told.notices) {
          const bool own = notice.node == overlay.name_at(told.to);
          tell(told.to, nodes[told.to].on_notice(notice, now), own ? told.to : told.from);
        }
      }
      for (uint32_t i = 0; i < nodes.size(); ++i) {
        for (const Notice& notice : nodes[i].tick(now)) believed[i].push_back(notice.node);
      }
    }
  }

  struct Told {
    Time at = 0;
    uint32_t from = 0, to = 0;
    std::vector<Notice> notices;
  };
  Overlay overlay;
  std::vector<Obituaries> nodes;
  std::set<uint32_t> mute;
  std::vector<uint32_t> sent;
  std::vector<std::vector<std::string>> believed;
  std::deque<Told> under_way;
  Time now = 100 * kSecond;
};

TEST(Obituaries, OneDeathReachesAThousandNodesAndCostsEachItsLinks) {
  Gossip town(1024);
  const uint32_t dead = 500;
  town.mute.insert(dead);
  for (const uint32_t link : town.overlay.links_of(dead)) town.lose(link, dead);
  town.run(kPatience + 20 * kMillisecond);
  for (uint32_t i = 0; i < 1024; ++i) {
    if (i == dead) continue;
    ASSERT_EQ(town.believed[i], std::vector<std::string>{town.overlay.name_at(dead)});
    ASSERT_LE(town.sent[i], 19u) << "each tells once";
  }
  EXPECT_TRUE(town.under_way.empty());
}

TEST(Obituaries, ALivingNodeDeniesItsDeathAndNobodyBelievesIt) {
  Gossip town(256);
  const uint32_t accused = 30, accuser = town.overlay.links_of(accused)[0];
  town.lose(accuser, accused);
  town.run(2 * kPatience);
  for (uint32_t i = 0; i < 256; ++i) {
    EXPECT_TRUE(town.believed[i].empty());
    EXPECT_FALSE(town.nodes[i].dead(town.overlay.name_at(accused), Gossip::boot_of(accused)));
    EXPECT_LE(town.sent[i], 2u * 15) << "the word and its denial";
  }
  // When it dies in earnest, that counts.
  town.mute.insert(accused);
  town.lose(accuser, accused);
  town.run(2 * kPatience);
  EXPECT_EQ(town.believed[200].size(), 1u);
}

TEST(Obituaries, AnotherLifeIsAnotherMatter) {
  Obituaries node("a", 1, kPatience);
  ASSERT_EQ(node.on_notice({"b", 70, 0, true, false, "closed"}, 0).size(), 1u);
  EXPECT_EQ(node.tick(kPatience).size(), 1u);
  EXPECT_TRUE(node.dead("b", 70));
  EXPECT_FALSE(node.dead("b", 71));
  EXPECT_TRUE(node.on_notice({"a", 2, 5, true, false, "closed"}, 0).empty()) << "of a former life";
}

TEST(Obituaries, WhoWasHealedHearsOfItAndDenies) {
  Obituaries accuser("a", 1, kPatience), accused("b", 2, kPatience);
  accuser.lost("b", 2, true, "silent for 3.0 s", 0);
  accuser.tick(kPatience);
  const auto told = accuser.greet("b", 2);
  ASSERT_EQ(told.size(), 1u);
  const auto denial = accused.on_notice(told[0], 0);
  ASSERT_EQ(denial.size(), 1u);
  EXPECT_EQ(accuser.on_notice(denial[0], 0).size(), 1u) << "passed on";
  EXPECT_FALSE(accuser.dead("b", 2));
  EXPECT_TRUE(accuser.greet("b", 2).empty());
  EXPECT_TRUE(accused.on_notice(told[0], 0).empty()) << "denied already";
}

TEST(Obituaries, WhoWasCutOffBlamesNobody) {
  Obituaries node("a", 1, kPatience);
  node.lost("b", 2, true, "silent", 0);
  node.on_notice({"c", 3, 0, true, false, "closed"}, 0);
  node.forget_own();
  EXPECT_TRUE(node.greet("b", 2).empty());
  EXPECT_EQ(node.greet("c", 3).size(), 1u);
  EXPECT_EQ(node.tick(kPatience).size(), 1u) << "what others say still stands";
}

TEST(Obituaries, RemembersNoMoreThanAFewLivesOfANode) {
  Obituaries node("a", 1, kPatience);
  for (uint64_t boot = 10; boot < 30; ++boot) {
    node.on_notice({"b", boot, 0, true, false, "closed"}, 0);
    node.tick(kPatience);
  }
  EXPECT_TRUE(node.dead("b", 29));
  EXPECT_FALSE(node.dead("b", 10));
}

// Such a number is nobody's that counts: a broken daemon says it, or one that lies.
TEST(Obituaries, ANumberThatNothingCanFollowBuriesNobodyForGood) {
  constexpr uint64_t kLast = UINT64_MAX;
  for (const uint64_t number : {kLast, kLast - 1, uint64_t{1} << 48, (uint64_t{1} << 48) - 1}) {
    Obituaries accuser("a", 1, kPatience), accused("b", 2, kPatience);
    const Notice lie{"b", 2, number, true, false, "closed"};
    accuser.on_notice(lie, 0);
    for (const Notice& denial : accused.on_notice(lie, 0)) accuser.on_notice(denial, 0);
    accuser.tick(kPatience);
    EXPECT_FALSE(accuser.dead("b", 2)) << number;
    // Nor does it make of a living node one whose word counts less than before.
    for (const Notice& notice : accuser.lost("b", 2, true, "silent", kPatience)) {
      for (const Notice& denial : accused.on_notice(notice, kPatience)) {
        accuser.on_notice(denial, kPatience);
      }
    }
    accuser.tick(3 * kPatience);
    EXPECT_FALSE(accuser.dead("b", 2)) << number;
  }
}

}  // namespace
}  // namespace gradring::core
