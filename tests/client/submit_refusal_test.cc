// What libgradring refuses by itself, in words, before the daemon hears of it.
#include <gmock/gmock.h>

#include <cstring>
#include <vector>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class SubmitRefusal : public ::testing::Test {
 protected:
  // The sentence of the refusal; nothing may have been sent.
  std::string refused(const gradring_op& op, gradring_code expected = GRADRING_ERR_INVALID) {
    gradring_request request = 99;
    EXPECT_EQ(gradring_submit(comm_.get(), &op, &request), expected);
    EXPECT_EQ(request, 0u);
    EXPECT_TRUE(daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 0).empty());
    return gradring_last_error();
  }
  gradring_op sum() const { return sum_of(memory_, memory_, kCount); }

  // An enumeration's field may hold any number in C.
  template <class Enum>
  static void put(Enum& field, uint32_t number) {
    std::memcpy(&field, &number, sizeof(number));
  }

  static constexpr uint64_t kCount = 1024;
  FakeDaemon daemon_;
  Comm comm_ = open(daemon_, 1, 4);
  float* memory_ = alloc(comm_, kCount);
};

TEST_F(SubmitRefusal, OfAWireTypeWhereThereIsNone) {
  gradring_op op = sum();
  put(op.wire, 5);
  EXPECT_THAT(refused(op), HasSubstr("wire 5 does not exist"));
  op.wire = GRADRING_WIRE_INT8;
  op.dtype = GRADRING_FLOAT64;
  op.count = 8;
  EXPECT_THAT(refused(op), HasSubstr("allreduce of float64 has no wire type"));
  op.dtype = GRADRING_FLOAT32;
  op.collective = GRADRING_BROADCAST;
  EXPECT_THAT(refused(op), HasSubstr("broadcast of float32 has no wire type"));
}

TEST_F(SubmitRefusal, OfAFactorWhereThereIsNone) {
  gradring_op op = sum();
  op.prescale = 1e300;
  EXPECT_THAT(refused(op), HasSubstr("1e+300 is nothing to scale by"));
  op = sum();
  op.postscale = 2;
  op.dtype = GRADRING_INT32;
  EXPECT_THAT(refused(op), HasSubstr("allreduce of int32 cannot be scaled"));
  op.dtype = GRADRING_FLOAT32;
  op.collective = GRADRING_BROADCAST;
  EXPECT_THAT(refused(op), HasSubstr("broadcast of float32 cannot be scaled"));
}

TEST_F(SubmitRefusal, OfCountsThatAreNotThoseOfTheOp) {
  const std::vector<uint64_t> counts(4 * 4, kCount);
  gradring_op op = sum();
  op.counts = counts.data();
  op.counts_length = 4;
  EXPECT_THAT(refused(op), HasSubstr("allreduce has no blocks; leave counts out"));
  op.collective = GRADRING_REDUCE_SCATTER;
  op.counts_length = 3;
  EXPECT_THAT(refused(op), HasSubstr("3 counts for reduce-scatter of 4 ranks, which has 4"));
  op.collective = GRADRING_ALLTOALL;
  op.counts_length = 4;
  EXPECT_THAT(refused(op), HasSubstr("4 counts for alltoall of 4 ranks, which has 16"));
  op.ranks = 129;
  op.counts_length = 129 * 129;
  EXPECT_THAT(refused(op), HasSubstr("16641 counts; there may be 16384"));
  op.counts = nullptr;
  EXPECT_THAT(refused(op), HasSubstr("counts is NULL"));
  op = sum();
  op.collective = GRADRING_GATHER;
  const std::vector<uint64_t> endless = {UINT64_MAX, 1, 2, 3};
  op.counts = endless.data();
  op.counts_length = 4;
  EXPECT_THAT(refused(op), HasSubstr("more than any memory holds"));
}

TEST_F(SubmitRefusal, OfValuesOutsideTheEnumerations) {
  for (const uint32_t number : {0u, 4u, 0xffffffffu}) {
    gradring_op op = sum();
    put(op.collective, number);
    EXPECT_THAT(refused(op), HasSubstr("collective " + std::to_string(number)));
  }
  for (const uint32_t number : {0u, 16u, 0xffffffffu}) {
    gradring_op op = sum();
    put(op.dtype, number);
    EXPECT_THAT(refused(op), HasSubstr("dtype " + std::to_string(number)));
  }
  for (const uint32_t number : {0u, 9u, 0xffffffffu}) {
    gradring_op op = sum();
    put(op.op, number);
    EXPECT_THAT(refused(op), HasSubstr("op " + std::to_string(number)));
  }
}

// A later release may use it, and an op that leaves it as it was in memory must not say so then.
TEST_F(SubmitRefusal, OfAReservedFieldThatIsNotZero) {
  gradring_op op = sum();
  op.reserved = 7;
  EXPECT_THAT(refused(op, GRADRING_ERR_INCOMPATIBLE), HasSubstr("gradring_op.reserved is 7"));
  op.collective = GRADRING_BARRIER;
  EXPECT_THAT(refused(op, GRADRING_ERR_INCOMPATIBLE), HasSubstr("gradring_op.reserved is 7"));
}

TEST_F(SubmitRefusal, OfTheAverageOfIntegers) {
  for (const gradring_dtype dtype :
       {GRADRING_INT8, GRADRING_INT16, GRADRING_INT32, GRADRING_INT64, GRADRING_UINT8}) {
    gradring_op op = sum();
    op.dtype = dtype;
    op.count = 8;
    op.op = GRADRING_AVERAGE;
    EXPECT_THAT(refused(op), HasSubstr("the average of "));
  }
}

TEST_F(SubmitRefusal, OfARootThatDoesNotExist) {
  gradring_op op = sum();
  op.collective = GRADRING_BROADCAST;
  op.root = 4;
  EXPECT_THAT(refused(op), HasSubstr("root 4 does not exist in a job of size 4"));
}

TEST_F(SubmitRefusal, OfMemoryThatNobodyLent) {
  float on_stack[4] = {};
  EXPECT_THAT(refused(sum_of(on_stack, on_stack, 4), GRADRING_ERR_NOT_FOUND), HasSubstr("input"));
  EXPECT_THAT(refused(sum_of(memory_, nullptr, 4), GRADRING_ERR_NOT_FOUND), HasSubstr("output"));
  EXPECT_THAT(refused(sum_of(nullptr, memory_, 4), GRADRING_ERR_NOT_FOUND), HasSubstr("input"));
  // One byte before, and just behind: pages are larger than the buffer, but not the user's.
  EXPECT_THAT(refused(sum_of(memory_ - 1, memory_ - 1, 1), GRADRING_ERR_NOT_FOUND),
              HasSubstr("not within"));
  float* small = alloc(comm_, 3);
  EXPECT_THAT(refused(sum_of(small, small, 4), GRADRING_ERR_NOT_FOUND), HasSubstr("pass the end"));
  EXPECT_THAT(refused(sum_of(small + 3, small + 3, 1), GRADRING_ERR_NOT_FOUND),
              HasSubstr("not within"));
}

TEST_F(SubmitRefusal, OfRangesWhoseEndWrapsAround) {
  EXPECT_THAT(refused(sum_of(memory_, memory_, UINT64_MAX)),
              HasSubstr("allreduce sum of 18446744073709551615 float32 is more than any memory"));
  EXPECT_THAT(refused(sum_of(memory_, memory_, UINT64_MAX / 4 + 1)), HasSubstr("more than any"));
  for (float* start : {memory_, memory_ + 1}) {
    EXPECT_THAT(refused(sum_of(start, start, kCountMax + 1)), HasSubstr("more than any memory"));
    EXPECT_THAT(refused(sum_of(start, start, kCountMax), GRADRING_ERR_NOT_FOUND),
                HasSubstr("pass the end"));
  }
}

TEST_F(SubmitRefusal, OfInputAndOutputThatOverlapWithoutBeingEqual) {
  EXPECT_THAT(refused(sum_of(memory_, memory_ + 1, 8)), HasSubstr("overlap"));
  EXPECT_THAT(refused(sum_of(memory_ + 7, memory_, 8)), HasSubstr("overlap"));
  EXPECT_NE(submit(comm_, sum_of(memory_ + 8, memory_, 8)), 0u);
}

TEST_F(SubmitRefusal, OfMemoryThatIsNotAlignedToTheElement) {
  auto* crooked = reinterpret_cast<float*>(reinterpret_cast<char*>(memory_) + 2);
  EXPECT_THAT(refused(sum_of(crooked, crooked, 1)), HasSubstr("aligned"));
}

TEST_F(SubmitRefusal, OfBadNames) {
  gradring_op op = barrier_op();
  op.name = "";
  EXPECT_THAT(refused(op), HasSubstr("empty"));
  const std::string long_name(513, 'n');
  op.name = long_name.c_str();
  EXPECT_THAT(refused(op), HasSubstr("longer than 512"));
  for (const char* bytes : {"\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    op.name = bytes;
    EXPECT_THAT(refused(op), HasSubstr("UTF-8"));
  }
  op.name = "Gewicht \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80";
  EXPECT_NE(submit(comm_, op), 0u);
}

TEST_F(SubmitRefusal, OfNullAndUnsetSizes) {
  gradring_request request = 0;
  EXPECT_EQ(gradring_submit(comm_.get(), nullptr, &request), GRADRING_ERR_INVALID);
  gradring_op op = sum();
  EXPECT_EQ(gradring_submit(comm_.get(), &op, nullptr), GRADRING_ERR_INVALID);
  op.struct_size = 8;
  EXPECT_THAT(refused(op), HasSubstr("struct_size"));
  op.struct_size = offsetof(gradring_op, counts) + 4;
  EXPECT_THAT(refused(op), HasSubstr("struct_size is 92, which no such structure has"));
}

}  // namespace
}  // namespace gradring::test
