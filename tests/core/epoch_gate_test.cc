#include "daemon/core/epoch_gate.h"

#include <gtest/gtest.h>

namespace gradring::core {
namespace {

using Gate = EpochGate<uint32_t>;

Frame ready(uint64_t epoch, uint64_t sequence) {
  Frame frame;
  frame.type = FrameType::kReady;
  frame.epoch = epoch;
  frame.key = {0, sequence};
  return frame;
}

// A change of the view while all members have tens of thousands of ops open, and this one is late.
TEST(EpochGate, KeepsWhatManyPeersSayAheadOfUs) {
  constexpr uint32_t kPeers = 3;
  constexpr uint64_t kOps = 65536;
  Gate gate;
  for (uint64_t op = 0; op < kOps; ++op) {
    for (uint32_t peer = 0; peer < kPeers; ++peer) {
      ASSERT_EQ(gate.sort(peer, ready(2, op), 1), Gate::Verdict::kLater);
    }
  }
  const auto waiting = gate.take_waiting();
  ASSERT_EQ(waiting.size(), kPeers * kOps);
  EXPECT_EQ(waiting.back().first, kPeers - 1);
  EXPECT_EQ(waiting.back().second.key.sequence, kOps - 1);
}

TEST(EpochGate, TellsOnceThatAPeerSaysTooMuch) {
  Gate gate;
  for (size_t i = 0; i < Gate::kMost; ++i) {
    ASSERT_EQ(gate.sort(1, ready(2, i), 1), Gate::Verdict::kLater);
  }
  EXPECT_EQ(gate.sort(1, ready(2, Gate::kMost), 1), Gate::Verdict::kTooMuch);
  EXPECT_EQ(gate.sort(1, ready(2, Gate::kMost + 1), 1), Gate::Verdict::kLater);
  EXPECT_EQ(gate.sort(2, ready(2, 0), 1), Gate::Verdict::kLater) << "others are to be heard";
  EXPECT_EQ(gate.take_waiting().size(), Gate::kMost + 1);
  EXPECT_EQ(gate.sort(1, ready(3, 0), 2), Gate::Verdict::kLater) << "counted anew";
}

}  // namespace
}  // namespace gradring::core
