// That the reference knows right from wrong.

#include "tests/differential/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace gradring::differential {
namespace {

using testing::HasSubstr;

Op op_of(gradring_collective collective, uint32_t size, uint64_t count) {
  Op op;
  op.collective = collective;
  op.dtype = Dtype::kInt32;
  op.op = ReduceOp::kSum;
  op.size = size;
  op.count = count;
  return op;
}

std::vector<uint32_t> input_of(const Op& op, uint32_t rank, uint64_t count) {
  const Bytes cycle = cycle_of(7, op, rank, count);
  std::vector<uint32_t> values(count);
  repeat(cycle, reinterpret_cast<std::byte*>(values.data()), count * sizeof(uint32_t));
  return values;
}

class ReferenceTest : public testing::Test {
 protected:
  std::string fault(const Op& op, uint32_t rank, const std::vector<uint32_t>& output) {
    const Reference reference(program_, op, std::vector<uint32_t>(op.size, 0));
    for (const Piece& piece : reference.pieces_for(rank)) {
      std::string wrong =
          reference.fault_in(piece, rank, reinterpret_cast<const std::byte*>(output.data()));
      if (!wrong.empty()) return wrong;
    }
    return "";
  }
  Program program_ = [] {
    Program program;
    program.seed = 7;
    return program;
  }();
};

TEST_F(ReferenceTest, ASumIsThatOfAllRanks) {
  const Op op = op_of(GRADRING_ALLREDUCE, 3, 3000);
  std::vector<uint32_t> sum(op.count);
  for (uint32_t rank = 0; rank < op.size; ++rank) {
    const auto input = input_of(op, rank, op.count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
  }
  EXPECT_EQ(fault(op, 1, sum), "");
  ++sum[2999];
  EXPECT_THAT(fault(op, 1, sum), HasSubstr("element 2999"));
}

TEST_F(ReferenceTest, UnevenBlocksLieOneBehindTheOther) {
  Op op = op_of(GRADRING_ALLTOALL, 2, 0);
  op.counts = {1, 2, 3, 4};  // rank 0 gives 1 and 2, rank 1 gives 3 and 4
  const auto first = input_of(op, 0, 3), second = input_of(op, 1, 7);
  const std::vector<uint32_t> taken = {first[1],  first[2],  second[3],
                                       second[4], second[5], second[6]};
  EXPECT_EQ(extents_of(op, 1).input, 7u);
  EXPECT_EQ(extents_of(op, 1).output, taken.size());
  EXPECT_EQ(fault(op, 1, taken), "");
  EXPECT_THAT(fault(op, 0, taken), HasSubstr("element 0"));
}

// Three members with one rank each: ring order, from whichever begins.
TEST_F(ReferenceTest, FractionsAreAddedInTheOrderOfTheRing) {
  Op op = op_of(GRADRING_REDUCE, 3, 64);
  op.dtype = Dtype::kFloat32;
  op.values = Values::kFractions;
  op.root = 1;
  const Reference reference(program_, op, {5, 6, 7});
  std::vector<std::vector<float>> inputs;
  for (uint32_t rank = 0; rank < op.size; ++rank) {
    const auto bits = input_of(op, rank, op.count);
    inputs.emplace_back(op.count);
    std::memcpy(inputs.back().data(), bits.data(), op.count * sizeof(float));
  }
  std::vector<float> right(op.count), wrong(op.count);
  for (size_t i = 0; i < op.count; ++i) {
    right[i] = (inputs[2][i] + inputs[0][i]) + inputs[1][i];
    wrong[i] = (inputs[0][i] + inputs[1][i]) + inputs[2][i];
  }
  const Piece piece = reference.pieces_for(1).at(0);
  EXPECT_EQ(reference.fault_in(piece, 1, reinterpret_cast<std::byte*>(right.data())), "");
  EXPECT_NE(reference.fault_in(piece, 1, reinterpret_cast<std::byte*>(wrong.data())), "");
  EXPECT_TRUE(reference.pieces_for(0).empty());
}

// As the GPUs of a node do it, where what each node does is its own affair.
TEST_F(ReferenceTest, ANodesSumMayBeMadeFirst) {
  Op op = op_of(GRADRING_ALLREDUCE, 4, kPeriod);
  op.dtype = Dtype::kBfloat16;
  op.values = Values::kFractions;
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < op.size; ++rank) inputs.push_back(cycle_of(7, op, rank, kPeriod));
  const auto add = [&](const std::vector<const std::byte*>& from) {
    return fold_reference::fold(op.dtype, op.op, from, kPeriod, 0);
  };
  const Bytes first = add({inputs[0].data(), inputs[1].data()});
  const Bytes second = add({inputs[2].data(), inputs[3].data()});
  const Bytes sum = add({second.data(), first.data()});
  const auto fault = [&](bool node_sums) {
    const Reference reference(program_, op, {0, 0, 1, 1}, {node_sums, {}});
    return reference.fault_in({0, 0, kPeriod, 0}, 0, sum.data());
  };
  EXPECT_EQ(fault(true), "");
  EXPECT_THAT(fault(false), HasSubstr("of the output is")) << "it is rounded once more";
}

}  // namespace
}  // namespace gradring::differential
