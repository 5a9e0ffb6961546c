// Signatures in frames: what may be said comes as it was said, and nothing else comes.
#include <gtest/gtest.h>

#include <cmath>

#include "proto/frame.h"

namespace gradring {
namespace {

Frame ready() {
  Frame frame;
  frame.type = FrameType::kReady;
  frame.ready.contributions = 1;
  frame.ready.signature = {Collective::kAllreduce, Dtype::kBfloat16, ReduceOp::kAverage, 0, 9};
  return frame;
}

// Every enumerator, so that a new one cannot be sent but not read.
TEST(FrameSignature, EverySignatureSurvivesTheTrip) {
  Frame frame = ready();
  for (uint8_t collective = 1; collective <= kCollectiveLast; ++collective) {
    for (uint8_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
      for (uint8_t op = 0; op <= kReduceOpLast; ++op) {
        frame.ready.signature = {static_cast<Collective>(collective), static_cast<Dtype>(dtype),
                                 static_cast<ReduceOp>(op), 7, kCountMax / 9};
        Signature& signature = frame.ready.signature;
        signature.ranks = needs_all_ranks(signature.collective) ? 3 : 0;
        const auto decoded = decode(encode(frame), 0);
        ASSERT_TRUE(decoded.has_value()) << decoded.error();
        EXPECT_EQ(decoded->ready.signature, frame.ready.signature);
      }
    }
  }
}

TEST(FrameSignature, AFactorSurvivesTheTripWhereThereMayBeOne) {
  Frame frame = ready();
  Signature& signature = frame.ready.signature;
  signature = {Collective::kAllreduce, Dtype::kFloat16, ReduceOp::kSum, 0, 9};
  for (const double factor : {0.1, -3.0, 1.0}) {
    signature.postscale = factor;
    const auto decoded = decode(encode(frame), 0);
    ASSERT_TRUE(decoded.has_value()) << decoded.error();
    EXPECT_EQ(decoded->ready.signature, signature);
  }
  for (const double factor : {0.0, 1e300, std::nan("")}) {
    signature.postscale = factor;
    EXPECT_FALSE(decode(encode(frame), 0).has_value()) << factor;
  }
  signature.postscale = 2;
  signature.dtype = Dtype::kInt32;
  EXPECT_FALSE(decode(encode(frame), 0).has_value());
}

TEST(FrameSignature, OfUnevenBlocksTheDigestTravels) {
  Frame frame = ready();
  Signature& signature = frame.ready.signature;
  signature = {Collective::kAllgather, Dtype::kFloat16, ReduceOp::kNone, 0, 9, 2};
  signature.blocks = *Blocks::of_ranks({9, 4});
  const auto decoded = decode(encode(frame), 0);
  ASSERT_TRUE(decoded.has_value()) << decoded.error();
  EXPECT_EQ(decoded->ready.signature, signature);
  EXPECT_FALSE(decoded->ready.signature.blocks.known());
  signature = {Collective::kAllreduce, Dtype::kFloat16, ReduceOp::kSum, 0, 9};
  signature.blocks = Blocks::told(5);
  EXPECT_FALSE(decode(encode(frame), 0).has_value());
}

TEST(FrameSignature, AWireTypeSurvivesTheTripWhereThereMayBeOne) {
  Frame frame = ready();
  Signature& s = frame.ready.signature;
  s = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1000};
  for (int value = 0; value <= 255; ++value) {
    s.wire = static_cast<WireType>(value);
    const auto decoded = decode(encode(frame), 0);
    ASSERT_EQ(decoded.has_value(), value <= kWireTypeLast) << value;
    if (!decoded) continue;
    EXPECT_EQ(decoded->ready.signature, s);
  }
  s.wire = WireType::kInt8;
  s.dtype = Dtype::kInt32;
  EXPECT_FALSE(decode(encode(frame), 0));
}

TEST(FrameSignature, ASignatureBeyondAllMeasureIsRefused) {
  Frame frame = ready();
  for (const Signature& bad : {
           Signature{Collective::kAllreduce, Dtype::kInt8, ReduceOp::kSum, 0, kCountMax + 1, 0},
           Signature{Collective::kAllreduce, Dtype::kInt8, ReduceOp::kSum, 0, 1, 2},
           Signature{Collective::kAllgather, Dtype::kInt8, ReduceOp::kNone, 0, 1, 0},
           Signature{Collective::kAllgather, Dtype::kInt8, ReduceOp::kNone, 0, 1, kRanksMax + 1},
           Signature{Collective::kAllgather, Dtype::kInt8, ReduceOp::kNone, 0, kCountMax, 2},
           Signature{Collective::kAlltoall, Dtype::kInt8, ReduceOp::kNone, 0, kCountMax / 8, 3},
           Signature{Collective::kAlltoall, Dtype::kInt8, ReduceOp::kNone, 0, 1, 1025},
       }) {
    frame.ready.signature = bad;
    const auto decoded = decode(encode(frame), 0);
    ASSERT_FALSE(decoded.has_value()) << describe(bad);
    EXPECT_EQ(decoded.error(), "frame type 1 has a value outside its range");
  }
}

TEST(FrameSignature, ACountWhoseBytesWouldOverflowIsRefused) {
  Frame frame = ready();
  frame.ready.signature.count = kCountMax + 1;
  EXPECT_FALSE(decode(encode(frame), 0).has_value());
}

}  // namespace
}  // namespace gradring
