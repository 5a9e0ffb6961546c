// Sums that travel packed, through real memory and the reducer, along a ring of nodes.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/daemon/data_node.h"
#include "transport/wire_format.h"

namespace gradring::daemon {
namespace {

constexpr WireType kPacked[] = {WireType::kFloat16, WireType::kBfloat16, WireType::kInt8};
constexpr size_t kElements = 80'000;  // above what goes as it is, and no whole number of slices

class DataWireTest : public DataThreadTest {
 protected:
  void SetUp() override {
    connect(a_, b_);
    view_ = view_of({{"a", 2}, {"b", 2}}, 1);
    a_.install(view_);
    b_.install(view_);
  }

  core::Submission submission(uint32_t rank, const Signature& signature, uint64_t space,
                              uint64_t sequence) {
    core::Submission one;
    one.rank = rank;
    one.ticket = ++ticket_;
    one.key = {space, sequence};
    one.signature = signature;
    one.position = rank;
    return one;
  }

  // Of four ranks, in place: where there are blocks, the result in the own one.
  void submit(const Signature& signature, std::vector<std::vector<float>>* data,
              uint64_t space = 0) {
    const uint64_t sequence = sequence_[space]++;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      auto* bytes = reinterpret_cast<std::byte*>((*data)[rank].data());
      const core::Submission one = submission(rank, signature, space, sequence);
      std::byte* output = bytes;
      if (in_blocks(signature.collective)) output += rank * signature.bytes();
      (rank < 2 ? a_ : b_).post(Submit{rank + 1000, view_.incarnation, one, bytes, output});
    }
  }
  void wait() {
    for (DataNode* node : {&a_, &b_}) {
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(node->next<Completed>().outcome.verdict, Verdict::kOk);
      }
    }
  }
  void run(const Signature& signature, std::vector<std::vector<float>>* data, uint64_t space = 0) {
    submit(signature, data, space);
    wait();
  }
  static Signature sum(WireType wire, size_t count = kElements) {
    Signature s{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count};
    s.wire = wire;
    return s;
  }
  // Of no power of two.
  static std::vector<std::vector<float>> thirds(size_t count = kElements) {
    std::vector<std::vector<float>> data;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      std::vector<float> one(count);
      for (size_t i = 0; i < count; ++i) {
        one[i] = static_cast<float>((i * 37 + rank * 101) % 997) / 3 - 160;
      }
      data.push_back(one);
    }
    return data;
  }
  static std::vector<float> through(WireType wire, const std::vector<float>& from) {
    std::vector<std::byte> packed(packed_bytes(wire, from.size()));
    std::vector<float> to(from.size());
    transport::pack(wire, from.data(), from.size(), packed.data());
    transport::unpack(wire, packed.data(), to.size(), to.data());
    return to;
  }

  DataNode a_{fabric_, "a"}, b_{fabric_, "b"};
  core::View view_;
  std::map<uint64_t, uint64_t> sequence_;
  uint64_t ticket_ = 0;
};

TEST_F(DataWireTest, AllRanksGetTheSameBitsCloseToTheSum) {
  for (const WireType wire : kPacked) {
    SCOPED_TRACE(name_of(wire));
    auto data = thirds();
    std::vector<float> exact(kElements, 0);
    for (const auto& one : data) {
      for (size_t i = 0; i < kElements; ++i) exact[i] += one[i];
    }
    run(sum(wire), &data);
    for (uint32_t rank = 1; rank < 4; ++rank) ASSERT_EQ(data[rank], data[0]) << rank;
    // Rounded when it leaves the first node and when it is final; magnitudes are below 700.
    const float step = wire == WireType::kFloat16    ? 0.5f
                       : wire == WireType::kBfloat16 ? 4
                                                     : 700.f / 127;
    bool rounded = false;
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(data[0][i], exact[i], step) << i;
      rounded = rounded || data[0][i] != exact[i];
    }
    EXPECT_TRUE(rounded) << "it went as it is";
  }
}

// To the bit: a node adds in float32, and rounds when it sends.
TEST_F(DataWireTest, EachNodeRoundsWhatItSends) {
  auto data = thirds();
  const auto node_sum = [&](uint32_t first) {
    std::vector<float> total(kElements);
    const std::vector<const void*> inputs = {data[first].data(), data[first + 1].data()};
    transport::fold(Dtype::kFloat32, ReduceOp::kSum, inputs, total.data(), kElements, 0);
    return total;
  };
  const std::vector<float> of_a = node_sum(0), of_b = node_sum(2);
  const auto onto = [&](uint32_t first, const std::vector<float>& came) {
    std::vector<float> total(kElements);
    const std::vector<const void*> inputs = {data[first].data(), data[first + 1].data(),
                                             came.data()};
    transport::fold(Dtype::kFloat32, ReduceOp::kSum, inputs, total.data(), kElements, 0);
    return through(WireType::kBfloat16, total);
  };
  const std::vector<float> ends_at_b = onto(2, through(WireType::kBfloat16, of_a));
  const std::vector<float> ends_at_a = onto(0, through(WireType::kBfloat16, of_b));
  run(sum(WireType::kBfloat16), &data);
  core::PlanOptions options;
  options.slice_bytes_max = kSliceBytes;
  const core::Plan plan = core::make_plan(sum(WireType::kBfloat16), 2, 0, {}, options);
  for (uint32_t slice = 0; slice < plan.slices; ++slice) {
    const auto& expected = plan.start_of(slice) == 0 ? ends_at_b : ends_at_a;
    const size_t at = plan.output_at(slice) / sizeof(float);
    for (size_t i = at; i < at + plan.length_of(slice) / sizeof(float); ++i) {
      ASSERT_EQ(data[0][i], expected[i]) << slice;
    }
  }
}

TEST_F(DataWireTest, SmallSumsGoAsTheyAre) {
  auto data = thirds(1000);
  std::vector<float> exact(1000, 0);
  for (const auto& one : data) {
    for (size_t i = 0; i < 1000; ++i) exact[i] += one[i];
  }
  run(sum(WireType::kInt8, 1000), &data);
  for (size_t i = 0; i < 1000; ++i) ASSERT_NEAR(data[3][i], exact[i], 1e-3);
}

TEST_F(DataWireTest, SumsThatStayOnTheirNodeAreNotRounded) {
  const core::View alone = view_of({{"a", 1}}, 2);
  a_.install(alone);
  std::vector<float> data = thirds()[0];
  const std::vector<float> before = data;
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  a_.post(Submit{1000, alone.incarnation, submission(0, sum(WireType::kInt8), 0, 0), bytes, bytes});
  ASSERT_EQ(a_.next<Completed>().outcome.verdict, Verdict::kOk);
  EXPECT_EQ(data, before);
}

TEST_F(DataWireTest, WhoBroughtANanIsNamedAsEver) {
  auto data = thirds();
  data[1][777] = std::numeric_limits<float>::quiet_NaN();
  submit(sum(WireType::kInt8), &data);
  const NonfiniteOrigin origin = a_.next<NonfiniteFound>().origin;
  EXPECT_EQ(origin.kind, NonfiniteOrigin::Kind::kNan);
  EXPECT_EQ(origin.rank, 1u);
  EXPECT_EQ(origin.element, 777u);
  wait();
  EXPECT_TRUE(std::isnan(data[3][777]));
}

TEST_F(DataWireTest, ReduceScatterEndsRoundedWhereItBelongs) {
  Signature s{Collective::kReduceScatter, Dtype::kFloat32, ReduceOp::kAverage, 0, kElements / 4, 4};
  s.wire = WireType::kBfloat16;
  auto data = thirds();
  const auto before = data;
  run(s, &data);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto begin = data[rank].begin() + rank * (kElements / 4);
    const std::vector<float> mine(begin, begin + kElements / 4);
    EXPECT_EQ(through(WireType::kBfloat16, mine), mine) << rank;
    for (size_t i = 0; i < mine.size(); ++i) {
      float exact = 0;
      for (const auto& one : before) exact += one[rank * kElements / 4 + i] / 4;
      ASSERT_NEAR(mine[i], exact, 1.5f) << rank << " " << i;
    }
  }
}

TEST_F(DataWireTest, RoundingOfNamedOpsIsMadeGoodInLaterSteps) {
  constexpr int kSteps = 20;
  const auto data = thirds();
  std::vector<double> exact(kElements, 0), named(kElements, 0), unnamed(kElements, 0);
  for (const auto& one : data) {
    for (size_t i = 0; i < kElements; ++i) exact[i] += kSteps * double{one[i]};
  }
  for (int step = 0; step < kSteps; ++step) {
    for (auto* total : {&named, &unnamed}) {
      auto round = data;
      run(sum(WireType::kInt8), &round, total == &named ? 7 : 0);
      for (size_t i = 0; i < kElements; ++i) (*total)[i] += round[0][i];
    }
  }
  const auto error = [&](const std::vector<double>& total) {
    double worst = 0;
    for (size_t i = 0; i < kElements; ++i) worst = std::max(worst, std::abs(total[i] - exact[i]));
    return worst;
  };
  const Pulse pulse = a_.next<Pulse>([](const Pulse& one) { return one.feedback_bytes_most > 0; });
  EXPECT_EQ(pulse.feedback_bytes_most, kElements * sizeof(float));
  EXPECT_LT(error(named), 2 * 700. / 127);
  EXPECT_GT(error(unnamed), 3 * error(named));
}

TEST_F(DataWireTest, AnOverflowOfTheWireIsNamed) {
  std::vector<std::vector<float>> data(4, std::vector<float>(kElements, 1.f));
  for (auto& one : data) one[12'345] = 20'000;
  submit(sum(WireType::kFloat16), &data);
  // 40,000 fits where it is first rounded, 80,000 does not where it becomes final.
  const uint32_t slice = 12'345 * sizeof(float) / kSliceBytes;
  DataNode& last = slice % 2 == 0 ? b_ : a_;
  const NonfiniteOrigin origin = last.next<NonfiniteFound>().origin;
  EXPECT_EQ(origin.kind, NonfiniteOrigin::Kind::kOverflow);
  EXPECT_EQ(origin.element, 12'345u);
  wait();
  EXPECT_EQ(data[2][12'345], std::numeric_limits<float>::infinity());
  EXPECT_EQ(data[2][12'344], 4.f);
}

}  // namespace
}  // namespace gradring::daemon
