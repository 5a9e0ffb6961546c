// Two rings in shared memory: nothing is lost, nobody sleeps through it, and no number of the other
// side is believed.

#include "proto/ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <thread>

namespace gradring {
namespace {

RingEnd end_of(uint64_t ticket) {
  RingEnd end;
  end.ticket = ticket;
  end.epoch = ~ticket;
  return end;
}

class RingTest : public testing::Test {
 protected:
  std::unique_ptr<RingPair> pair_ = std::make_unique<RingPair>();
  Ring<RingEnd>& ring_ = pair_->ends;
  RingWriter<RingEnd> writer_{&ring_};
  RingReader<RingEnd> reader_{&ring_};
};

TEST_F(RingTest, GivesEntriesInOrder) {
  for (uint64_t round = 0; round < 3 * kRingSlots; ++round) {
    EXPECT_FALSE(reader_.any());
    for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(writer_.put(end_of(round * 3 + i)));
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(reader_.any() && !reader_.broken());
      ASSERT_EQ(reader_.take().ticket, round * 3 + i);
    }
  }
}

TEST_F(RingTest, IsFullUntilSomethingIsTaken) {
  for (uint64_t i = 0; i < kRingSlots; ++i) ASSERT_TRUE(writer_.put(end_of(i)));
  EXPECT_FALSE(writer_.put(end_of(kRingSlots)));
  EXPECT_FALSE(reader_.broken());
  EXPECT_EQ(reader_.take().ticket, 0u);
  EXPECT_TRUE(writer_.put(end_of(kRingSlots)));
  EXPECT_FALSE(writer_.put(end_of(0)));
}

TEST_F(RingTest, AReaderThatSleepsIsWokenOnce) {
  EXPECT_FALSE(writer_.must_wake());
  EXPECT_TRUE(reader_.rest());
  writer_.put(end_of(1));
  EXPECT_TRUE(writer_.must_wake());
  writer_.put(end_of(2));
  EXPECT_FALSE(writer_.must_wake());
  EXPECT_FALSE(reader_.rest()) << "there is something";
  EXPECT_FALSE(writer_.must_wake());
}

TEST_F(RingTest, NumbersOfTheOtherSideAreNotBelieved) {
  ring_.written = kRingSlots + 1;
  EXPECT_TRUE(reader_.broken());
  ring_.written = static_cast<uint64_t>(-1);
  EXPECT_TRUE(reader_.broken());
  ring_.read = 7;  // of more than were written
  EXPECT_FALSE(writer_.put(end_of(0)));
}

// Each sleeps whenever it finds nothing; if a sign were missed, both would sleep for ever.
TEST_F(RingTest, NobodySleepsThroughAnything) {
  constexpr uint64_t kEntries = 200'000;
  const int bell = eventfd(0, EFD_CLOEXEC);
  std::thread writing([&] {
    for (uint64_t i = 0; i < kEntries; ++i) {
      while (!writer_.put(end_of(i))) std::this_thread::yield();
      if (writer_.must_wake()) eventfd_write(bell, 1);
      if (i % 1000 == 0) std::this_thread::yield();
    }
  });
  uint64_t seen = 0;
  while (seen < kEntries) {
    if (!reader_.any()) {
      if (!reader_.rest()) continue;
      pollfd fd{bell, POLLIN, 0};
      ASSERT_EQ(poll(&fd, 1, 10'000), 1) << "slept through entry " << seen;
      eventfd_t count = 0;
      eventfd_read(bell, &count);
      reader_.rise();
      continue;
    }
    ASSERT_FALSE(reader_.broken());
    const RingEnd end = reader_.take();
    ASSERT_EQ(end.ticket, seen);
    ASSERT_EQ(end.epoch, ~seen);
    ++seen;
  }
  writing.join();
  close(bell);
}

}  // namespace
}  // namespace gradring
