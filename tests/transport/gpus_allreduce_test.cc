// Sums whose result goes to memory of GPUs, and to no host's.

#include <gmock/gmock.h>

#include <string>

#include "tests/transport/fold_kinds.h"
#include "tests/transport/gpus_fixture.h"
#include "transport/reducer.h"

namespace gradring::transport {
namespace {

using fold_kinds::all_kinds;
using fold_kinds::describe;
using fold_kinds::Kind;
using ::testing::HasSubstr;

class GpuAllreduce : public GpusOfTheDaemon {
 protected:
  // Memory of one rank, of which the elements from `offset` on take part.
  struct Rank {
    Memory memory;
    uint64_t address = 0;
    GpuRange range;
    Bytes before;
    size_t skipped = 0;  // bytes
  };
  Rank rank(const Kind& kind, size_t offset, size_t count, int gpu = 0) {
    Rank made;
    made.before.resize((offset + count) * size_of(kind.dtype));
    fold_kinds::fill(random_, size_of(kind.dtype), made.before.data(), offset + count);
    made.address = allocate(made.before, 0, gpu);
    made.memory = open(made.address, 0, made.before.size());
    made.skipped = offset * size_of(kind.dtype);
    made.range = {made.memory.get(), made.skipped};
    return made;
  }
  Bytes now(const Rank& rank) const {
    const auto* const from = static_cast<const std::byte*>(twin_.behind(rank.address));
    return {from, from + rank.before.size()};
  }
  // What the host would make of them.
  static Bytes sum_of(const Kind& kind, const std::vector<Rank>& ranks, size_t count,
                      uint32_t divisor, const Scale& scale = {}) {
    Bytes sum(count * size_of(kind.dtype));
    std::vector<const void*> inputs;
    for (const Rank& rank : ranks) inputs.push_back(rank.before.data() + rank.skipped);
    fold(kind.dtype, kind.op, inputs, sum.data(), count, divisor, scale);
    return sum;
  }
  void in_place(const Kind& kind, size_t count, const std::vector<size_t>& offsets,
                uint32_t divisor = 0, int gpus = 1, const Scale& scale = {}) {
    std::vector<Rank> ranks;
    std::vector<GpuRange> ranges;
    for (size_t i = 0; i < offsets.size(); ++i) {
      ranks.push_back(rank(kind, offsets[i], count, static_cast<int>(i) % gpus));
      ranges.push_back(ranks.back().range);
    }
    const Gpus::Allreduce all{kind.dtype, kind.op, ranges,       ranges,
                              divisor,    count,   scale.inputs, scale.result};
    const Status begun = gpus_->begin(all, 9);
    ASSERT_TRUE(begun.ok()) << begun.message();
    ends_well(9);
    const Bytes sum = sum_of(kind, ranks, count, divisor, scale);
    for (const Rank& rank : ranks) {
      Bytes expected = rank.before;
      std::copy(sum.begin(), sum.end(), expected.begin() + static_cast<ptrdiff_t>(rank.skipped));
      ASSERT_TRUE(now(rank) == expected) << describe(kind) << ", " << count << ", / " << divisor;
    }
  }
};

TEST_F(GpuAllreduce, IsThatOfTheReducerForEveryTypeAndOperation) {
  for (const Kind& kind : all_kinds()) {
    in_place(kind, 67, {0, 0, 0});
    in_place(kind, 33, {3, 3});
    in_place(kind, 41, {1, 0, 5, 2});
    in_place(kind, 5, {0});
  }
}

TEST_F(GpuAllreduce, IsDividedForAnAverage) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    in_place({dtype, ReduceOp::kAverage}, 1001, {0, 0, 0}, 3);
  }
}

TEST_F(GpuAllreduce, IsScaledByAFactorForEachInputAndOneOfTheResult) {
  const std::vector<double> factors = {0.1, 1, -3};
  for (const Kind& kind : all_kinds()) {
    if (!is_float(kind.dtype)) continue;
    const uint32_t divisor = kind.op == ReduceOp::kAverage ? 3 : 0;
    in_place(kind, 67, {0, 0, 0}, divisor, 1, {factors, 0.3});
    in_place(kind, 67, {1, 0, 2}, divisor, 1, {factors, 1});
    in_place(kind, 33, {3, 3}, divisor, 1, {{}, 10});
    in_place(kind, 5, {0}, 0, 1, {std::span(factors).first(1), 1});
  }
}

TEST_F(GpuAllreduce, OfMoreThanOnePieceIsWholeInAllOfThem) {
  in_place({Dtype::kFloat32, ReduceOp::kSum}, (size_t{9} << 20) / sizeof(float) + 3, {0, 1});
}

TEST_F(GpuAllreduce, GoesOverSeveralGpus) {
  have(3);
  for (int turn = 0; turn < 3; ++turn) {
    in_place({Dtype::kFloat32, ReduceOp::kSum}, 10'001, {0, 0, 0, 0}, 0, 3);
  }
}

TEST_F(GpuAllreduce, LeavesItsInputsAloneWhereItIsNotInPlace) {
  const Kind kind{Dtype::kFloat32, ReduceOp::kSum};
  const std::vector<Rank> inputs = {rank(kind, 0, 1000), rank(kind, 0, 1000)};
  const Rank output = rank(kind, 7, 1000);
  const std::vector<GpuRange> from = {inputs[0].range, inputs[1].range}, to = {output.range};
  ASSERT_TRUE(gpus_->begin({kind.dtype, kind.op, from, to, 0, 1000}, 9).ok());
  ends_well(9);
  for (const Rank& input : inputs) EXPECT_TRUE(now(input) == input.before);
  const Bytes sum = sum_of(kind, inputs, 1000, 0);
  EXPECT_TRUE(std::equal(sum.begin(), sum.end(), now(output).begin() + 28));
}

TEST_F(GpuAllreduce, ThatWouldHarmIsRefusedBeforeAnythingBegins) {
  const Kind floats{Dtype::kFloat32, ReduceOp::kSum};
  const Rank good = rank(floats, 0, 100), odd = rank({Dtype::kUint8, ReduceOp::kSum}, 1, 500);
  const std::vector<GpuRange> one = {good.range}, misaligned = {odd.range};
  const std::vector<GpuRange> many(kGpuInputsMax + 1, good.range);
  const auto told = [&](const Gpus::Allreduce& all) { return gpus_->begin(all, 9).message(); };
  EXPECT_THAT(told({floats.dtype, floats.op, one, {}, 0, 10}), HasSubstr("0 outputs"));
  EXPECT_THAT(told({floats.dtype, floats.op, {}, one, 0, 10}), HasSubstr("0 inputs"));
  EXPECT_THAT(told({floats.dtype, floats.op, one, many, 0, 10}), HasSubstr("65 outputs"));
  EXPECT_THAT(told({floats.dtype, floats.op, one, one, 0, 101}), HasSubstr("do not fit"));
  EXPECT_THAT(told({floats.dtype, floats.op, one, misaligned, 0, 10}), HasSubstr("not aligned"));
  EXPECT_THAT(told({Dtype::kInt32, ReduceOp::kSum, one, one, 2, 10}), HasSubstr("only floats"));
  EXPECT_THAT(told({Dtype::kInt32, ReduceOp::kSum, one, one, 0, 10, {}, 0.5}),
              HasSubstr("only floats are multiplied"));
  EXPECT_THAT(told({floats.dtype, ReduceOp::kNone, one, one, 0, 10}),
              HasSubstr("no reduction number 0"));
  EXPECT_FALSE(gpus_->busy());
}

TEST_F(GpuAllreduce, OfNothingEndsAtOnce) {
  const Rank some = rank({Dtype::kFloat32, ReduceOp::kSum}, 0, 1);
  const std::vector<GpuRange> one = {some.range};
  ASSERT_TRUE(gpus_->begin({Dtype::kFloat32, ReduceOp::kSum, one, one, 0, 0}, 9).ok());
  ends_well(9);
  EXPECT_TRUE(now(some) == some.before);
}

}  // namespace
}  // namespace gradring::transport
