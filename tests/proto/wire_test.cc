#include "proto/wire.h"

#include <gtest/gtest.h>

#include <string>

namespace gradring {
namespace {

// Through the bytes of the message, as between two processes.
template <typename Message>
Message sent(const Message& message) {
  Message received;
  EXPECT_TRUE(received.ParseFromString(message.SerializeAsString()));
  return received;
}

TEST(Wire, EverySignatureSurvivesTheTrip) {
  for (uint8_t collective = 1; collective <= kCollectiveLast; ++collective) {
    for (uint8_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
      for (uint8_t op = 0; op <= kReduceOpLast; ++op) {
        Signature signature = {static_cast<Collective>(collective), static_cast<Dtype>(dtype),
                               static_cast<ReduceOp>(op), UINT32_MAX, kCountMax / 9};
        signature.ranks = needs_all_ranks(signature.collective) ? 3 : 0;
        wire::Signature message;
        to_wire(signature, &message);
        Signature received;
        ASSERT_TRUE(from_wire(sent(message), &received));
        EXPECT_EQ(received, signature);
      }
    }
  }
}

TEST(Wire, SignaturesOutsideTheEnumerationsAreRefused) {
  const auto accepted = [](uint32_t collective, uint32_t dtype, uint32_t op) {
    wire::Signature message;
    message.set_collective(collective);
    message.set_dtype(dtype);
    message.set_op(op);
    Signature signature;
    return from_wire(sent(message), &signature);
  };
  EXPECT_TRUE(accepted(1, 1, 1));
  EXPECT_FALSE(accepted(0, 1, 1));
  EXPECT_FALSE(accepted(kCollectiveLast + 1, 1, 1));
  EXPECT_FALSE(accepted(1, 0, 1));
  EXPECT_FALSE(accepted(1, kDtypeLast + 1, 1));
  EXPECT_FALSE(accepted(1, 1, kReduceOpLast + 1));
  // 257 would be 1 in the byte that the plain type has.
  EXPECT_FALSE(accepted(257, 1, 1));
  EXPECT_FALSE(accepted(1, 257, 1));
  EXPECT_FALSE(accepted(1, 1, 257));
}

TEST(Wire, AWireTypeSurvivesTheTripWhereThereMayBeOne) {
  Signature signature{Collective::kReduceScatter, Dtype::kFloat32, ReduceOp::kAverage, 0, 8, 3};
  signature.wire = WireType::kInt8;
  wire::Signature message;
  to_wire(signature, &message);
  Signature received;
  ASSERT_TRUE(from_wire(sent(message), &received));
  EXPECT_EQ(received, signature);
  for (const uint32_t number : {4u, 256u, UINT32_MAX}) {
    message.set_wire(number);
    EXPECT_FALSE(from_wire(sent(message), &received)) << number;
  }
  signature.collective = Collective::kAllgather;
  to_wire(signature, &message);
  EXPECT_FALSE(from_wire(sent(message), &received));
}

TEST(Wire, AFactorSurvivesTheTripWhereThereMayBeOne) {
  Signature signature{Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kSum, 0, 8};
  signature.postscale = -1e300;
  wire::Signature message;
  to_wire(signature, &message);
  Signature received;
  ASSERT_TRUE(from_wire(sent(message), &received));
  EXPECT_EQ(received, signature);
  // Who knows of no factors says nothing of them.
  message.clear_postscale();
  ASSERT_TRUE(from_wire(sent(message), &received));
  EXPECT_EQ(received.postscale, 1);
  signature.dtype = Dtype::kFloat32;
  to_wire(signature, &message);
  EXPECT_FALSE(from_wire(sent(message), &received));
}

TEST(Wire, BlocksAreWhatTheCountsBesideTheirDigestSay) {
  Signature signature{Collective::kAlltoall, Dtype::kFloat64, ReduceOp::kNone, 0, 8, 2};
  signature.blocks = *Blocks::of_pairs({8, 0, 1, 8}, 2);
  wire::Signature message;
  wire::Operation operation;
  to_wire(signature, &message);
  to_wire(signature.blocks, operation.mutable_counts());
  Signature received;
  ASSERT_TRUE(from_wire(sent(message), &received));
  EXPECT_FALSE(received.blocks.known());
  const Signature told = received;
  ASSERT_TRUE(from_wire(operation.counts(), &received));
  EXPECT_TRUE(received.blocks.known());
  EXPECT_EQ(received.blocks.before(1, 2), 9u);

  received = told;
  operation.set_counts(3, 7);
  EXPECT_FALSE(from_wire(operation.counts(), &received)) << "others";
  operation.clear_counts();
  EXPECT_FALSE(from_wire(operation.counts(), &received)) << "none";
  received.blocks = {};
  EXPECT_TRUE(from_wire(operation.counts(), &received));
  operation.add_counts(1);
  EXPECT_FALSE(from_wire(operation.counts(), &received)) << "of equal ones there are none";
}

// Else 2^62 elements of 4 bytes would seem to be none at all.
TEST(Wire, ACountWhoseBytesWouldOverflowIsRefused) {
  for (const uint64_t count : {kCountMax + 1, uint64_t{1} << 62, UINT64_MAX}) {
    wire::Signature message;
    to_wire({Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count}, &message);
    Signature signature;
    EXPECT_FALSE(from_wire(sent(message), &signature)) << count;
  }
}

TEST(Wire, KeysSurviveTheTrip) {
  const OpKey key = {UINT64_MAX, 1};
  wire::OpKey message;
  to_wire(key, &message);
  EXPECT_EQ(from_wire(sent(message)), key);
}

TEST(Wire, FailuresSurviveTheTrip) {
  const Failure full = {Cause::kTrainerDied, {3, "node b", 4711, "eth0", "killed by signal 9"}};
  const Failure rank_zero = {Cause::kDeadline, {0, "", 0, "", ""}};
  const Failure nobody = {Cause::kDrained, {}};
  for (const Failure& failure : {full, rank_zero, nobody}) {
    wire::Failure message;
    to_wire(failure, &message);
    Failure received;
    ASSERT_TRUE(from_wire(sent(message), &received));
    EXPECT_EQ(received, failure);
  }
}

TEST(Wire, AnUnknownCauseIsRefused) {
  wire::Failure message;
  Failure failure;
  message.set_cause(kCauseLast);
  EXPECT_TRUE(from_wire(sent(message), &failure));
  message.set_cause(kCauseLast + 1);
  EXPECT_FALSE(from_wire(sent(message), &failure));
  message.set_cause(256 + 1);
  EXPECT_FALSE(from_wire(sent(message), &failure));
}

TEST(Wire, AFailureWithoutBlameBlamesNobody) {
  Failure failure;
  ASSERT_TRUE(from_wire(wire::Failure(), &failure));
  EXPECT_EQ(failure, Failure());
}

TEST(Wire, JobIdsSurviveTheTripAndHaveSixteenBytes) {
  JobId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(255 - i);
  std::string bytes;
  to_wire(id, &bytes);
  JobId received{};
  ASSERT_TRUE(from_wire(bytes, &received));
  EXPECT_EQ(received, id);
  for (const size_t length : {0, 15, 17, 1000}) {
    EXPECT_FALSE(from_wire(std::string(length, 'x'), &received)) << length;
  }
}

}  // namespace
}  // namespace gradring
