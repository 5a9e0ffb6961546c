// Sums of scaled inputs, and scaled sums, through real memory and the reducer.

#include <gtest/gtest.h>

#include "tests/daemon/data_node.h"

namespace gradring::daemon {
namespace {

constexpr size_t kWhole = 300, kParts = 1500, kRing = 20'000;  // elements that go each way

class DataScaleTest : public DataThreadTest {
 protected:
  std::unique_ptr<DataNode> node(const std::string& name) {
    return std::make_unique<DataNode>(name, fabric_.join(name), false, 1 << 20, false, 2);
  }
  // The first half of the ranks is on a.
  void install(uint32_t per_node) {
    per_node_ = per_node;
    connect(*a_, *b_);
    view_ = view_of({{"a", per_node}, {"b", per_node}}, 1);
    a_->install(view_);
    b_->install(view_);
  }
  template <typename T>
  void run(const Signature& signature, std::vector<std::vector<T>>* data,
           const std::vector<double>& prescale) {
    for (uint32_t rank = 0; rank < data->size(); ++rank) {
      core::Submission submission;
      submission.rank = rank;
      submission.ticket = sequence_ + 1;
      submission.key = {0, sequence_};
      submission.signature = signature;
      submission.prescale = prescale[rank];
      auto* bytes = reinterpret_cast<std::byte*>((*data)[rank].data());
      DataNode& node = rank < per_node_ ? *a_ : *b_;
      node.post(Submit{rank + 1000, view_.incarnation, submission, bytes, bytes});
    }
    ++sequence_;
    for (DataNode* one : {a_.get(), b_.get()}) {
      for (uint32_t i = 0; i < per_node_; ++i) {
        ASSERT_EQ(one->next<Completed>().outcome.verdict, Verdict::kOk);
      }
    }
  }

  std::unique_ptr<DataNode> a_ = node("a"), b_ = node("b");
  uint32_t per_node_ = 0;
  core::View view_;
  uint64_t sequence_ = 0;
};

// Powers of two: exact in any order.
TEST_F(DataScaleTest, EachRankByItsOwnFactorAndTheResultByAnother) {
  install(2);
  for (const size_t count : {kWhole, kParts, kRing}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      SCOPED_TRACE(testing::Message() << name_of(op) << " of " << count);
      Signature signature{Collective::kAllreduce, Dtype::kFloat32, op, 0, count};
      signature.postscale = -4;
      std::vector<std::vector<float>> data(4, numbers(count, 1));
      run(signature, &data, {0.5, 2, 1, -0.5});
      const auto expected = numbers(count, op == ReduceOp::kSum ? -12.f : -3.f);
      for (const auto& one : data) ASSERT_EQ(one, expected);
    }
  }
}

TEST_F(DataScaleTest, MinimaToo) {
  install(1);
  Signature signature{Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kMin, 0, 100};
  signature.postscale = 10;
  std::vector<std::vector<double>> data = {std::vector<double>(100, 3),
                                           std::vector<double>(100, 2)};
  run(signature, &data, {0.5, 1});
  for (const auto& one : data) EXPECT_EQ(one, std::vector<double>(100, 15));
}

// A half that is multiplied is not rounded before it is added to what arrived. Where the data would
// go with READY it is another node that adds, and so it goes along the ring.
TEST_F(DataScaleTest, HalvesAreRoundedOnceANode) {
  install(1);
  Signature signature{Collective::kAllreduce, Dtype::kBfloat16, ReduceOp::kSum, 0, 100};
  std::vector<std::vector<uint16_t>> data = {std::vector<uint16_t>(100, 0x3f80),
                                             std::vector<uint16_t>(100, 0x3f81)};
  run(signature, &data, {1, 1.25});
  EXPECT_EQ(data[0], data[1]);
  // The slice begins at a. 1 + 1.25 * 1.0078125 is nearest to 2.265625 (0x4011); with the product
  // rounded to 1.2578125 first it would be a tie, and become 2.25.
  EXPECT_EQ(data[0], std::vector<uint16_t>(100, 0x4011));
}

}  // namespace
}  // namespace gradring::daemon
