#include "proto/types.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(names.size(), size_t{kDtypeLast} + kReduceOpLast + kCollectiveLast);
}

TEST(Types, UnknownNamesAndNumbersAreNotGuessed) {
  for (const char* name : {"", "none", "Float32", "float", "float32 ", "unknown"}) {
    EXPECT_FALSE(parse_dtype(name).has_value()) << name;
    EXPECT_FALSE(parse_reduce_op(name).has_value()) << name;
    EXPECT_FALSE(parse_collective(name).has_value()) << name;
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
        Row{Dtype::kUint8, 1, true}}) {
    EXPECT_EQ(size_of(row.dtype), row.bytes) << name_of(row.dtype);
    EXPECT_EQ(is_integer(row.dtype), row.integer) << name_of(row.dtype);
  }
  EXPECT_EQ((Signature{Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kSum, 0, 1000}.bytes()),
            8000u);
}

TEST(Types, SignaturesAreDescribedForPeople) {
  EXPECT_EQ(describe(Signature{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024}),
            "allreduce sum of 1024 float32");
  EXPECT_EQ(describe(Signature{Collective::kBroadcast, Dtype::kInt64, ReduceOp::kNone, 3, 8}),
            "broadcast of 8 int64 from rank 3");
  EXPECT_EQ(describe(Signature{}), "barrier");
}

TEST(Types, KeysAreDescribedForPeople) {
  EXPECT_EQ(describe(OpKey{0, 17}), "op 17");
  EXPECT_EQ(describe(OpKey{99, 2}), "named op 99 use 2");
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
