#include "proto/types.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>
#include <string>

namespace gradring {
namespace {

TEST(Types, EveryNameIsReadBackAndUnique) {
  std::set<std::string_view> names;
  for (uint8_t i = 1; i <= kDtypeLast; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    names.insert(name_of(dtype));
  }
  for (uint8_t i = 1; i <= kReduceOpLast; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(name_of(op)), op);
    names.insert(name_of(op));
  }
  for (uint8_t i = 1; i <= kCollectiveLast; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(name_of(collective)), collective);
    names.insert(name_of(collective));
  }
  for (uint8_t i = 0; i <= kWireTypeLast; ++i) {
    const auto wire = static_cast<WireType>(i);
    EXPECT_EQ(parse_wire_type(name_of(wire)), wire);
  }
  EXPECT_EQ(names.size(), size_t{kDtypeLast} + kReduceOpLast + kCollectiveLast);
}

TEST(Types, UnknownNamesAndNumbersAreNotGuessed) {
  for (const char* name : {"", "none", "Float32", "float", "float32 ", "unknown"}) {
    EXPECT_FALSE(parse_dtype(name).has_value()) << name;
    EXPECT_FALSE(parse_reduce_op(name).has_value()) << name;
    EXPECT_FALSE(parse_collective(name).has_value()) << name;
    EXPECT_FALSE(parse_wire_type(name).has_value()) << name;
  }
  EXPECT_EQ(size_of(static_cast<Dtype>(kDtypeLast + 1)), 0u);
  EXPECT_EQ(size_of(static_cast<Dtype>(0)), 0u);
  EXPECT_EQ(name_of(static_cast<ReduceOp>(200)), "unknown");
  EXPECT_EQ(name_of(static_cast<Collective>(200)), "unknown");
}

TEST(Types, SizesAndKinds) {
  struct Row {
    Dtype dtype;
    size_t bytes;
    bool integer;
  };
  for (const Row& row :
       {Row{Dtype::kFloat32, 4, false}, Row{Dtype::kFloat64, 8, false},
        Row{Dtype::kFloat16, 2, false}, Row{Dtype::kBfloat16, 2, false}, Row{Dtype::kInt8, 1, true},
        Row{Dtype::kInt16, 2, true}, Row{Dtype::kInt32, 4, true}, Row{Dtype::kInt64, 8, true},
        Row{Dtype::kUint8, 1, true}, Row{Dtype::kUint16, 2, true}, Row{Dtype::kUint32, 4, true},
        Row{Dtype::kUint64, 8, true}}) {
    EXPECT_EQ(size_of(row.dtype), row.bytes) << name_of(row.dtype);
    EXPECT_EQ(is_integer(row.dtype), row.integer) << name_of(row.dtype);
    EXPECT_EQ(is_float(row.dtype), !row.integer) << name_of(row.dtype);
  }
  for (const Dtype dtype : {Dtype::kBool, Dtype::kFloat8E4m3, Dtype::kFloat8E5m2}) {
    EXPECT_EQ(size_of(dtype), 1u);
    EXPECT_FALSE(is_integer(dtype) || is_float(dtype)) << name_of(dtype);
  }
  EXPECT_EQ((Signature{Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kSum, 0, 1000}.bytes()),
            8000u);
}

TEST(Types, PackedBytesAreThoseOfTheWireType) {
  EXPECT_EQ(packed_bytes(WireType::kNative, 1000), 4000u);
  EXPECT_EQ(packed_bytes(WireType::kFloat16, 1000), 2000u);
  EXPECT_EQ(packed_bytes(WireType::kBfloat16, 1000), 2000u);
  // A scale for each 256.
  EXPECT_EQ(packed_bytes(WireType::kInt8, 0), 0u);
  EXPECT_EQ(packed_bytes(WireType::kInt8, 1), 5u);
  EXPECT_EQ(packed_bytes(WireType::kInt8, 256), 260u);
  EXPECT_EQ(packed_bytes(WireType::kInt8, 257), 265u);
}

TEST(Types, OnlySumsOfFloat32HaveAWireType) {
  Signature s{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024};
  s.wire = WireType::kBfloat16;
  EXPECT_TRUE(is_sane(s));
  EXPECT_EQ(describe(s), "allreduce sum of 1024 float32, bf16 on the wire");
  s.collective = Collective::kBroadcast;
  EXPECT_FALSE(is_sane(s));
  s.collective = Collective::kAllreduce;
  s.dtype = Dtype::kFloat64;
  EXPECT_FALSE(is_sane(s));
}

TEST(Types, SignaturesAreDescribedForPeople) {
  EXPECT_EQ(describe(Signature{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024}),
            "allreduce sum of 1024 float32");
  EXPECT_EQ(describe(Signature{Collective::kBroadcast, Dtype::kInt64, ReduceOp::kNone, 3, 8}),
            "broadcast of 8 int64 from rank 3");
  EXPECT_EQ(describe(Signature{}), "barrier");
}

TEST(Types, CollectivesInBlocksAreDescribedForPeople) {
  using C = Collective;
  const auto described = [](C collective, ReduceOp op = ReduceOp::kNone) {
    return describe(Signature{collective, Dtype::kInt8, op, has_root(collective) ? 2u : 0u, 5, 3});
  };
  EXPECT_EQ(described(C::kAllgather), "allgather of 3 x 5 int8");
  EXPECT_EQ(described(C::kReduceScatter, ReduceOp::kMax), "reduce-scatter max of 3 x 5 int8");
  EXPECT_EQ(described(C::kReduce, ReduceOp::kSum), "reduce sum of 5 int8 of 3 ranks to rank 2");
  EXPECT_EQ(described(C::kGather), "gather of 3 x 5 int8 to rank 2");
  EXPECT_EQ(described(C::kScatter), "scatter of 3 x 5 int8 from rank 2");
  EXPECT_EQ(described(C::kAlltoall), "alltoall of 3 x 5 int8");
}

TEST(Types, EachRankGivesAndGetsWhatTheCollectiveSays) {
  using C = Collective;
  const auto extents = [](C collective) {
    const Signature s{collective,
                      Dtype::kInt16,
                      ReduceOp::kNone,
                      has_root(collective) ? 1u : 0u,
                      10,
                      needs_all_ranks(collective) ? 4u : 0u};
    EXPECT_TRUE(is_sane(s)) << name_of(collective);
    return std::array<Extent, 2>{extent_of(s, 1, 1), extent_of(s, 2, 2)};
  };
  using Both = std::array<Extent, 2>;
  EXPECT_EQ(extents(C::kAllreduce), (Both{Extent{20, 20}, Extent{20, 20}}));
  EXPECT_EQ(extents(C::kBroadcast), (Both{Extent{20, 20}, Extent{0, 20}}));
  EXPECT_EQ(extents(C::kBarrier), (Both{Extent{0, 0}, Extent{0, 0}}));
  EXPECT_EQ(extents(C::kAllgather), (Both{Extent{20, 80}, Extent{20, 80}}));
  EXPECT_EQ(extents(C::kReduceScatter), (Both{Extent{80, 20}, Extent{80, 20}}));
  EXPECT_EQ(extents(C::kReduce), (Both{Extent{20, 20}, Extent{20, 0}}));
  EXPECT_EQ(extents(C::kGather), (Both{Extent{20, 80}, Extent{20, 0}}));
  EXPECT_EQ(extents(C::kScatter), (Both{Extent{80, 20}, Extent{0, 20}}));
  EXPECT_EQ(extents(C::kAlltoall), (Both{Extent{80, 80}, Extent{80, 80}}));
}

TEST(Types, InPlaceIsTheSameBufferOrTheOwnBlock) {
  const std::array<std::byte, 2000> memory{};
  const auto of = [&](Collective collective, size_t input, size_t output) {
    const Signature s{collective, Dtype::kInt16, ReduceOp::kNone, 0, 10, 4};
    return in_place(s, 2, &memory[input], &memory[output]);
  };
  EXPECT_TRUE(of(Collective::kAllreduce, 1000, 1000));
  EXPECT_FALSE(of(Collective::kAllreduce, 1000, 1002));
  EXPECT_TRUE(of(Collective::kAllgather, 1040, 1000));
  EXPECT_FALSE(of(Collective::kAllgather, 1020, 1000));
  EXPECT_TRUE(of(Collective::kGather, 1040, 1000));
  EXPECT_TRUE(of(Collective::kReduceScatter, 1000, 1040));
  EXPECT_FALSE(of(Collective::kReduceScatter, 1000, 1000));
  EXPECT_TRUE(of(Collective::kScatter, 1000, 1040));
  EXPECT_FALSE(of(Collective::kAlltoall, 1000, 1000));
}

TEST(Types, KeysAreDescribedForPeople) {
  EXPECT_EQ(describe(OpKey{0, 17}), "op 17");
  EXPECT_EQ(describe(OpKey{99, 2}), "named op 99 use 2");
  EXPECT_EQ(describe(OpKey{OpKey::kJoinSpace, 12}), "join point 12");
  EXPECT_EQ(describe(OpKey{OpKey::kNoMoreSpace, 0}), "join 0");
}

TEST(Types, OfALongNameMessagesShowTheBeginning) {
  EXPECT_EQ(shown_name("layer1.weight"), "layer1.weight");
  EXPECT_EQ(shown_name(std::string(128, 'a')), std::string(128, 'a'));
  EXPECT_EQ(shown_name(std::string(129, 'a')), std::string(125, 'a') + "...");
  const std::string odd = std::string(124, 'a') + "\u00e4" + std::string(9, 'a');
  EXPECT_EQ(shown_name(odd), std::string(124, 'a') + "...") << "no half of a character";
}

TEST(Types, KeysAreOrderedBySpaceThenSequence) {
  EXPECT_LT((OpKey{0, 9}), (OpKey{1, 0}));
  EXPECT_LT((OpKey{1, 0}), (OpKey{1, 1}));
  EXPECT_EQ((OpKey{4, 5}), (OpKey{4, 5}));
}

TEST(Types, JobIdsArePrintedAsHexadecimal) {
  const JobId id = {0x00, 0x01, 0x0a, 0xff, 0x10, 0x7f, 0x80, 0xab,
                    0xcd, 0xef, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc};
  EXPECT_EQ(hex(id), "00010aff107f80abcdef123456789abc");
}

}  // namespace
}  // namespace gradring
