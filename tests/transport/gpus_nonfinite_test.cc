// What GPUs say of sums that are not finite, which are looked at while they are made.

#include <gmock/gmock.h>

#include <limits>
#include <vector>

#include "tests/transport/fold_kinds.h"
#include "tests/transport/gpus_fixture.h"
#include "tests/transport/sum_findings.h"
#include "transport/cuda/traces.h"

namespace gradring::transport {
namespace {

using fold_kinds::Kind;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

class GpuNonfinite : public GpusOfTheDaemon {
 protected:
  // float32 on one GPU after the other, all of them 1.
  struct Ranks {
    std::vector<uint64_t> addresses;
    std::vector<Memory> memories;
    std::vector<GpuRange> ranges;
  };
  Ranks ranks(size_t many, size_t count, int gpus = 1) {
    Ranks made;
    const std::vector<float> ones(count, 1);
    Bytes bytes(count * sizeof(float));
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    for (size_t i = 0; i < many; ++i) {
      made.addresses.push_back(allocate(bytes, 0, static_cast<int>(i) % gpus));
      made.memories.push_back(open(made.addresses[i], 0, bytes.size()));
      made.ranges.push_back({made.memories[i].get(), 0});
    }
    return made;
  }
  float& value(const Ranks& ranks, size_t rank, size_t element) const {
    return static_cast<float*>(twin_.behind(ranks.addresses[rank]))[element];
  }
  static Gpus::Allreduce in_place(const Ranks& ranks, size_t count) {
    return {Dtype::kFloat32, ReduceOp::kSum, ranks.ranges, ranks.ranges, 0, count};
  }
  static constexpr size_t kLong = (size_t{9} << 20) / sizeof(float) + 3;  // three pieces
};

TEST_F(GpuNonfinite, IsWhatAnInputHadBeforeItWasOverwritten) {
  have(3);
  Ranks all = ranks(4, kLong, 3);
  value(all, 2, kLong - 7) = kNan;
  value(all, 2, kLong - 1) = std::numeric_limits<float>::infinity();
  value(all, 3, kLong - 5) = -std::numeric_limits<float>::infinity();
  value(all, 0, kLong - 2) = value(all, 1, kLong - 2) = kLargest;
  ASSERT_TRUE(gpus_->begin(in_place(all, kLong), 7).ok());
  ends_well(7);
  ASSERT_EQ(found_.count(7), 1u);
  const Gpus::Nonfinite& found = found_[7];
  EXPECT_EQ(found.first, kLong - 7);
  ASSERT_EQ(found.inputs.size(), 4u);
  EXPECT_EQ(found.inputs[0].many, 0u);
  EXPECT_EQ(found.inputs[2].many, 2u);
  EXPECT_EQ(found.inputs[2].first, kLong - 7);
  EXPECT_TRUE(found.inputs[2].nan);
  EXPECT_EQ(found.inputs[3].many, 1u);
  EXPECT_EQ(found.inputs[3].first, kLong - 5);
  EXPECT_FALSE(found.inputs[3].nan);
}

TEST_F(GpuNonfinite, IsSaidOfWhatComesToTheHostToo) {
  Ranks all = ranks(2, kLong);
  Bytes out(kLong * sizeof(float));
  value(all, 0, 5) = value(all, 1, 5) = kLargest;
  value(all, 1, kLong - 1) = kNan;
  ASSERT_TRUE(
      gpus_->begin({Dtype::kFloat32, ReduceOp::kSum, all.ranges, out.data(), kLong}, 3).ok());
  ends_well(3);
  ASSERT_EQ(found_.count(3), 1u);
  EXPECT_EQ(found_[3].first, 5u) << "which outgrew its type";
  EXPECT_EQ(found_[3].inputs[0].many, 0u);
  EXPECT_EQ(found_[3].inputs[1].first, kLong - 1);
}

// As the reducer would say it, with all that hurts: half of these values are any bits.
TEST_F(GpuNonfinite, IsWhatIsTrueForEveryTypeAndOperation) {
  for (const Kind& kind : fold_kinds::all_kinds()) {
    for (const std::vector<double>& factors : {std::vector<double>(), {0.1, 1, 1e30}}) {
      if (!is_float(kind.dtype) && !factors.empty()) continue;
      constexpr size_t kCount = 133;
      std::vector<Bytes> values(3, Bytes(kCount * size_of(kind.dtype)));
      std::vector<Memory> memories;
      std::vector<GpuRange> ranges;
      std::vector<const void*> plain;
      for (Bytes& one : values) {
        fold_kinds::fill(random_, size_of(kind.dtype), one.data(), kCount);
        memories.push_back(lend(one));
        ranges.push_back({memories.back().get(), 0});
        plain.push_back(one.data());
      }
      Bytes sum(kCount * size_of(kind.dtype));
      fold(kind.dtype, kind.op, plain, sum.data(), kCount, 0, {factors});
      const auto expected = sum_findings(kind.dtype, sum.data(), plain, kCount);
      ASSERT_TRUE(
          gpus_->begin({kind.dtype, kind.op, ranges, ranges, 0, kCount, factors, 1}, 1).ok());
      ends_well(1);
      ASSERT_EQ(found_.count(1), expected ? 1u : 0u) << describe(kind);
      if (!expected) continue;
      EXPECT_EQ(found_[1].first, expected->first) << describe(kind);
      for (size_t r = 0; r < 3; ++r) {
        ASSERT_EQ(found_[1].inputs[r].many, expected->inputs[r].many) << describe(kind);
        if (expected->inputs[r].many == 0) continue;
        ASSERT_EQ(found_[1].inputs[r].first, expected->inputs[r].first) << describe(kind);
        ASSERT_EQ(found_[1].inputs[r].nan, expected->inputs[r].nan) << describe(kind);
      }
    }
  }
}

TEST_F(GpuNonfinite, OfOneSumIsNotSaidOfAnother) {
  constexpr uint64_t kMany = 40;
  Ranks good = ranks(2, 1000);
  std::vector<Ranks> bad;
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) {
    if (ticket % 3 != 0) {
      ASSERT_TRUE(gpus_->begin(in_place(good, 1000), ticket).ok());
      continue;
    }
    value(bad.emplace_back(ranks(2, 1000)), ticket % 2, ticket) = kNan;
    ASSERT_TRUE(gpus_->begin(in_place(bad.back(), 1000), ticket).ok());
  }
  EXPECT_EQ(ends().size(), kMany);
  EXPECT_EQ(found_.size(), bad.size());
  for (const auto& [ticket, found] : found_) {
    EXPECT_EQ(ticket % 3, 0u);
    EXPECT_EQ(found.first, ticket);
    EXPECT_EQ(found.inputs[ticket % 2].many, 1u);
    EXPECT_EQ(found.inputs[1 - ticket % 2].many, 0u);
  }
  // And what is summed where those were is clean.
  Ranks more = ranks(2, 1000);
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) {
    ASSERT_TRUE(gpus_->begin(in_place(more, 1000), ticket).ok());
  }
  EXPECT_EQ(ends().size(), kMany);
  EXPECT_TRUE(found_.empty());
}

// More than can be watched at once are never on a stream.
TEST_F(GpuNonfinite, OfVeryManyIsSaidOfEach) {
  Ranks all = ranks(2, 16);
  value(all, 0, 3) = kNan;
  ASSERT_TRUE(gpus_->begin(in_place(all, 16), 1000).ok());
  ends_well(1000);
  twin_.hold_gpu(0, true);
  constexpr uint64_t kMany = cuda::Traces::kMany + 5;
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) {
    ASSERT_TRUE(gpus_->begin(in_place(all, 16), ticket).ok());
  }
  twin_.hold_gpu(0, false);
  EXPECT_EQ(ends().size(), kMany);
  EXPECT_EQ(found_.size(), kMany);
}

TEST_F(GpuNonfinite, OfAGpuThatFailsNothingIsSaid) {
  Ranks all = ranks(2, 16);
  value(all, 0, 3) = kNan;
  ASSERT_TRUE(gpus_->begin(in_place(all, 16), 1).ok());
  let_gpus_work();
  twin_.answer("later", 700);  // what was found does not come
  const auto ended = ends();
  twin_.answer("later", 0);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).code(), Code::kInternal);
  EXPECT_TRUE(found_.empty());
}

}  // namespace
}  // namespace gradring::transport
