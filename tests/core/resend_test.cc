#include "daemon/core/resend.h"

#include <gtest/gtest.h>

namespace gradring::core {
namespace {

const Staging kSlot0{Staging::Kind::kSlot, 0};
const Staging kSlot1{Staging::Kind::kSlot, 1};
const Staging kStart0{Staging::Kind::kStart, 0};
using Next = SentSlices::Next;

Frame checked() {
  Frame frame;
  frame.type = FrameType::kSlice;
  frame.slice.checked = true;
  return frame;
}

class SentSlicesTest : public testing::Test {
 protected:
  uint64_t send(Staging from) {
    Frame frame = checked();
    sent_.add(&frame, from);
    EXPECT_EQ(frame.slice.attempt, 1);
    return frame.slice.serial;
  }
  bool confirm(uint64_t total) {
    return sent_.confirm(total, [this](Staging at) { freed_.push_back(at); });
  }
  static NackBody nack(uint64_t serial, uint8_t attempt) {
    return {0, Phase::kPartial, 0, 1, attempt, serial};
  }

  SentSlices sent_{2, 1};
  std::vector<Staging> freed_;
};

TEST_F(SentSlicesTest, MemoryIsFreeWhenItIsBothSentAndConfirmed) {
  EXPECT_EQ(send(kSlot0), 1u);
  EXPECT_EQ(send(kStart0), 2u);
  EXPECT_EQ(sent_.on_sent(kSlot0), Next::kWait);
  EXPECT_TRUE(confirm(1));
  EXPECT_EQ(freed_, std::vector{kSlot0});
  EXPECT_TRUE(confirm(2));
  EXPECT_EQ(freed_, std::vector{kSlot0}) << "still with the transport";
  EXPECT_EQ(sent_.on_sent(kStart0), Next::kFree);
  EXPECT_TRUE(confirm(1)) << "late";
  EXPECT_FALSE(confirm(3)) << "never sent";
}

TEST_F(SentSlicesTest, WithoutAChecksumNobodyConfirms) {
  Frame plain;
  sent_.add(&plain, kSlot0);
  EXPECT_EQ(plain.slice.serial, 0u);
  EXPECT_EQ(sent_.on_sent(kSlot0), Next::kFree);
  EXPECT_FALSE(confirm(1));
}

TEST_F(SentSlicesTest, EachAttemptIsAskedForOnce) {
  send(kSlot0);
  const uint64_t serial = send(kSlot1);
  sent_.on_sent(kSlot1);
  EXPECT_FALSE(sent_.damaged(nack(serial, 2))) << "of an attempt to come";
  EXPECT_FALSE(sent_.damaged(nack(serial + 1, 1)));
  EXPECT_FALSE(sent_.damaged(nack(0, 1)));
  EXPECT_EQ(sent_.damaged(nack(serial, 1)), kSlot1);
  EXPECT_EQ(sent_.again(kSlot1)->slice.attempt, 2);
  EXPECT_FALSE(sent_.damaged(nack(serial, 1))) << "repeated";
  EXPECT_EQ(sent_.on_sent(kSlot1), Next::kWait);
  EXPECT_TRUE(confirm(serial));
  EXPECT_FALSE(sent_.damaged(nack(serial, 2))) << "confirmed";
}

// The answer may come before the transport has said that it is done.
TEST_F(SentSlicesTest, WhatIsStillLentIsSentAgainAfterwards) {
  const uint64_t serial = send(kSlot0);
  EXPECT_EQ(sent_.damaged(nack(serial, 1)), kSlot0);
  EXPECT_FALSE(sent_.again(kSlot0));
  EXPECT_FALSE(sent_.damaged(nack(serial, 1))) << "known already";
  EXPECT_EQ(sent_.on_sent(kSlot0), Next::kAgain);
  EXPECT_EQ(sent_.again(kSlot0)->slice.attempt, 2);
  EXPECT_EQ(sent_.on_sent(kSlot0), Next::kWait);
}

TEST_F(SentSlicesTest, AfterTheEpochNothingIsWaitedFor) {
  send(kSlot0);
  send(kSlot1);
  sent_.on_sent(kSlot1);
  sent_.clear([this](Staging at) { freed_.push_back(at); });
  EXPECT_EQ(freed_, std::vector{kSlot1});
  EXPECT_EQ(sent_.on_sent(kSlot0), Next::kFree);
  EXPECT_EQ(send(kSlot1), 1u) << "counts anew";
}

TEST(ReceivedSlicesTest, ConfirmsWithoutGaps) {
  ReceivedSlices received;
  received.accept(2);
  received.accept(3);
  EXPECT_EQ(received.confirmed(), 0u);
  EXPECT_TRUE(received.has(3) && !received.has(1));
  received.accept(1);
  EXPECT_EQ(received.confirmed(), 3u);
  EXPECT_FALSE(received.beyond(4));
  EXPECT_TRUE(received.beyond(1'000'000));
}

TEST(ReceivedSlicesTest, RemembersTheSlotOfWhatIsAwaited) {
  ReceivedSlices received;
  received.await(1, {3, 2});
  received.await(2, {0, 3});
  ASSERT_NE(received.awaited(1), nullptr);
  EXPECT_EQ(received.awaited(1)->slot, 3u);
  EXPECT_EQ(received.awaited(1)->attempt, 2);
  received.arrives(1);
  EXPECT_EQ(received.awaited(1), nullptr);
  std::vector<uint32_t> freed;
  received.clear([&](uint32_t slot) { freed.push_back(slot); });
  EXPECT_EQ(freed, std::vector<uint32_t>{0});
  EXPECT_EQ(received.confirmed(), 0u);
}

}  // namespace
}  // namespace gradring::core
