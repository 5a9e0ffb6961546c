#include "daemon/core/peer_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/core/peer_town.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

PeerTown::Options few_links(uint64_t seed = 1) {
  PeerTown::Options options;
  options.links_max = 8;
  options.seed = seed;
  return options;
}

size_t losses_of(const PeerTown& town, uint32_t at, uint32_t peer) {
  const auto& losses = town.losses(at);
  return static_cast<size_t>(std::count_if(losses.begin(), losses.end(),
                                           [&](const auto& loss) { return loss.peer == peer; }));
}

TEST(PeerNet, AllMeetOverFewLinks) {
  PeerTown town(64, few_links());
  town.run(3 * kSecond);
  ASSERT_TRUE(town.all_up());
  for (uint32_t from = 0; from < 64; ++from) {
    for (uint32_t to = 0; to < 64; ++to) {
      if (from == to) continue;
      EXPECT_TRUE(town.send(from, to, std::to_string(from)));
    }
  }
  town.run(100 * kMillisecond);
  for (uint32_t to = 0; to < 64; ++to) {
    EXPECT_EQ(town.got(to).size(), 63u);
    EXPECT_TRUE(town.losses(to).empty());
    EXPECT_EQ(town.net(to).resent(), 0u);
  }
}

TEST(PeerNet, ASmallClusterRelaysNothing) {
  PeerTown town(20, {});
  town.run(3 * kSecond);
  ASSERT_TRUE(town.all_up());
  for (uint32_t at = 0; at < 20; ++at) {
    EXPECT_EQ(town.sent(at).parcels, 0u);
    for (uint32_t peer = 0; peer < 20; ++peer) {
      EXPECT_EQ(town.net(at).wants_link(town.overlay().name_at(peer)), peer != at);
    }
  }
}

TEST(PeerNet, AnIdleNodeSendsHeartbeatsToItsLinksAndNothingElse) {
  PeerTown town(128, {});
  town.run(3 * kSecond);
  ASSERT_TRUE(town.all_up());
  town.forget_sent();
  town.run(1 * kSecond);
  for (uint32_t at = 0; at < 128; ++at) {
    EXPECT_LE(town.sent(at).heartbeats, 4u * 13) << "13 links, four times a second";
    EXPECT_EQ(town.sent(at).parcels, 0u);
    EXPECT_EQ(town.sent(at).notices, 0u);
  }
}

TEST(PeerNet, EachMessageArrivesOnceAndInOrderThoughParcelsAreLostAndDoubled) {
  PeerTown::Options options = few_links(3);
  options.lost = 5;
  options.doubled = 5;
  PeerTown town(48, options);
  town.run(30 * kSecond);
  ASSERT_TRUE(town.all_up());
  uint32_t to = 1;
  while (town.overlay().linked(0, to)) ++to;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(town.send(0, to, std::to_string(i)));
  town.run(60 * kSecond);
  ASSERT_EQ(town.got(to).size(), 200u);
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(town.got(to)[static_cast<size_t>(i)].second, std::to_string(i));
  for (uint32_t at = 0; at < 48; ++at) EXPECT_TRUE(town.losses(at).empty());
}

TEST(PeerNet, AClosedNodeIsKnownToAllInTwoTenthsOfASecond) {
  PeerTown town(100, few_links());
  town.run(3 * kSecond);
  ASSERT_TRUE(town.all_up());
  town.forget_sent();
  const Time died = town.now;
  town.kill(42);
  town.run(200 * kMillisecond);
  for (uint32_t at = 0; at < 100; ++at) {
    if (at == 42) continue;
    ASSERT_EQ(town.losses(at).size(), 1u) << at;
    EXPECT_EQ(town.losses(at)[0].peer, 42u);
    EXPECT_FALSE(town.losses(at)[0].silent);
    EXPECT_LE(town.losses(at)[0].at - died, 150 * kMillisecond);
    EXPECT_LE(town.sent(at).notices, 8u);
  }
  town.start(42);
  town.run(3 * kSecond);
  EXPECT_TRUE(town.all_up());
  for (uint32_t at = 0; at < 100; ++at) EXPECT_LE(town.losses(at).size(), 1u) << "told once";
}

TEST(PeerNet, ASilentNodeIsKnownToAllSoonAfterDecide) {
  PeerTown town(100, few_links());
  town.run(3 * kSecond);
  const Time died = town.now;
  town.kill(7, true);
  town.run(4 * kSecond);
  for (uint32_t at = 0; at < 100; ++at) {
    if (at == 7) continue;
    ASSERT_EQ(losses_of(town, at, 7), 1u) << at;
    ASSERT_EQ(town.losses(at).size(), 1u) << at;
    EXPECT_TRUE(town.losses(at)[0].silent);
    EXPECT_LE(town.losses(at)[0].at - died, 3500 * kMillisecond);
  }
}

TEST(PeerNet, OneBrokenLinkConcernsItsTwoEndsAlone) {
  PeerTown town(64, few_links());
  town.run(3 * kSecond);
  const uint32_t other = town.overlay().links_of(5)[3];
  town.close(5, other);
  town.cut(5, other);
  town.run(5 * kSecond);
  for (uint32_t at = 0; at < 64; ++at) {
    EXPECT_EQ(town.losses(at).size(), at == 5 || at == other ? 1u : 0u) << at;
  }
}

TEST(PeerNet, WhoIsCutOffLosesAllAndComesBack) {
  PeerTown town(64, few_links());
  town.run(3 * kSecond);
  town.cut_off(9);
  town.run(5 * kSecond);
  EXPECT_EQ(town.losses(9).size(), 63u);
  for (uint32_t at = 0; at < 64; ++at) {
    if (at == 9) continue;
    EXPECT_EQ(town.losses(at).size(), 1u) << at;
  }
  town.mend_all();
  town.run(20 * kSecond);
  EXPECT_TRUE(town.all_up());
  for (uint32_t at = 0; at < 64; ++at) {
    if (at == 9) continue;
    EXPECT_EQ(town.losses(at).size(), 1u) << "and none was lost by its return: " << at;
  }
}

// Each death that it thought it saw would be told, denied, and passed on by all.
TEST(PeerNet, WhoWasCutOffAccusesNobodyWhenItComesBack) {
  PeerTown town(64, few_links());
  town.run(3 * kSecond);
  town.cut_off(9);
  town.run(5 * kSecond);
  town.forget_sent();
  town.mend_all();
  town.run(20 * kSecond);
  ASSERT_TRUE(town.all_up());
  for (uint32_t at = 0; at < 64; ++at) {
    const size_t links = town.overlay().links_of(at).size();
    EXPECT_LE(town.sent(at).notices, links + 1) << "it lives, which is news, and no other: " << at;
  }
}

TEST(PeerNet, WithATenthOfTheLinksDownAllStillSpeak) {
  PeerTown town(96, few_links(5));
  Random random(5);
  for (uint32_t a = 0; a < 96; ++a) {
    for (const uint32_t b : town.overlay().links_of(a)) {
      if (a < b && random.below(10) == 0) town.cut(a, b);
    }
  }
  town.run(30 * kSecond);
  uint32_t sent = 0, got = 0;
  for (uint32_t from = 0; from < 96; ++from) {
    for (uint32_t to = 0; to < 96; ++to) {
      if (from == to || town.overlay().linked(from, to)) continue;
      ASSERT_TRUE(town.send(from, to, "x")) << from << " to " << to;
      ++sent;
    }
  }
  town.run(6 * kSecond);
  for (uint32_t at = 0; at < 96; ++at) got += static_cast<uint32_t>(town.got(at).size());
  EXPECT_EQ(got, sent);
}

// Half the town dies at one moment; the rest knows it, speaks on, and blames nobody else.
TEST(PeerNet, ManyDeathsAtOnce) {
  PeerTown::Options options;
  PeerTown town(128, options);
  town.run(3 * kSecond);
  Random random(11);
  for (uint32_t at = 1; at < 128; ++at) {
    if (random.below(2) == 0) town.kill(at, random.below(2) == 0);
  }
  town.run(8 * kSecond);
  EXPECT_TRUE(town.all_up());
  for (uint32_t at = 0; at < 128; ++at) {
    if (!town.alive(at)) continue;
    for (uint32_t peer = 0; peer < 128; ++peer) {
      if (peer == at) continue;
      EXPECT_EQ(losses_of(town, at, peer), town.alive(peer) ? 0u : 1u) << at << " of " << peer;
    }
  }
}

TEST(PeerNet, WhoDiesWithAllThatWouldTellOfItIsMissedAllTheSame) {
  PeerTown::Options options;
  options.links_max = 4;
  PeerTown town(32, options);
  town.run(3 * kSecond);
  ASSERT_TRUE(town.all_up());
  std::set<uint32_t> dead = {7, 8};
  for (const uint32_t place : {7u, 8u}) {
    for (const uint32_t link : town.overlay().links_of(place)) dead.insert(link);
  }
  ASSERT_LT(dead.size(), 12u);
  for (const uint32_t place : dead) town.kill(place);
  town.run(8 * kSecond);
  for (uint32_t at = 0; at < town.count(); ++at) {
    if (!town.alive(at)) continue;
    for (uint32_t peer = 0; peer < town.count(); ++peer) {
      if (peer == at) continue;
      EXPECT_EQ(town.up(at, peer), town.alive(peer)) << peer << " as " << at << " sees it";
      EXPECT_EQ(losses_of(town, at, peer), town.alive(peer) ? 0u : 1u);
    }
  }
}

// Nodes come and go, links close, parcels are lost; when it ends, all are there for each other.
TEST(PeerNet, StormsEnd) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(6); ++seed) {
    PeerTown::Options options = few_links(seed);
    options.lost = 2;
    options.doubled = 2;
    PeerTown town(40, options);
    Random random(seed * 31);
    town.run(3 * kSecond);
    for (int round = 0; round < 25; ++round) {
      const auto at = static_cast<uint32_t>(random.below(40));
      const auto links = town.overlay().links_of(at);
      const uint32_t link = links[random.below(links.size())];
      switch (random.below(5)) {
        case 0:
          town.kill(at, random.below(2) == 0);
          break;
        case 1:
          if (!town.alive(at)) town.start(at);
          break;
        case 2:
          if (town.alive(at) && town.alive(link)) town.close(at, link);
          break;
        case 3:
          town.cut(at, link);
          break;
        default:
          town.cut_off(at);
      }
      town.run(static_cast<Time>(random.below(1500)) * kMillisecond);
      if (round % 8 == 7) town.mend_all();
    }
    town.mend_all();
    for (uint32_t at = 0; at < 40; ++at) {
      if (!town.alive(at)) town.start(at);
    }
    town.run(40 * kSecond);
    EXPECT_TRUE(town.all_up()) << seed;
  }
}

// Notes by which links it answers those that it takes for dead.
struct NotesBurials : PeerNetActions {
  void pass(const std::string& link, const Parcel& parcel) override {
    if (parcel.letter.buried != 0) ways.insert(link);
  }
  void pass(const std::string&, const std::vector<Notice>&) override {}
  void relayed_up(const std::string&) override {}
  void relayed_down(const std::string&, bool, const std::string&) override {}
  void relayed_message(const std::string&, const std::string&) override {}

  std::set<std::string> ways;
};

// One of them may end at a node that is dead.
TEST(PeerNet, TellsOneThatIsThoughtDeadByAnotherWayEachTime) {
  PeerNetOptions options;
  options.self = "a00";
  options.links_max = 8;
  for (int i = 10; i < 50; ++i) options.peers.push_back("a" + std::to_string(i));
  NotesBurials notes;
  PeerNet net(options, &notes);
  std::string link, stranger;
  for (const std::string& peer : options.peers) {
    (net.wants_link(peer) ? link : stranger) = peer;
    if (net.wants_link(peer)) net.link_up(peer, 1, true, kSecond);
  }
  net.on_notices(link, {{stranger, 7, 1, true, false, "closed"}}, kSecond);
  for (Time now = kSecond; now < 2 * kSecond; now += 10 * kMillisecond) net.tick(now);

  Parcel parcel{stranger, options.self, {Relay::print_of(stranger), Relay::print_of(link)}, {}};
  parcel.letter.from = {7, 1};
  for (parcel.letter.attempt = 0; parcel.letter.attempt < 3; ++parcel.letter.attempt)
    net.on_parcel(link, parcel, 2 * kSecond);
  EXPECT_EQ(notes.ways.size(), 3u);
}

TEST(PeerNet, WhatMakesNoSenseIsDropped) {
  PeerTown town(40, few_links());
  town.run(3 * kSecond);
  PeerNet& net = town.net(0);
  const uint64_t before = net.dropped();
  const std::string link = town.overlay().name_at(town.overlay().links_of(0)[0]);
  uint32_t far = 1;
  while (town.overlay().linked(0, far)) ++far;
  const std::string stranger = town.overlay().name_at(far);
  net.on_parcel(link, {"nobody", town.overlay().name_at(0), {}, {}}, town.now);
  net.on_parcel(link, {stranger, "nobody", {}, {}}, town.now);
  net.on_parcel(link, {town.overlay().name_at(0), stranger, {}, {}}, town.now);
  net.on_parcel(link, {link, stranger, std::vector<uint32_t>(1000, 1), {}}, town.now);
  net.on_parcel(link, {link, town.overlay().name_at(0), {}, {}}, town.now);
  EXPECT_EQ(net.dropped(), before + 5);
  const uint64_t passed_on = net.passed_on();
  const std::string self = town.overlay().name_at(0);
  const std::vector<uint32_t> passed = {Relay::print_of(self), Relay::print_of(link)};
  net.on_parcel(link, {self, stranger, passed, {}}, town.now);
  EXPECT_EQ(net.dropped(), before + 5);
  EXPECT_EQ(net.passed_on(), passed_on + 1) << "back from a dead end, it goes another way";
  net.on_notices(link, {{"nobody", 1, 1, true, false, ""}}, town.now);
  town.run(1 * kSecond);
  EXPECT_TRUE(town.all_up());
}

}  // namespace
}  // namespace gradring::core
