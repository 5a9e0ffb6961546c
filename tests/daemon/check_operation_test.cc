#include "daemon/check_operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "transport/shm/segment.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSegment = 5;
constexpr uint64_t kOther = 6;
constexpr uint64_t kPage = 4096;

class TwoSegments final : public TrainerMemory {
 public:
  std::optional<std::span<std::byte>> find(uint64_t segment) const override {
    const auto it = segments_.find(segment);
    if (it == segments_.end()) return std::nullopt;
    return it->second.memory();
  }
  const transport::OpenGpuMemory* gpu(uint64_t segment) const override {
    return segment == kSegment && shared_ ? &gpu_ : nullptr;
  }
  void share() { shared_ = true; }

 private:
  struct HalfAPage final : transport::OpenGpuMemory {
    uint64_t bytes() const override { return kPage / 2; }
  };
  const HalfAPage gpu_{};
  bool shared_ = false;
  static transport::Segment page() { return std::move(*transport::Segment::create(kPage)); }

  std::map<uint64_t, transport::Segment> segments_ = [] {
    std::map<uint64_t, transport::Segment> made;
    made.emplace(kSegment, page());
    made.emplace(kOther, page());
    return made;
  }();
};

class CheckOperationTest : public testing::Test {
 protected:
  // 16 float32 in place at the start of the segment.
  static wire::Operation good() {
    wire::Operation operation;
    operation.set_ticket(9);
    to_wire(OpKey{0, 3}, operation.mutable_key());
    to_wire({Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 16},
            operation.mutable_signature());
    operation.mutable_input()->set_segment(kSegment);
    operation.mutable_output()->set_segment(kSegment);
    return operation;
  }
  std::string told(const std::function<void(wire::Operation&)>& spoil) {
    wire::Operation operation = good();
    spoil(operation);
    const auto checked = check_operation(operation, 1, memory_);
    return checked ? "" : checked.error();
  }
  std::byte* base(uint64_t segment) { return memory_.find(segment)->data(); }

  TwoSegments memory_;
};

TEST_F(CheckOperationTest, AGoodOneIsLocated) {
  wire::Operation operation = good();
  operation.mutable_input()->set_offset(64);
  operation.mutable_output()->set_segment(kOther);
  operation.mutable_output()->set_offset(kPage - 64);
  const auto checked = check_operation(operation, 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(checked->input, base(kSegment) + 64);
  EXPECT_EQ(checked->output, base(kOther) + kPage - 64);
  EXPECT_EQ(checked->submission.input.segment, kSegment);
  EXPECT_EQ(checked->submission.output.segment, kOther);
  EXPECT_EQ(checked->submission.rank, 1u);
  EXPECT_EQ(checked->submission.ticket, 9u);
  EXPECT_EQ(checked->submission.key, (OpKey{0, 3}));
}

TEST_F(CheckOperationTest, NothingBeyondTheSegmentIsReached) {
  const auto with = [this](uint64_t offset, uint64_t count) {
    return told([&](wire::Operation& operation) {
      operation.mutable_input()->set_offset(offset);
      operation.mutable_output()->set_offset(offset);
      operation.mutable_signature()->set_count(count);
    });
  };
  EXPECT_EQ(with(0, kPage / 4), "");
  EXPECT_EQ(with(kPage - 4, 1), "");
  EXPECT_THAT(with(0, kPage / 4 + 1), HasSubstr("beyond"));
  EXPECT_THAT(with(kPage, 1), HasSubstr("beyond"));
  EXPECT_THAT(with(kPage + 4, 1), HasSubstr("beyond"));
  EXPECT_THAT(with(~uint64_t{0} - 3, 1), HasSubstr("beyond"));
  EXPECT_THAT(with(~uint64_t{0} - 3, 2), HasSubstr("beyond"));
  // Large, and so large that the bytes would overflow 64 bits to something small.
  EXPECT_THAT(with(4, uint64_t{1} << 50), HasSubstr("beyond"));
  EXPECT_THAT(with(0, (uint64_t{1} << 62) + 1), HasSubstr("beyond"));
  EXPECT_THAT(with(4, (uint64_t{1} << 62) - 1), HasSubstr("beyond"));
  EXPECT_THAT(with(0, ~uint64_t{0}), HasSubstr("beyond"));
}

TEST_F(CheckOperationTest, WordsOfStreamsLieInTheSegmentsOfItsBuffers) {
  wire::Operation operation = good();
  operation.mutable_output()->set_segment(kOther);
  EXPECT_FALSE(check_operation(operation, 1, memory_)->reached);
  operation.mutable_reached()->set_segment(kSegment);
  operation.mutable_reached()->set_offset(kPage - 4);
  operation.mutable_reached()->set_value(3);
  operation.mutable_ended()->set_segment(kOther);
  operation.mutable_ended()->set_offset(64);
  operation.mutable_ended()->set_value(4);
  const auto checked = check_operation(operation, 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(reinterpret_cast<std::byte*>(checked->reached.at), base(kSegment) + kPage - 4);
  EXPECT_EQ(checked->reached.value, 3u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(checked->ended.at), base(kOther) + 64);

  const auto beyond = [](wire::Operation& op) {
    op.mutable_ended()->set_segment(kSegment);
    op.mutable_ended()->set_offset(kPage - 3);
    op.mutable_ended()->set_value(1);
  };
  EXPECT_THAT(told(beyond), HasSubstr("word of the end"));
  EXPECT_THAT(told([](wire::Operation& op) {
                op.mutable_reached()->set_segment(kOther);  // not lent with this op
                op.mutable_reached()->set_value(1);
              }),
              HasSubstr("segment 6 has none of the op's buffers"));
}

TEST_F(CheckOperationTest, OnAGpuItNamesMemoryThatWasShared) {
  const auto on_gpu = [](wire::Operation& op) {
    op.set_on_gpu(true);
    op.set_part_bytes(kPartBytesLeast);
    op.mutable_reached()->set_segment(kSegment);
    op.mutable_reached()->set_offset(kPage - 4);
    op.mutable_reached()->set_value(3);
  };
  EXPECT_THAT(told(on_gpu), HasSubstr("input: segment 5 stands for no GPU's memory"));
  memory_.share();
  wire::Operation operation = good();
  on_gpu(operation);
  operation.mutable_input()->set_offset(64);
  operation.mutable_output()->set_offset(64);
  const auto checked = check_operation(operation, 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(checked->gpu_input.memory, memory_.gpu(kSegment));
  EXPECT_EQ(checked->gpu_input.offset, 64u);
  EXPECT_EQ(checked->gpu_output.offset, 64u);
  EXPECT_EQ(checked->reached.parts, 1u);
  EXPECT_EQ(check_operation(good(), 1, memory_)->gpu_input.memory, nullptr);

  const auto spoilt = [&](const std::function<void(wire::Operation&)>& spoil) {
    return told([&](wire::Operation& op) {
      on_gpu(op);
      spoil(op);
    });
  };
  EXPECT_THAT(spoilt([](wire::Operation& op) { op.mutable_output()->set_segment(kOther); }),
              HasSubstr("output: segment 6 stands for no GPU's memory"));
  EXPECT_THAT(spoilt([](wire::Operation& op) {
                op.mutable_input()->set_offset(kPage / 2 - 60);
                op.mutable_output()->set_offset(kPage / 2 - 60);
              }),
              HasSubstr("reach beyond the 2048 bytes on the GPU"));
  EXPECT_THAT(spoilt([](wire::Operation& op) { op.mutable_reached()->set_value(0); }),
              HasSubstr("needs a word"));
  EXPECT_THAT(spoilt([](wire::Operation& op) { op.set_prescale(2); }), "") << "they scale";
  EXPECT_THAT(
      spoilt([](wire::Operation& op) {
        op.mutable_signature()->set_collective(static_cast<uint32_t>(Collective::kBroadcast));
        op.mutable_signature()->set_op(static_cast<uint32_t>(ReduceOp::kNone));
      }),
      HasSubstr("have no part in broadcast"));
  EXPECT_THAT(spoilt([](wire::Operation& op) { op.mutable_signature()->set_count(0); }),
              HasSubstr("have no part in allreduce"));
}

// Of these one buffer alone is there.
TEST_F(CheckOperationTest, OnAGpuAreInputsOfAScatterAndWhatIsGathered) {
  memory_.share();
  const auto checked = [this](Collective collective, uint64_t input, uint64_t output) {
    wire::Operation operation = good();
    const bool sums = collective == Collective::kReduceScatter;
    Signature signature{collective, Dtype::kFloat32, sums ? ReduceOp::kSum : ReduceOp::kNone, 0,
                        128};
    signature.ranks = 2;
    to_wire(signature, operation.mutable_signature());
    operation.mutable_input()->set_segment(input);
    operation.mutable_output()->set_segment(output);
    operation.set_on_gpu(true);
    operation.mutable_reached()->set_segment(kSegment);
    operation.mutable_reached()->set_offset(kPage - 4);
    operation.mutable_reached()->set_value(3);
    return check_operation(operation, 1, memory_);
  };
  const auto scattered = checked(Collective::kReduceScatter, kSegment, kOther);
  ASSERT_TRUE(scattered) << scattered.error();
  EXPECT_EQ(scattered->gpu_input.memory, memory_.gpu(kSegment));
  EXPECT_EQ(scattered->gpu_output.memory, nullptr);
  EXPECT_EQ(checked(Collective::kReduceScatter, kOther, kSegment).error(),
            "input: segment 6 stands for no GPU's memory that was shared");
  const auto gathered = checked(Collective::kAllgather, kOther, kSegment);
  ASSERT_TRUE(gathered) << gathered.error();
  EXPECT_EQ(gathered->gpu_input.memory, nullptr);
  EXPECT_EQ(gathered->gpu_output.memory, memory_.gpu(kSegment));
  EXPECT_EQ(checked(Collective::kAllgather, kSegment, kOther).error(),
            "output: segment 6 stands for no GPU's memory that was shared");
}

TEST_F(CheckOperationTest, EachRefusalSaysWhy) {
  using Op = wire::Operation&;
  EXPECT_THAT(told([](Op o) { o.mutable_input()->set_segment(77); }),
              HasSubstr("input: segment 77"));
  EXPECT_THAT(told([](Op o) { o.mutable_output()->set_segment(0); }),
              HasSubstr("output: segment 0"));
  EXPECT_THAT(told([](Op o) { o.mutable_input()->set_offset(2); }),
              HasSubstr("not a multiple of the 4"));
  EXPECT_THAT(told([](Op o) { o.mutable_output()->set_offset(32); }), HasSubstr("overlap"));
  EXPECT_EQ(told([](Op o) { o.mutable_output()->set_offset(64); }), "");
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_dtype(200); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_dtype(0); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_collective(99); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_op(99); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.clear_signature(); }), HasSubstr("unknown"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_op(0); }), HasSubstr("needs a reduce op"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_root(1); }), HasSubstr("no root"));
  EXPECT_THAT(told([](Op o) { o.set_name(std::string(1000, 'n')); }), HasSubstr("name"));
  // The average of integers is refused in words.
  EXPECT_THAT(told([](Op o) {
                o.mutable_signature()->set_dtype(static_cast<uint32_t>(Dtype::kInt32));
                o.mutable_signature()->set_op(static_cast<uint32_t>(ReduceOp::kAverage));
              }),
              HasSubstr("verage"));
}

TEST_F(CheckOperationTest, BroadcastsReadTheRootsInputOnly) {
  const auto broadcast = [this](uint32_t root, uint64_t input_segment) {
    return told([&](wire::Operation& o) {
      to_wire({Collective::kBroadcast, Dtype::kFloat32, ReduceOp::kNone, root, 16},
              o.mutable_signature());
      o.mutable_input()->set_segment(input_segment);
    });
  };
  EXPECT_EQ(broadcast(0, 0), "");  // this is rank 1
  EXPECT_THAT(broadcast(1, 0), HasSubstr("input"));
  EXPECT_EQ(broadcast(1, kSegment), "");
  EXPECT_EQ(broadcast(~0u, 0), "") << "the engine knows which ranks are there, or were";
}

TEST_F(CheckOperationTest, FactorsAreOfFloatsThatAreReduced) {
  wire::Operation operation = good();
  operation.set_prescale(-0.25);
  operation.mutable_signature()->set_postscale(3);
  const auto checked = check_operation(operation, 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(checked->submission.prescale, -0.25);
  EXPECT_EQ(checked->submission.signature.postscale, 3);
  EXPECT_EQ(check_operation(good(), 1, memory_)->submission.prescale, 1);

  using Op = wire::Operation&;
  EXPECT_THAT(told([](Op o) { o.set_prescale(1e60); }), HasSubstr("1e+60"));
  EXPECT_THAT(told([](Op o) {
                o.mutable_signature()->set_dtype(static_cast<uint32_t>(Dtype::kInt32));
                o.set_prescale(2);
              }),
              HasSubstr("allreduce of int32 cannot be scaled"));
  EXPECT_THAT(told([](Op o) { o.mutable_signature()->set_postscale(1e60); }), HasSubstr("factor"));
}

// 4 blocks of 16 float32; this is rank 1, and at position 1.
TEST_F(CheckOperationTest, BlocksReachAsFarAsTheyAreMany) {
  const auto blocks = [](wire::Operation& o, Collective collective, uint64_t count) {
    Signature s{collective, Dtype::kFloat32, ReduceOp::kNone, 0, count, 4};
    if (reduces(collective)) s.op = ReduceOp::kSum;
    to_wire(s, o.mutable_signature());
    o.set_position(1);
    o.mutable_output()->set_segment(kOther);
  };
  for (const Collective collective : {Collective::kAllgather, Collective::kReduceScatter,
                                      Collective::kAlltoall, Collective::kReduce}) {
    const uint64_t most = collective == Collective::kReduce ? kPage / 4 : kPage / 16;
    EXPECT_EQ(told([&](wire::Operation& o) { blocks(o, collective, most); }), "");
    EXPECT_THAT(told([&](wire::Operation& o) { blocks(o, collective, most + 1); }),
                HasSubstr("reach beyond segment"))
        << name_of(collective);
  }
  EXPECT_THAT(told([&](wire::Operation& o) {
                blocks(o, Collective::kAllgather, 16);
                o.set_position(4);
              }),
              HasSubstr("position 4 among 4 ranks"));
  EXPECT_THAT(told([&](wire::Operation& o) {
                blocks(o, Collective::kAllgather, 16);
                o.mutable_output()->set_segment(kSegment);
              }),
              HasSubstr("input and output overlap"));
  EXPECT_EQ(told([&](wire::Operation& o) {
              blocks(o, Collective::kAllgather, 16);
              o.mutable_output()->set_segment(kSegment);
              o.mutable_input()->set_offset(64);
            }),
            "");
}

// This is at position 1.
TEST_F(CheckOperationTest, UnevenBlocksReachAsFarAsTheirCountsSay) {
  const auto uneven = [](wire::Operation& o, uint64_t first) {
    Signature s{Collective::kAllgather, Dtype::kFloat32, ReduceOp::kNone, 0, first, 4};
    s.blocks = *Blocks::of_ranks({first, 16, 0, 8});
    to_wire(s, o.mutable_signature());
    to_wire(s.blocks, o.mutable_counts());
    o.set_position(1);
    o.mutable_output()->set_segment(kOther);
  };
  const uint64_t most = kPage / 4 - 16 - 8;
  EXPECT_EQ(told([&](wire::Operation& o) { uneven(o, most); }), "");
  EXPECT_THAT(told([&](wire::Operation& o) { uneven(o, most + 1); }),
              HasSubstr("output: 1025 elements"));
  EXPECT_THAT(told([&](wire::Operation& o) {
                uneven(o, most);
                o.mutable_input()->set_offset(kPage - 60);
              }),
              HasSubstr("input: 16 elements"));
  EXPECT_THAT(told([&](wire::Operation& o) {
                uneven(o, most);
                o.set_counts(2, 1);
              }),
              HasSubstr("its 4 counts are not those"));
  EXPECT_THAT(told([&](wire::Operation& o) {
                uneven(o, most);
                o.clear_counts();
              }),
              HasSubstr("its 0 counts are not those"));
  EXPECT_THAT(told([&](wire::Operation& o) {
                uneven(o, most);
                o.set_position(4);
              }),
              HasSubstr("position 4 among 4 ranks"));
}

TEST_F(CheckOperationTest, WhoGetsNothingNamesNoOutput) {
  wire::Operation operation = good();
  to_wire(Signature{Collective::kGather, Dtype::kFloat32, ReduceOp::kNone, 0, 16, 4},
          operation.mutable_signature());
  operation.set_position(1);
  operation.mutable_output()->set_segment(77);  // is not looked at
  const auto checked = check_operation(operation, 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(checked->output, nullptr);
  EXPECT_EQ(checked->submission.output.segment, 0u);
  EXPECT_EQ(checked->input, base(kSegment));
}

TEST_F(CheckOperationTest, ABarrierMovesNothing) {
  const auto barrier = [](uint64_t count, ReduceOp op) {
    wire::Operation o;
    to_wire({Collective::kBarrier, Dtype::kFloat64, op, 0, count}, o.mutable_signature());
    return o;
  };
  const auto checked = check_operation(barrier(0, ReduceOp::kNone), 1, memory_);
  ASSERT_TRUE(checked) << checked.error();
  EXPECT_EQ(checked->input, nullptr);
  EXPECT_EQ(checked->submission.signature.dtype, Dtype::kUint8)
      << "or two ranks would seem to differ";
  EXPECT_FALSE(check_operation(barrier(1, ReduceOp::kNone), 1, memory_));
  EXPECT_FALSE(check_operation(barrier(0, ReduceOp::kSum), 1, memory_));
}

}  // namespace
}  // namespace gradring::daemon
