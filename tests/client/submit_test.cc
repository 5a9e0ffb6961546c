#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <vector>

#include "proto/reduction.h"
#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

class Submit : public ::testing::Test {
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

TEST_F(Submit, DescribesTheOpToTheDaemon) {
  float* output = alloc(comm_, kCount);
  gradring_op op = sum_of(memory_ + 16, output + 32, 100);
  op.priority = -3;
  const gradring_request request = submit(comm_, op);
  ASSERT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);

  const auto messages = daemon_.wait_for_messages(wire::ClientMessage::kSubmit, 1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].protocol(), kClientProtocols.newest);
  EXPECT_EQ(messages[0].submit().job(), 77u);
  const wire::Operation& operation = messages[0].submit().operations(0);
  EXPECT_EQ(operation.ticket(), request);
  Signature signature;
  ASSERT_TRUE(from_wire(operation.signature(), &signature));
  EXPECT_EQ(describe(signature), "allreduce sum of 100 float32");
  EXPECT_NE(operation.input().segment(), operation.output().segment());
  EXPECT_EQ(operation.input().offset(), 16 * sizeof(float));
  EXPECT_EQ(operation.output().offset(), 32 * sizeof(float));
  EXPECT_EQ(operation.priority(), -3);
}

TEST_F(Submit, SaysAsWhatItTravels) {
  const auto wire_of = [&](gradring_op op, size_t nth) {
    submit(comm_, op);
    return daemon_.wait_for_operations(nth).at(nth - 1).signature().wire();
  };
  gradring_op op = sum();
  EXPECT_EQ(wire_of(op, 1), 0u) << "the communicator's: native";
  op.wire = GRADRING_WIRE_BFLOAT16;
  EXPECT_EQ(wire_of(op, 2), static_cast<uint32_t>(WireType::kBfloat16));
  op.wire = GRADRING_WIRE_NATIVE;
  EXPECT_EQ(wire_of(op, 3), 0u);
}

TEST_F(Submit, TheCommunicatorsWireTypeIsForOpsThatMayHaveOne) {
  FakeDaemon daemon;
  gradring_options options = options_for(daemon.runtime_dir(), 1, 4);
  options.wire = "int8";
  gradring_comm* opened = nullptr;
  ASSERT_EQ(gradring_open(&options, &opened), GRADRING_OK) << gradring_last_error();
  const Comm comm(opened);
  float* memory = alloc(comm, kCount);
  gradring_op op = sum_of(memory, memory, kCount);
  submit(comm, op);
  op.dtype = GRADRING_INT32;
  submit(comm, op);
  submit(comm, barrier_op());
  op.dtype = GRADRING_FLOAT32;
  op.wire = GRADRING_WIRE_NATIVE;
  submit(comm, op);
  const auto operations = daemon.wait_for_operations(4);
  EXPECT_EQ(operations.at(0).signature().wire(), static_cast<uint32_t>(WireType::kInt8));
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(operations.at(i).signature().wire(), 0u) << i;
}

TEST_F(Submit, SaysWhatIsScaledByWhat) {
  gradring_op op = sum();
  submit(comm_, op);
  op.prescale = 0.5;
  op.postscale = -2;
  submit(comm_, op);
  op.prescale = op.postscale = 1;
  submit(comm_, op);
  const auto operations = daemon_.wait_for_operations(3);
  EXPECT_EQ(operations.at(1).prescale(), 0.5);
  EXPECT_EQ(operations.at(1).signature().postscale(), -2);
  for (const size_t plain : {0, 2}) {
    EXPECT_EQ(operations.at(plain).prescale(), 0);
    EXPECT_EQ(operations.at(plain).signature().postscale(), 0);
  }
}

TEST_F(Submit, SaysHowLongEachBlockIs) {
  gradring_op op = sum();
  op.collective = GRADRING_ALLGATHER;
  op.output = alloc(comm_, 4 * kCount);
  std::vector<uint64_t> counts = {3, kCount, 0, 5};
  op.counts = counts.data();
  op.counts_length = counts.size();
  op.count = 77;  // is not looked at
  submit(comm_, op);
  std::fill(counts.begin(), counts.end(), 6);
  submit(comm_, op);
  const auto operations = daemon_.wait_for_operations(2);
  Signature told;
  ASSERT_TRUE(from_wire(operations.at(0).signature(), &told));
  ASSERT_TRUE(from_wire(operations.at(0).counts(), &told));
  EXPECT_THAT(told.blocks.counts(), ::testing::ElementsAre(3, kCount, 0, 5));
  EXPECT_EQ(told.count, kCount);
  EXPECT_EQ(operations.at(1).signature().blocks(), 0u) << "blocks that are all equal";
  EXPECT_EQ(operations.at(1).signature().count(), 6u);
  EXPECT_EQ(operations.at(1).counts().size(), 0);
}

TEST_F(Submit, NumbersOpsInProgramOrderAndNamedOnesByName) {
  const auto submit_named = [&](const char* name) {
    gradring_op op = barrier_op();
    op.name = name;
    submit(comm_, op);
  };
  submit_named(nullptr);
  submit_named("layer 1");
  submit_named(nullptr);
  submit_named("layer 2");
  submit_named("layer 1");
  const auto operations = daemon_.wait_for_operations(5);
  ASSERT_EQ(operations.size(), 5u);
  const auto key = [&](size_t i) { return from_wire(operations[i].key()); };
  EXPECT_EQ(key(0), (OpKey{0, 0}));
  EXPECT_EQ(key(2), (OpKey{0, 1}));
  EXPECT_NE(key(1).space, 0u);
  EXPECT_NE(key(3).space, 0u);
  EXPECT_NE(key(1).space, key(3).space);
  EXPECT_EQ(key(1).sequence, 0u);
  EXPECT_EQ(key(4), (OpKey{key(1).space, 1}));
  EXPECT_EQ(operations[1].name(), "layer 1");
  std::set<uint64_t> tickets;
  for (const auto& operation : operations) tickets.insert(operation.ticket());
  EXPECT_EQ(tickets.size(), 5u);
}

TEST_F(Submit, HashesNamesAsEveryBindingMust) {
  gradring_op op = barrier_op();
  op.name = "a";
  submit(comm_, op);
  // Of the published test values of 64-bit FNV-1a.
  EXPECT_EQ(daemon_.wait_for_operations(1).at(0).key().space(), 0xaf63dc4c8601ec8cu);
}

TEST_F(Submit, DoesNotSpendANumberOnARefusedOp) {
  std::vector<float> own(kCount);  // no memory of the job
  refused(sum_of(own.data(), own.data(), kCount), GRADRING_ERR_NOT_FOUND);
  submit(comm_, barrier_op());
  EXPECT_EQ(from_wire(daemon_.wait_for_operations(1).at(0).key()), (OpKey{0, 0}));
}

TEST_F(Submit, TakesEveryTypeAndOperation) {
  void* memory = memory_;
  for (uint32_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
    for (uint32_t reduce_op = 1; reduce_op <= kReduceOpLast; ++reduce_op) {
      gradring_op op = sum();
      put(op.dtype, dtype);
      put(op.op, reduce_op);
      op.input = op.output = memory;
      op.count = 16;
      const bool there_is =
          can_reduce(static_cast<Dtype>(dtype), static_cast<ReduceOp>(reduce_op)).ok();
      gradring_request request = 0;
      EXPECT_EQ(gradring_submit(comm_.get(), &op, &request),
                there_is ? GRADRING_OK : GRADRING_ERR_INVALID);
      if (request != 0) {
        EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
      }
    }
  }
}

TEST_F(Submit, OfABroadcastNeedsNoInputWhereTheRootIsElsewhere) {
  gradring_op op = sum();
  op.collective = GRADRING_BROADCAST;
  op.root = 0;  // this is rank 1
  op.input = nullptr;
  const gradring_request request = submit(comm_, op);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  const wire::Operation operation = daemon_.wait_for_operations(1).at(0);
  EXPECT_FALSE(operation.has_input());

  op.root = 1;
  gradring_request none = 0;
  EXPECT_EQ(gradring_submit(comm_.get(), &op, &none), GRADRING_ERR_NOT_FOUND);
}

// This is rank 1 of 4.
TEST_F(Submit, OfBlocksSaysAmongHowManyAndWhichItIs) {
  float* all = alloc(comm_, 4 * kCount);
  gradring_op op = sum_of(all + kCount, all, kCount);
  op.collective = GRADRING_ALLGATHER;
  const gradring_request request = submit(comm_, op);
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, nullptr), GRADRING_OK);
  const wire::Operation operation = daemon_.wait_for_operations(1).at(0);
  Signature signature;
  ASSERT_TRUE(from_wire(operation.signature(), &signature));
  EXPECT_EQ(describe(signature), "allgather of 4 x 1024 float32");
  EXPECT_EQ(operation.position(), 1u);
  EXPECT_EQ(operation.input().offset(), kCount * sizeof(float));
}

TEST_F(Submit, OfBlocksNeedsRoomForAll) {
  gradring_op op = sum_of(memory_, memory_, kCount);
  op.collective = GRADRING_REDUCE_SCATTER;
  op.output = alloc(comm_, kCount);
  EXPECT_THAT(refused(op, GRADRING_ERR_NOT_FOUND), HasSubstr("input"));
  op.count = kCount / 4;
  EXPECT_NE(submit(comm_, op), 0u);
}

TEST_F(Submit, OfBlocksInPlaceIsTheOwnBlockAlone) {
  float* all = alloc(comm_, 4 * kCount);
  gradring_op op = sum_of(all, all, kCount);
  for (const gradring_collective collective : {GRADRING_ALLGATHER, GRADRING_ALLTOALL}) {
    op.collective = collective;
    EXPECT_THAT(refused(op), HasSubstr("overlap"));
  }
  op.collective = GRADRING_REDUCE_SCATTER;
  op.output = all + 2 * kCount;  // that of rank 2
  EXPECT_THAT(refused(op), HasSubstr("apart, or the smaller one this rank's own block"));
  op.output = all + kCount;
  EXPECT_NE(submit(comm_, op), 0u);
}

TEST_F(Submit, WhoGivesOrGetsNothingNeedsNoBufferForIt) {
  ASSERT_EQ(gradring_gather(comm_.get(), memory_, nullptr, kCount, GRADRING_FLOAT32, 0),
            GRADRING_OK);
  ASSERT_EQ(gradring_scatter(comm_.get(), nullptr, memory_, kCount, GRADRING_FLOAT32, 0),
            GRADRING_OK);
  ASSERT_EQ(
      gradring_reduce(comm_.get(), memory_, nullptr, kCount, GRADRING_FLOAT32, GRADRING_SUM, 3),
      GRADRING_OK);
  EXPECT_EQ(gradring_gather(comm_.get(), memory_, nullptr, kCount, GRADRING_FLOAT32, 1),
            GRADRING_ERR_NOT_FOUND)
      << "the root gets everything";
  const auto operations = daemon_.wait_for_operations(3);
  EXPECT_FALSE(operations.at(0).has_output());
  EXPECT_FALSE(operations.at(1).has_input());
  EXPECT_FALSE(operations.at(2).has_output());
}

TEST_F(Submit, OfNoElementsNeedsNoMemory) {
  EXPECT_EQ(gradring_allreduce(comm_.get(), nullptr, nullptr, 0, GRADRING_FLOAT32, GRADRING_SUM),
            GRADRING_OK);
  EXPECT_EQ(gradring_broadcast(comm_.get(), nullptr, 0, GRADRING_FLOAT32, 2), GRADRING_OK);
  EXPECT_EQ(daemon_.wait_for_operations(2).size(), 2u) << "the others wait for it all the same";
}

TEST_F(Submit, GivesAResultThatSaysHowManyContributed) {
  gradring_result result = empty_result();
  ASSERT_EQ(gradring_wait(comm_.get(), submit(comm_, sum()), 5000, &result), GRADRING_OK);
  EXPECT_EQ(result.struct_size, sizeof(result));
  EXPECT_EQ(result.verdict, 1u);
  EXPECT_EQ(result.cause, 0u);
  EXPECT_EQ(result.blamed_rank, -1);
  EXPECT_EQ(result.ranks_min, 4u);
  EXPECT_EQ(result.ranks_max, 4u);
  EXPECT_EQ(result.epoch, 1u);
  EXPECT_STREQ(result.message, "");
}

TEST_F(Submit, WritesNoMoreOfTheResultThanThereIsRoomFor) {
  std::vector<unsigned char> bytes(sizeof(gradring_result), 0xee);
  auto* result = reinterpret_cast<gradring_result*>(bytes.data());
  const size_t room = 24;
  std::memcpy(bytes.data(), &room, sizeof(room));
  ASSERT_EQ(gradring_wait(comm_.get(), submit(comm_, sum()), 5000, result), GRADRING_OK);
  EXPECT_EQ(bytes[8], 1) << "the verdict";
  for (size_t i = room; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0xee);
}

TEST_F(Submit, AndWaitInOneCall) {
  memory_[5] = 2.5f;
  ASSERT_EQ(
      gradring_allreduce(comm_.get(), memory_, memory_, kCount, GRADRING_FLOAT32, GRADRING_SUM),
      GRADRING_OK);
  EXPECT_EQ(memory_[5], 10.0f);
  EXPECT_EQ(gradring_broadcast(comm_.get(), memory_, kCount, GRADRING_FLOAT32, 3), GRADRING_OK);
  EXPECT_EQ(gradring_barrier(comm_.get()), GRADRING_OK);
}

TEST_F(Submit, RefusedByTheDaemonIsToldByWait) {
  daemon_.set([](Script& script) {
    script.refuse_submit = refusal(Code::kInvalidArgument, "offset 8 passes the segment");
  });
  const gradring_request request = submit(comm_, sum());
  gradring_result result = empty_result();
  EXPECT_EQ(gradring_wait(comm_.get(), request, 5000, &result), GRADRING_ERR_FAILED);
  EXPECT_EQ(result.verdict, 3u);
  EXPECT_EQ(result.cause, static_cast<uint32_t>(Cause::kRefused));
  EXPECT_STREQ(result.message, "offset 8 passes the segment");
  EXPECT_STREQ(gradring_last_error(), "offset 8 passes the segment");
}

}  // namespace
}  // namespace gradring::test
