#include "daemon/core/courier.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <utility>

#include "daemon/core/random.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

using What = Courier::Event::What;

// Two daemons and what is under way between them.
struct Post {
  struct Side {
    std::unique_ptr<Courier> courier;
    std::vector<std::string> got;  // since it came up last
    std::vector<std::string> downs;
    uint32_t ups = 0;
  };
  struct UnderWay {
    Time at = 0;
    int to = 0;
    Letter letter;
  };

  explicit Post(uint64_t seed) : random(seed) {
    boot(0, 100);
    boot(1, 200);
  }
  void boot(int side, uint64_t boot_id) {
    sides[side] = {};
    sides[side].courier = std::make_unique<Courier>(&options, boot_id, now);
  }
  Courier& at(int side) { return *sides[side].courier; }

  void collect(int side) {
    for (Letter& letter : at(side).take_letters()) {
      ++letters;
      if (random.below(100) < lost) continue;
      const int copies = random.below(100) < doubled ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        const Time late = static_cast<Time>(random.below(1 + jitter)) * kMillisecond;
        under_way.push_back({now + kMillisecond + late, 1 - side, letter});
      }
    }
    for (Courier::Event& event : at(side).take_events()) {
      if (event.what == What::kUp) {
        ++sides[side].ups;
        sides[side].got.clear();
      } else if (event.what == What::kDown) {
        sides[side].downs.push_back(event.text);
      } else {
        sides[side].got.push_back(std::move(event.text));
      }
    }
  }
  void run(Time span) {
    for (const Time end = now + span; now < end; now += kMillisecond) {
      for (size_t i = 0; i < under_way.size();) {
        if (under_way[i].at > now) {
          ++i;
          continue;
        }
        const UnderWay arriving = under_way[i];
        under_way.erase(under_way.begin() + static_cast<ptrdiff_t>(i));
        at(arriving.to).on_letter(arriving.letter, now);
        collect(arriving.to);
      }
      for (const int side : {0, 1}) {
        if (at(side).next_deadline() <= now) at(side).tick(now);
        collect(side);
      }
    }
  }
  bool send(int side, std::string body) {
    const bool sent = at(side).send(std::move(body), now);
    collect(side);
    return sent;
  }
  bool both_up() {
    return at(0).state() == Courier::State::kUp && at(1).state() == Courier::State::kUp;
  }

  CourierOptions options;
  Random random;
  Time now = 100 * kSecond;
  uint64_t lost = 0, doubled = 0, jitter = 0;  // per cent; ms
  uint64_t letters = 0;
  Side sides[2];
  std::vector<UnderWay> under_way;
};

std::vector<std::string> numbers(int from, int to) {
  std::vector<std::string> list;
  for (int i = from; i < to; ++i) list.push_back(std::to_string(i));
  return list;
}

TEST(Courier, OpensAndCarriesBothWays) {
  Post post(1);
  EXPECT_FALSE(post.send(0, "too early"));
  post.run(20 * kMillisecond);
  ASSERT_TRUE(post.both_up());
  EXPECT_TRUE(post.send(0, "there"));
  EXPECT_TRUE(post.send(1, "and back"));
  post.run(20 * kMillisecond);
  EXPECT_EQ(post.sides[1].got, std::vector<std::string>{"there"});
  EXPECT_EQ(post.sides[0].got, std::vector<std::string>{"and back"});
  EXPECT_TRUE(post.sides[0].downs.empty());
}

TEST(Courier, OneThatIsDoubtedAnswersOrIsGivenUp) {
  Post post(1);
  post.run(1 * kSecond);
  ASSERT_TRUE(post.both_up());
  post.letters = 0;
  post.at(0).doubt(post.now);
  post.run(20 * kSecond);
  EXPECT_EQ(post.letters, 2u) << "asked and answered";
  EXPECT_TRUE(post.both_up());
  post.lost = 100;
  post.letters = 0;
  post.at(0).doubt(post.now);
  post.run(post.options.give_up - 100 * kMillisecond);
  EXPECT_TRUE(post.both_up());
  EXPECT_LT(post.letters, 10u);
  post.at(0).doubt(post.now);
  post.run(post.options.longest_wait);
  EXPECT_EQ(post.sides[0].downs, std::vector<std::string>{"does not answer"});
}

TEST(Courier, AnIdleChannelIsSilent) {
  Post post(1);
  post.run(1 * kSecond);
  ASSERT_TRUE(post.both_up());
  const uint64_t before = post.letters;
  post.run(100 * kSecond);
  EXPECT_EQ(post.letters, before);
  EXPECT_EQ(post.at(0).next_deadline(), std::numeric_limits<Time>::max());
}

TEST(Courier, InOrderAndOnceOverABadNetwork) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(30); ++seed) {
    Post post(seed);
    post.lost = 20;
    post.doubled = 20;
    post.jitter = 30;
    post.run(20 * kSecond);
    ASSERT_TRUE(post.both_up()) << seed;
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(post.send(0, std::to_string(i)));
      ASSERT_TRUE(post.send(1, std::to_string(1000 + i)));
    }
    post.run(90 * kSecond);
    EXPECT_EQ(post.sides[1].got, numbers(0, 300)) << seed;
    EXPECT_EQ(post.sides[0].got, numbers(1000, 1300)) << seed;
    EXPECT_TRUE(post.sides[0].downs.empty() && post.sides[1].downs.empty()) << seed;
    EXPECT_GT(post.at(0).resent(), 0u);
  }
}

TEST(Courier, ARestartBreaksTheChannelOnce) {
  Post post(1);
  post.run(50 * kMillisecond);
  post.send(0, "to the first life");
  post.boot(1, 201);
  post.run(1 * kSecond);
  EXPECT_EQ(post.sides[0].downs, std::vector<std::string>{"was restarted"});
  ASSERT_TRUE(post.both_up());
  EXPECT_TRUE(post.sides[1].downs.empty());
  EXPECT_TRUE(post.sides[1].got.empty()) << "what was for the first life";
  post.send(0, "to the second");
  post.run(50 * kMillisecond);
  EXPECT_EQ(post.sides[1].got, std::vector<std::string>{"to the second"});
}

TEST(Courier, BothEndsLearnThatOneHasGivenUp) {
  Post post(1);
  post.run(50 * kMillisecond);
  post.send(1, "lost with the channel");
  post.under_way.clear();
  post.at(0).close("enough", false, post.now);
  post.run(1 * kSecond);
  EXPECT_EQ(post.sides[0].downs, std::vector<std::string>{"enough"});
  EXPECT_EQ(post.sides[1].downs, std::vector<std::string>{"it has given up the channel"});
  EXPECT_TRUE(post.both_up());
  EXPECT_TRUE(post.sides[0].got.empty());
}

TEST(Courier, WhoDoesNotTakeAnythingIsGivenUpInBoundedTime) {
  Post post(1);
  post.run(50 * kMillisecond);
  post.lost = 100;
  post.send(0, "nobody hears this");
  post.run(post.options.give_up + post.options.longest_wait);
  EXPECT_EQ(post.sides[0].downs, std::vector<std::string>{"does not answer"});
  post.lost = 0;
  post.run(post.options.longest_pause);
  EXPECT_TRUE(post.both_up());
  EXPECT_EQ(post.sides[1].downs.size(), 1u);
}

TEST(Courier, TooMuchThatWaitsBreaksIt) {
  Post post(1);
  post.run(50 * kMillisecond);
  post.lost = 100;
  size_t sent = 0;
  while (sent < 5000 && post.send(0, "x")) ++sent;
  EXPECT_EQ(sent, post.options.bodies_max);
  EXPECT_EQ(post.under_way.size(), 0u);
  EXPECT_EQ(post.at(0).state(), Courier::State::kUp) << "nobody is told from inside send()";
  post.run(2 * kMillisecond);
  ASSERT_EQ(post.sides[0].downs.size(), 1u);
  EXPECT_NE(post.sides[0].downs[0].find("does not read"), std::string::npos);
}

// There is always something under way for longer than a channel is given that is not heard.
TEST(Courier, ABusyChannelOutlivesAMomentWithoutAnyLetter) {
  Post post(1);
  post.run(20 * kMillisecond);
  ASSERT_TRUE(post.both_up());
  const int bodies = static_cast<int>((post.options.give_up + 2 * kSecond) / kMillisecond);
  for (int i = 0; i < bodies; ++i) {
    post.lost = i > bodies - 300 && i < bodies - 100 ? 100 : 0;
    ASSERT_TRUE(post.send(0, std::to_string(i))) << i;
    post.run(kMillisecond);
  }
  post.run(2 * kSecond);
  EXPECT_TRUE(post.sides[0].downs.empty());
  EXPECT_EQ(post.sides[1].got, numbers(0, bodies));
}

// Letters of a life that is over, delivered at any time later, change nothing for long.
TEST(Courier, StormsOfRestartsEndInAWholeChannel) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(60); ++seed) {
    Post post(seed);
    post.lost = 10;
    post.doubled = 30;
    post.jitter = 400;
    uint64_t boot_id = 1000;
    for (int round = 0; round < 12; ++round) {
      post.run(static_cast<Time>(post.random.below(1500)) * kMillisecond);
      const int side = static_cast<int>(post.random.below(2));
      if (post.random.below(2) == 0) {
        post.boot(side, ++boot_id);
      } else {
        post.at(side).close("told to", false, post.now);
      }
      post.send(1 - side, "x");
    }
    post.run(60 * kSecond);
    ASSERT_TRUE(post.both_up()) << seed;
    post.lost = post.doubled = post.jitter = 0;
    for (const int side : {0, 1}) {
      post.sides[side].downs.clear();
      post.sides[side].got.clear();
    }
    for (const std::string& text : numbers(0, 20)) ASSERT_TRUE(post.send(0, text));
    post.run(5 * kSecond);
    EXPECT_EQ(post.sides[1].got, numbers(0, 20)) << seed;
    EXPECT_TRUE(post.sides[0].downs.empty() && post.sides[1].downs.empty()) << seed;
  }
}

// Of each opening the receiver has what was sent from its beginning, without a gap.
TEST(Courier, WhatArrivesIsAlwaysTheBeginningOfWhatWasSent) {
  for (uint64_t seed = 1; seed <= fewer_if_sanitized(40); ++seed) {
    Post post(seed);
    post.lost = 10;
    post.doubled = 10;
    post.jitter = 100;
    uint64_t boot_id = 1000;
    uint32_t ups = 0;
    int next = 0;
    for (int round = 0; round < 2000; ++round) {
      if (post.sides[0].ups != ups) {
        ups = post.sides[0].ups;
        next = 0;
      }
      if (post.send(0, std::to_string(next))) ++next;
      if (post.random.below(300) == 0) post.at(1).close("told to", false, post.now);
      if (post.random.below(300) == 0) post.boot(1, ++boot_id);
      post.run(2 * kMillisecond);
      const auto& got = post.sides[1].got;
      ASSERT_EQ(got, numbers(0, static_cast<int>(got.size()))) << seed;
    }
  }
}

}  // namespace
}  // namespace gradring::core
