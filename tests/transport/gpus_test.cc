#include <gmock/gmock.h>

#include <chrono>
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
using ::testing::StartsWith;

class GpuSumsTest : public GpusOfTheDaemon {
 protected:
  Bytes values(const Kind& kind, size_t count) {
    Bytes bytes(count * size_of(kind.dtype));
    fold_kinds::fill(random_, size_of(kind.dtype), bytes.data(), count);
    return bytes;
  }

  // Inputs of `count` elements, each so many elements into an allocation.
  void check(const Kind& kind, size_t count, const std::vector<size_t>& offsets,
             const std::vector<double>& factors = {}) {
    const size_t element = size_of(kind.dtype);
    std::vector<Bytes> values_of(offsets.size());
    std::vector<Memory> memory;
    std::vector<GpuRange> inputs;
    std::vector<const void*> plain;
    for (size_t i = 0; i < offsets.size(); ++i) {
      values_of[i] = values(kind, offsets[i] + count);
      memory.push_back(lend(values_of[i]));
      inputs.push_back({memory.back().get(), offsets[i] * element});
      plain.push_back(values_of[i].data() + offsets[i] * element);
    }
    Bytes expected(count * element), out(count * element);
    fold(kind.dtype, kind.op, plain, expected.data(), count, 0, {factors});
    const Status begun = gpus_->begin({kind.dtype, kind.op, inputs, out.data(), count, factors}, 7);
    ASSERT_TRUE(begun.ok()) << begun.message();
    ends_well(7);
    EXPECT_TRUE(out == expected) << describe(kind) << ", " << count << " of " << offsets.size();
  }

  Status sum_floats(const std::vector<GpuRange>& inputs, std::byte* out, uint64_t count) {
    return gpus_->begin({Dtype::kFloat32, ReduceOp::kSum, inputs, out, count}, 1);
  }
};

TEST_F(GpuSumsTest, AreThoseOfTheReducerForEveryTypeAndOperation) {
  for (const Kind& kind : all_kinds()) {
    check(kind, 67, {0, 0, 0});
    check(kind, 33, {3, 3});
    check(kind, 41, {1, 0, 5, 2});
    check(kind, 1, {0, 7});
  }
}

TEST_F(GpuSumsTest, OfFloatsAreScaledByAFactorForEachInput) {
  for (const Kind& kind : all_kinds()) {
    if (!is_float(kind.dtype)) continue;
    check(kind, 67, {0, 0, 0}, {0.1, 1, -3});
    check(kind, 33, {3, 3}, {1.0 / 3});
    check(kind, 41, {1}, {0.1});
  }
  check({Dtype::kFloat32, ReduceOp::kSum}, (size_t{9} << 20) / sizeof(float), {0, 0}, {0.1, 0.3});
  check({Dtype::kInt32, ReduceOp::kSum}, 10, {0, 0}, {1, 1});
}

TEST_F(GpuSumsTest, TakeAsManyInputsAsTheyMay) {
  check({Dtype::kBfloat16, ReduceOp::kSum}, 19, std::vector<size_t>(kGpuInputsMax, 1));
}

TEST_F(GpuSumsTest, OfMoreThanOnePieceAreWholeInAllOfThem) {
  constexpr size_t kCount = (size_t{9} << 20) / sizeof(float) + 3;
  check({Dtype::kFloat32, ReduceOp::kSum}, kCount, {0, 0});
  check({Dtype::kFloat32, ReduceOp::kMax}, kCount, {1, 1, 1});
  check({Dtype::kUint8, ReduceOp::kBxor}, kCount, {1, 2});
}

TEST_F(GpuSumsTest, OfOneInputAreACopyOfItWhateverItIs) {
  const Bytes values = random_bytes(10'001);
  const Memory memory = lend(values, 3);
  const std::vector<GpuRange> input = {{memory.get(), 1}};
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat8E5m2}) {
    Bytes out(10'000);
    ASSERT_TRUE(gpus_->begin({dtype, ReduceOp::kNone, input, out.data(), out.size()}, 3).ok());
    ends_well(3);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), values.begin() + 1));
  }
}

TEST_F(GpuSumsTest, MayBePartsOfTheSameMemory) {
  const std::vector<float> values = {1, 2, 30, 40};
  Bytes bytes(16);
  std::memcpy(bytes.data(), values.data(), 16);
  const Memory memory = lend(bytes);
  std::vector<float> out(2);
  ASSERT_TRUE(sum_floats({{memory.get(), 0}, {memory.get(), 8}},
                         reinterpret_cast<std::byte*>(out.data()), 2)
                  .ok());
  ends_well(1);
  EXPECT_EQ(out, (std::vector<float>{31, 42}));
}

TEST_F(GpuSumsTest, OfNothingEndAtOnce) {
  const Memory memory = lend(Bytes(4));
  EXPECT_FALSE(gpus_->busy());
  ASSERT_TRUE(sum_floats({{memory.get(), 4}, {memory.get(), 0}}, nullptr, 0).ok());
  ASSERT_TRUE(gpus_->begin({nullptr, {}, 0}, 2).ok());
  EXPECT_TRUE(gpus_->busy());
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].ticket, 1u);
  EXPECT_EQ(ended[1].ticket, 2u);
  EXPECT_FALSE(gpus_->busy());
}

TEST_F(GpuSumsTest, ThatWouldHarmAreRefusedBeforeAnythingBegins) {
  const Memory memory = lend(Bytes(64));
  const GpuRange all{memory.get(), 0};
  Bytes out(64, std::byte{9});
  const auto refused = [&](const std::vector<GpuRange>& inputs, uint64_t count, Dtype dtype,
                           ReduceOp op) {
    const Status status = gpus_->begin({dtype, op, inputs, out.data(), count}, 1);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_FALSE(gpus_->busy());
    return status.message();
  };
  const auto floats = [&](const std::vector<GpuRange>& inputs, uint64_t count) {
    return refused(inputs, count, Dtype::kFloat32, ReduceOp::kSum);
  };
  EXPECT_THAT(floats({}, 1), HasSubstr("0 inputs"));
  EXPECT_THAT(floats(std::vector<GpuRange>(kGpuInputsMax + 1, all), 1), HasSubstr("65 inputs"));
  EXPECT_THAT(floats({all, {nullptr, 0}}, 1), HasSubstr("missing"));
  EXPECT_THAT(floats({all, {memory.get(), 2}}, 1), HasSubstr("aligned"));
  EXPECT_THAT(floats({all, all}, 17), HasSubstr("do not fit"));
  EXPECT_THAT(floats({all, {memory.get(), 4}}, 16), HasSubstr("do not fit"));
  EXPECT_THAT(floats({{memory.get(), 68}}, 0), HasSubstr("do not fit"));
  EXPECT_THAT(floats({all}, (uint64_t{1} << 62) + 1),
              HasSubstr("do not fit"));  // 4 bytes, mod 2^64
  refused({all, all}, 1, Dtype::kFloat32, ReduceOp::kBxor);
  refused({all}, 1, static_cast<Dtype>(99), ReduceOp::kSum);
  const std::vector<GpuRange> one = {all};
  const std::vector<double> half = {0.5};
  for (const Dtype dtype : {Dtype::kInt32, Dtype::kFloat8E5m2}) {
    EXPECT_EQ(gpus_->begin({dtype, ReduceOp::kSum, one, out.data(), 1, half}, 1).code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(gpus_->begin({out.data(), std::vector<GpuRange>{all}, 65}, 1).code(),
            Code::kInvalidArgument);
  let_gpus_work();
  EXPECT_EQ(out, Bytes(64, std::byte{9}));
}

TEST_F(GpuSumsTest, WorkUntilTheirGpuHasDoneThem) {
  const Memory memory = lend(random_bytes(64));
  Bytes out(64);
  const std::vector<GpuRange> inputs = {{memory.get(), 0}, {memory.get(), 0}};
  ASSERT_TRUE(sum_floats(inputs, out.data(), 16).ok());
  ends_well(1);  // its stream is there now
  twin_.hold_gpu(0, true);
  ASSERT_TRUE(sum_floats(inputs, out.data(), 16).ok());
  let_gpus_work();
  std::vector<Gpus::Ended> ended;
  gpus_->take_ended(&ended);
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(gpus_->busy());
  twin_.hold_gpu(0, false);
  ends_well(1);
}

// The driver may be busy with what somebody else has asked of it.
TEST_F(GpuSumsTest, EndWithoutAskingTheDriver) {
  const Memory memory = lend(random_bytes(64));
  Bytes out(64);
  const std::vector<GpuRange> inputs = {{memory.get(), 0}, {memory.get(), 0}};
  std::vector<Gpus::Ended> ended;
  for (uint64_t ticket = 0; ticket < 20; ++ticket) {
    ASSERT_TRUE(sum_floats(inputs, out.data(), 16).ok());
    let_gpus_work();
    const int entries = twin_.entries();
    gpus_->take_ended(&ended);
    EXPECT_EQ(twin_.entries(), entries);
    EXPECT_EQ(ended.size(), ticket + 1);
  }
  ASSERT_TRUE(sum_floats(inputs, out.data(), 16).ok());
  ends_well(1);
  twin_.hold_gpu(0, true);
  ASSERT_TRUE(sum_floats(inputs, out.data(), 16).ok());
  const int entries = twin_.entries();
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) gpus_->take_ended(&ended);
  const auto passed = std::chrono::steady_clock::now() - begun;
  EXPECT_LE(twin_.entries() - entries, passed / std::chrono::milliseconds(10) + 1);
  twin_.hold_gpu(0, false);
  ends_well(1);
}

TEST_F(GpuSumsTest, EndAlsoWhereADriverMarksNothing) {
  twin_.answer("cuStreamWriteValue32_v2", 801);
  check({Dtype::kFloat32, ReduceOp::kSum}, 33, {0, 0});
  twin_.answer("cuStreamWriteValue32_v2", 0);
  check({Dtype::kFloat32, ReduceOp::kSum}, 33, {0, 0});
}

// Whoever lent memory takes it back when the GPUs are gone.
TEST_F(GpuSumsTest, AreOverWhenTheGpusAreGone) {
  const Bytes values = random_bytes(64);
  const Memory memory = lend(values);
  Bytes out(64);
  ASSERT_TRUE(gpus_
                  ->begin({Dtype::kUint8, ReduceOp::kSum, std::vector<GpuRange>{{memory.get(), 0}},
                           out.data(), 64},
                          1)
                  .ok());
  gpus_.reset();
  EXPECT_EQ(out, values);
}

TEST_F(GpuSumsTest, EndWithWordsWhenTheirGpuFails) {
  const Memory memory = lend(random_bytes(64));
  Bytes out(64);
  const std::vector<GpuRange> two = {{memory.get(), 0}, {memory.get(), 0}};
  ASSERT_TRUE(gpus_->begin({out.data(), two, 64}, 0).ok());
  ASSERT_EQ(ends().size(), 1u);  // its stream is there now
  twin_.hold_gpu(0, true);
  twin_.answer("later", 700);
  ASSERT_TRUE(gpus_->begin({Dtype::kUint8, ReduceOp::kSum, two, out.data(), 64}, 1).ok());
  ASSERT_TRUE(gpus_->begin({out.data(), two, 64}, 2).ok());
  ASSERT_TRUE(gpus_->begin({Dtype::kUint8, ReduceOp::kMax, two, out.data(), 64}, 3).ok());
  twin_.hold_gpu(0, false);
  const auto ended = ends();
  twin_.answer("later", 0);
  ASSERT_EQ(ended.size(), 3u);
  for (const auto& [ticket, status] : ended) {
    EXPECT_EQ(status.code(), Code::kInternal) << ticket;
    EXPECT_THAT(status.message(), HasSubstr("has failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    EXPECT_THAT(status.message(), StartsWith("Twin (GPU-"));
  }
  // And from then on nothing is begun or opened.
  const Status refused = gpus_->begin({out.data(), two, 64}, 4);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(refused.message(), ended.at(1).message());
  const auto opened = gpus_->open(test::share_of(allocate(Bytes(8)), 0, 8));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kUnavailable);
  EXPECT_EQ(opened.error().message(), ended.at(1).message());
}

// A piece of it may be under way.
TEST_F(GpuSumsTest, ThatBeganInPartEndAllTheSame) {
  const Memory memory = lend(random_bytes(64));
  Bytes out(64);
  const std::vector<GpuRange> two = {{memory.get(), 0}, {memory.get(), 0}};
  twin_.answer("cuLaunchKernel", 719);
  const Status begun = gpus_->begin({Dtype::kUint8, ReduceOp::kSum, two, out.data(), 64}, 1);
  twin_.answer("cuLaunchKernel", 0);
  ASSERT_TRUE(begun.ok()) << begun.message();
  const auto ended = ends();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).code(), Code::kInternal);
  EXPECT_THAT(ended.at(1).message(), HasSubstr("error 719 of CUDA"));
}

}  // namespace
}  // namespace gradring::transport
