#include "daemon/core/overlay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/core/random.h"
#include "daemon/core/relay.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

std::vector<std::string> addresses(uint32_t count) {
  std::vector<std::string> all;
  for (uint32_t i = 0; i < count; ++i) {
    all.push_back("10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ":7300");
  }
  return all;
}

// All nodes with what each knows of its own links.
struct Streets {
  explicit Streets(const Overlay& of) : overlay(of) {
    for (uint32_t place = 0; place < overlay.count(); ++place) {
      relays.emplace_back(&overlay, place);
      for (const uint32_t link : overlay.links_of(place)) relays.back().link_up(link, true);
    }
  }
  void cut(uint32_t a, uint32_t b) {
    relays[a].link_down(b);
    relays[b].link_down(a);
  }
  // How many hops it took; 0: it did not arrive.
  uint32_t send(uint32_t from, uint32_t to, uint32_t attempt = 0) const {
    std::vector<uint32_t> passed;
    uint32_t at = from;
    for (uint32_t hops = 1; hops <= relays[from].hops_max(); ++hops) {
      passed.push_back(Relay::print_of(overlay.name_at(at)));
      const auto next = relays[at].next_hop(to, passed, attempt);
      if (!next) return 0;
      at = *next;
      if (at == to) return hops;
    }
    return 0;
  }
  const Overlay& overlay;
  std::vector<Relay> relays;
};

std::set<uint32_t> reached_from(const Overlay& overlay, uint32_t from,
                                const std::vector<bool>& up) {
  std::set<uint32_t> reached = {from};
  std::vector<uint32_t> next = {from};
  while (!next.empty()) {
    const uint32_t at = next.back();
    next.pop_back();
    for (const uint32_t link : overlay.links_of(at)) {
      if (up[link] && reached.insert(link).second) next.push_back(link);
    }
  }
  return reached;
}

TEST(Overlay, SmallClustersAreAFullMesh) {
  for (const uint32_t count : {1u, 2u, 8u, 65u}) {
    const Overlay overlay(addresses(count), 64);
    EXPECT_TRUE(overlay.full_mesh());
    for (uint32_t a = 0; a < count; ++a) EXPECT_EQ(overlay.links_of(a).size(), count - 1);
  }
  EXPECT_FALSE(Overlay(addresses(66), 64).full_mesh());
}

TEST(Overlay, LinksAreFewAndMutualWhateverTheSize) {
  for (const uint32_t links_max : {4u, 10u, 64u}) {
    for (const uint32_t count : {6u, 7u, 8u, 66u, 100u, 1000u, 1024u, 3000u}) {
      const Overlay overlay(addresses(count), links_max);
      for (uint32_t a = 0; a < count; ++a) {
        const auto links = overlay.links_of(a);
        ASSERT_LE(links.size(), links_max);
        for (const uint32_t b : links) {
          ASSERT_NE(a, b);
          ASSERT_TRUE(overlay.linked(a, b) && overlay.linked(b, a));
        }
        ASSERT_EQ(links.size(),
                  static_cast<size_t>(std::count_if(links.begin(), links.end(), [&](uint32_t b) {
                    return overlay.linked(a, b);
                  })));
      }
    }
  }
}

TEST(Overlay, TheOrderOfTheConfigurationDoesNotMatter) {
  auto some = addresses(300);
  const Overlay first(some, 64);
  std::reverse(some.begin(), some.end());
  some.push_back(some.front());
  const Overlay second(some, 64);
  ASSERT_EQ(first.count(), second.count());
  for (uint32_t a = 0; a < first.count(); ++a) {
    EXPECT_EQ(first.place_of(first.name_at(a)), a);
    EXPECT_EQ(first.name_at(a), second.name_at(a));
    EXPECT_EQ(first.links_of(a), second.links_of(a));
  }
  EXPECT_FALSE(first.place_of("10.9.9.9:7300"));
}

TEST(Overlay, AThousandNodesHaveNineteenLinksAndShortWays) {
  const Overlay overlay(addresses(1024), 64);
  EXPECT_EQ(overlay.links_of(0).size(), 19u);
  EXPECT_LE(overlay.hops_most(), 5u);
  const Streets streets(overlay);
  uint32_t most = 0;
  for (uint32_t from = 0; from < 1024; from += kSanitized ? 10 : 1) {
    for (uint32_t to = 0; to < 1024; ++to) {
      if (from == to) continue;
      const uint32_t hops = streets.send(from, to);
      ASSERT_NE(hops, 0u);
      most = std::max(most, hops);
    }
  }
  EXPECT_LE(most, overlay.hops_most());
}

TEST(Relay, FindsAWayWithATenthOfTheLinksDown) {
  const Overlay overlay(addresses(1024), 64);
  Streets streets(overlay);
  Random random(7);
  for (uint32_t a = 0; a < 1024; ++a) {
    for (const uint32_t b : overlay.links_of(a)) {
      if (a < b && random.below(10) == 0) streets.cut(a, b);
    }
  }
  const uint32_t step = kSanitized ? 30 : 3;
  uint32_t tries = 0;
  uint32_t first_failed = 0;
  for (uint32_t from = 0; from < 1024; from += step) {
    for (uint32_t to = 0; to < 1024; ++to) {
      if (from == to) continue;
      ++tries;
      uint32_t attempt = 0;
      while (attempt < 4 && streets.send(from, to, attempt) == 0) ++attempt;
      first_failed += attempt > 0 ? 1 : 0;
      ASSERT_LT(attempt, 4u) << from << " to " << to;
    }
  }
  EXPECT_LT(first_failed, tries / 1000) << "nearly all first tries arrive";
}

TEST(Relay, FindsAWayPastManyDeadNeighbours) {
  const Overlay overlay(addresses(256), 64);
  Streets streets(overlay);
  std::set<uint32_t> dead;
  for (uint32_t place = 100; place < 116; ++place) dead.insert(place);  // one rack
  for (const uint32_t a : dead) {
    for (const uint32_t b : overlay.links_of(a)) streets.cut(a, b);
  }
  for (uint32_t from = 0; from < 256; ++from) {
    for (uint32_t to = 0; to < 256; ++to) {
      if (from == to || dead.count(from) + dead.count(to) > 0) continue;
      uint32_t attempt = 0;
      while (attempt < 8 && streets.send(from, to, attempt) == 0) ++attempt;
      ASSERT_LT(attempt, 8u) << from << " to " << to;
    }
  }
}

// As where a cluster is but partly started. Only links of those that are up lead anywhere, and a
// job needs all of its pairs.
TEST(Relay, FindsEveryWayThatThereIsWhereMostNodesAreDown) {
  Random random(3);
  for (const auto& [count, links_max] : {std::pair(12u, 4u), {16u, 4u}, {32u, 6u}, {70u, 64u}}) {
    const Overlay overlay(addresses(count), links_max);
    for (uint32_t round = 0; round < 40; ++round) {
      Streets streets(overlay);
      std::vector<bool> up(count);
      for (uint32_t place = 0; place < count; ++place) up[place] = random.below(100) < 40;
      for (uint32_t a = 0; a < count; ++a) {
        for (const uint32_t b : overlay.links_of(a)) {
          if (!up[a] || !up[b]) streets.cut(a, b);
        }
      }
      for (uint32_t from = 0; from < count; ++from) {
        if (!up[from]) continue;
        const std::set<uint32_t> reached = reached_from(overlay, from, up);
        for (const uint32_t to : reached) {
          uint32_t attempt = 0;
          while (from != to && attempt < 32 && streets.send(from, to, attempt) == 0) ++attempt;
          ASSERT_LT(attempt, 32u) << from << " to " << to << " of " << count << ", " << round;
        }
      }
    }
  }
}

TEST(Relay, AsksNobodyToPassOnWhoDoesNotKnowHow) {
  const Overlay overlay(addresses(100), 10);
  Relay relay(&overlay, 0);
  const auto links = overlay.links_of(0);
  for (const uint32_t link : links) relay.link_up(link, false);
  uint32_t stranger = 1;
  while (overlay.linked(0, stranger)) ++stranger;
  EXPECT_FALSE(relay.next_hop(stranger, {}, 0));
  EXPECT_EQ(relay.next_hop(links[2], {}, 0), links[2]) << "it is the goal itself";
  relay.link_up(links[1], true);
  EXPECT_EQ(relay.next_hop(stranger, {}, 0), links[1]);
  EXPECT_FALSE(relay.next_hop(stranger, {Relay::print_of(overlay.name_at(links[1]))}, 0));
}

}  // namespace
}  // namespace gradring::core
