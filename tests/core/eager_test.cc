#include "daemon/core/eager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/random.h"

namespace gradring::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Serial = EagerReceived::Serial;

OpKey op(uint64_t number) { return {0, number}; }

std::vector<OpKey> done(EagerSent* sent, uint32_t member, const DoneBody& body) {
  std::vector<OpKey> everywhere;
  EXPECT_TRUE(sent->on_done(member, body, &everywhere));
  return everywhere;
}

TEST(EagerReceived, KnowsWhatItHasSeen) {
  EagerReceived received;
  EXPECT_EQ(received.begin(1), Serial::kNew);
  EXPECT_EQ(received.begin(1), Serial::kKnown);
  EXPECT_EQ(received.begin(3), Serial::kNew);
  received.end(1);
  EXPECT_EQ(received.begin(1), Serial::kKnown);
  EXPECT_EQ(received.begin(2), Serial::kNew);
  EXPECT_EQ(received.begin(1 + kEagerWindow), Serial::kNew);
  EXPECT_EQ(received.begin(2 + kEagerWindow), Serial::kTooFar);
}

TEST(EagerReceived, TellsWhatIsDoneInAnyOrder) {
  EagerReceived received;
  for (uint64_t serial = 1; serial <= 4; ++serial) received.begin(serial);
  received.end(2);
  received.end(4);
  EXPECT_EQ(received.untold(), 2u);
  EXPECT_EQ(received.tell(), (DoneBody{0, 0b1010}));
  EXPECT_EQ(received.untold(), 0u);
  received.end(1);
  EXPECT_EQ(received.tell(), (DoneBody{2, 0b10}));
  received.end(3);
  EXPECT_EQ(received.tell(), (DoneBody{4, 0}));
}

TEST(EagerSent, AnOpIsOverWhenAllOthersAreDoneWithIt) {
  EagerSent sent;
  sent.begin_epoch(3, 1);
  EXPECT_EQ(sent.add(op(7)), 1u);
  EXPECT_EQ(sent.add(op(8)), 2u);
  EXPECT_THAT(done(&sent, 0, {0, 0b10}), IsEmpty());
  EXPECT_THAT(done(&sent, 2, {2, 0}), ElementsAre(op(8)));
  EXPECT_THAT(done(&sent, 2, {2, 0}), IsEmpty()) << "once";
  EXPECT_THAT(done(&sent, 0, {2, 0}), ElementsAre(op(7)));
  EXPECT_EQ(sent.add(op(9)), 3u);
}

TEST(EagerSent, HasRoomForSoMany) {
  EagerSent sent;
  sent.begin_epoch(2, 0);
  for (uint32_t i = 0; i < kEagerWindow; ++i) {
    EXPECT_TRUE(sent.room());
    sent.add(op(i));
  }
  EXPECT_FALSE(sent.room());
  done(&sent, 1, {0, 0b10});
  EXPECT_FALSE(sent.room()) << "the receiver's window begins at the first that it is not done with";
  done(&sent, 1, {2, 0});
  EXPECT_TRUE(sent.room());
}

TEST(EagerSent, DoneWithWhatWasNeverSentIsFound) {
  EagerSent sent;
  sent.begin_epoch(2, 0);
  sent.add(op(1));
  std::vector<OpKey> everywhere;
  EXPECT_FALSE(sent.on_done(1, {2, 0}, &everywhere));
  EXPECT_FALSE(sent.on_done(1, {0, 0b10}, &everywhere));
  EXPECT_FALSE(sent.on_done(1, {UINT64_MAX, UINT64_MAX}, &everywhere));
  EXPECT_FALSE(sent.on_done(1, {1, uint64_t{1} << 63}, &everywhere));
  EXPECT_TRUE(sent.on_done(1, {1, 0}, &everywhere));
}

// Both sides together, with words that are late, lost or repeated.
TEST(Eager, TheWindowsAgree) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    EagerSent sent;
    sent.begin_epoch(64, 5);
    std::vector<EagerReceived> received(64);
    std::vector<std::vector<uint64_t>> open(64);
    std::vector<DoneBody> said(64);
    uint64_t over = 0;
    uint64_t last = 0;
    for (int step = 0; step < 20000; ++step) {
      const auto member = static_cast<uint32_t>(random.below(64));
      if (random.below(8) == 0 && sent.room()) {
        last = sent.add(op(last));
        for (uint32_t i = 0; i < 64; ++i) {
          if (i == 5) continue;
          ASSERT_EQ(received[i].begin(last), Serial::kNew);
          open[i].push_back(last);
        }
      }
      if (member == 5) continue;
      if (!open[member].empty()) {
        const size_t which = random.below(open[member].size());
        received[member].end(open[member][which]);
        open[member].erase(open[member].begin() + static_cast<std::ptrdiff_t>(which));
      }
      if (random.below(3) == 0) said[member] = received[member].tell();
      over += done(&sent, member, said[member]).size();
    }
    for (uint32_t i = 0; i < 64; ++i) {
      if (i == 5) continue;
      for (const uint64_t serial : open[i]) received[i].end(serial);
      over += done(&sent, i, received[i].tell()).size();
    }
    EXPECT_EQ(over, last);
    EXPECT_GT(last, 100u);
  }
}

TEST(EagerUnits, AUnitIsFreeWhenNobodyHoldsIt) {
  EagerUnits units;
  const uint32_t a = units.take();
  units.hold(a);
  const uint32_t b = units.take();
  EXPECT_NE(a, b);
  units.release(a);
  EXPECT_FALSE(units.all_free());
  EXPECT_NE(units.take(), a);
  units.release(a);
  EXPECT_EQ(units.take(), a);
  EXPECT_EQ(units.count(), 3u);
}

}  // namespace
}  // namespace gradring::core
