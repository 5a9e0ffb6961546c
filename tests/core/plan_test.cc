#include "daemon/core/plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/core/plan_steps.h"

namespace gradring::core {
namespace {

Signature allreduce(Dtype dtype, uint64_t count) {
  return {Collective::kAllreduce, dtype, ReduceOp::kSum, 0, count};
}

Signature broadcast(Dtype dtype, uint64_t count, uint32_t root) {
  return {Collective::kBroadcast, dtype, ReduceOp::kNone, root, count};
}

std::vector<Plan> plans_of(const Signature& signature, uint32_t members, uint32_t root_member) {
  std::vector<Plan> plans;
  for (uint32_t me = 0; me < members; ++me) {
    plans.push_back(make_plan(signature, members, me, {{signature.root, root_member}}, {}));
  }
  return plans;
}

// What became of one slice after all members walked their steps, the first without a value, the
// others with what the member before them sent.
struct Journey {
  std::vector<uint32_t> folds;       // by member
  std::vector<uint32_t> deliveries;  // by member
  std::vector<uint32_t> final_at;    // members at which the value became final
  uint32_t partial_hops = 0;
  uint32_t final_hops = 0;
  std::string fault;  // empty: every message was expected, nothing was left over
};

Journey walk(const std::vector<Plan>& plans, uint32_t slice) {
  const auto n = static_cast<uint32_t>(plans.size());
  Journey journey;
  journey.folds.assign(n, 0);
  journey.deliveries.assign(n, 0);
  std::vector<size_t> next(n, 0);
  uint32_t at = plans[0].start_of(slice);
  bool is_final = false;
  const Step* sent = nullptr;  // what is under way to `at`
  while (true) {
    const auto steps = plans[at].steps_of(slice);
    if (next[at] == steps.size()) {
      journey.fault = "member " + std::to_string(at) + " has no step for what arrives";
      return journey;
    }
    const Step& step = steps[next[at]++];
    const bool fits = sent == nullptr ? !step.receive
                                      : step.receive && step.receive_phase == sent->send_phase &&
                                            step.receive_hop == sent->send_hop;
    if (!fits) journey.fault = "member " + std::to_string(at) + " expects something else";
    if (step.fold != Fold::kNone && is_final) journey.fault = "folded into a final value";
    journey.folds[at] += step.fold == Fold::kNone ? 0 : 1;
    if (step.finish) {
      is_final = true;
      journey.final_at.push_back(at);
    }
    if (step.deliver && !is_final) journey.fault = "delivered a partial value";
    journey.deliveries[at] += step.deliver ? 1 : 0;
    if (!step.send) break;
    if ((step.send_phase == Phase::kFinal) != is_final) journey.fault = "sent in the wrong phase";
    ++(is_final ? journey.final_hops : journey.partial_hops);
    sent = &step;
    at = (at + 1) % n;
  }
  for (uint32_t member = 0; member < n; ++member) {
    if (next[member] != plans[member].steps_of(slice).size()) {
      journey.fault = "member " + std::to_string(member) + " waits for ever";
    }
  }
  return journey;
}

TEST(Plan, AllreduceFoldsEveryMemberOnceAndDeliversToEveryMemberOnce) {
  for (uint32_t n = 1; n <= 9; ++n) {
    for (const uint64_t count : {1u, 1000u, 100'000u, 1'000'003u}) {
      const std::vector<Plan> plans = plans_of(allreduce(Dtype::kFloat32, count), n, 0);
      ASSERT_GT(plans[0].slices, 0u);
      for (uint32_t slice = 0; slice < plans[0].slices; ++slice) {
        SCOPED_TRACE(testing::Message() << n << " members, slice " << slice << " of " << count);
        const Journey journey = walk(plans, slice);
        ASSERT_EQ(journey.fault, "");
        ASSERT_EQ(journey.folds, std::vector<uint32_t>(n, 1));
        ASSERT_EQ(journey.deliveries, std::vector<uint32_t>(n, 1));
        ASSERT_EQ(journey.final_at, std::vector<uint32_t>{(slice % n + n - 1) % n});
        ASSERT_EQ(journey.partial_hops, n - 1);
        ASSERT_EQ(journey.final_hops, n - 1);
      }
    }
  }
}

TEST(Plan, BroadcastGoesOnceRoundFromEveryRoot) {
  for (uint32_t n = 1; n <= 9; ++n) {
    for (uint32_t root = 0; root < n; ++root) {
      const std::vector<Plan> plans = plans_of(broadcast(Dtype::kInt64, 50'001, 0), n, root);
      for (uint32_t slice = 0; slice < plans[0].slices; ++slice) {
        SCOPED_TRACE(testing::Message() << n << " members, root " << root << ", slice " << slice);
        const Journey journey = walk(plans, slice);
        ASSERT_EQ(journey.fault, "");
        std::vector<uint32_t> only_root(n, 0);
        only_root[root] = 1;
        ASSERT_EQ(journey.folds, only_root);
        ASSERT_EQ(journey.deliveries, std::vector<uint32_t>(n, 1));
        ASSERT_EQ(journey.final_at, std::vector<uint32_t>{root});
        ASSERT_EQ(journey.partial_hops, 0u);
        ASSERT_EQ(journey.final_hops, n - 1);
      }
    }
  }
}

TEST(Plan, BroadcastReadsTheRootAloneAndAllreduceAllLocals) {
  for (const Plan& plan : plans_of(broadcast(Dtype::kUint8, 10, 0), 3, 1)) {
    for (const Step& step : plan.steps_of(0)) EXPECT_NE(step.fold, Fold::kLocals);
  }
  for (const Plan& plan : plans_of(allreduce(Dtype::kUint8, 10), 3, 1)) {
    for (const Step& step : plan.steps_of(0)) EXPECT_NE(step.fold, Fold::kSource);
  }
}

TEST(Plan, StartsAreSpreadOverTheMembers) {
  const std::vector<Plan> plans = plans_of(allreduce(Dtype::kFloat32, 1'000'000), 4, 0);
  for (uint32_t slice = 0; slice < plans[0].slices; ++slice) {
    uint32_t starters = 0;
    for (const Plan& plan : plans) starters += plan.starts_here(slice) ? 1 : 0;
    EXPECT_EQ(starters, 1u);
    EXPECT_TRUE(plans[slice % 4].starts_here(slice));
  }
}

TEST(Plan, SlicesCoverTheBytesExactlyAndBeginAtElementsAndCacheLines) {
  for (uint8_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
    for (const uint64_t count : {1u, 15u, 16u, 17u, 4096u, 65'537u, 3'000'001u}) {
      for (uint32_t n = 1; n <= 9; ++n) {
        const Signature signature = allreduce(static_cast<Dtype>(dtype), count);
        const Plan plan = make_plan(signature, n, 0, {}, {});
        SCOPED_TRACE(describe(signature) + ", " + std::to_string(n) + " members");
        ASSERT_EQ(plan.slice_bytes % 64, 0u);
        ASSERT_EQ(plan.slice_bytes % size_of(signature.dtype), 0u);
        uint64_t covered = 0;
        for (uint32_t slice = 0; slice < plan.slices; ++slice) {
          ASSERT_EQ(plan.input_at(slice), covered);
          ASSERT_EQ(plan.output_at(slice), covered);
          ASSERT_GT(plan.length_of(slice), 0u);
          ASSERT_EQ(plan.length_of(slice) % size_of(signature.dtype), 0u);
          covered += plan.length_of(slice);
        }
        ASSERT_EQ(covered, signature.bytes());
      }
    }
  }
}

TEST(Plan, BarrierAndNothingToMoveHaveNoSlices) {
  EXPECT_EQ(make_plan({}, 3, 1, {}, {}).slices, 0u);
  EXPECT_EQ(make_plan(allreduce(Dtype::kFloat64, 0), 3, 1, {}, {}).slices, 0u);
  EXPECT_EQ(make_plan(broadcast(Dtype::kFloat64, 0, 2), 3, 1, {{2, 1}}, {}).slices, 0u);
}

TEST(Plan, SliceBytesKeepTheirBounds) {
  PlanOptions options;
  options.slice_bytes_min = 4 << 10;
  options.slice_bytes_max = 256 << 10;
  // A small op is not cut below the least size, a large one not above the greatest.
  EXPECT_EQ(slice_bytes_for(allreduce(Dtype::kFloat32, 1), 8, options), 4u << 10);
  EXPECT_EQ(slice_bytes_for(allreduce(Dtype::kFloat32, 1u << 30), 2, options), 256u << 10);
  // Between them every member starts several slices, so that the ring is kept busy.
  const Signature middle = allreduce(Dtype::kFloat32, 1u << 18);  // 1 MiB
  const uint32_t bytes = slice_bytes_for(middle, 8, options);
  EXPECT_EQ(bytes % 64, 0u);
  EXPECT_GE(middle.bytes() / bytes, 8u * 2);
  // Members do not agree on anything for it: it follows from the signature alone.
  for (uint32_t me = 0; me < 8; ++me) {
    EXPECT_EQ(make_plan(middle, 8, me, {}, options).slice_bytes, bytes);
  }
}

// A transport's largest message is so many of what the network takes at a time.
TEST(Plan, SlicesAreWholeQuartersOfTheLargestOrSmaller) {
  PlanOptions options;
  options.slice_bytes_max = 252 << 10;
  const auto slice_of = [&](uint64_t kib) {
    return slice_bytes_for(allreduce(Dtype::kFloat32, kib << 8), 4, options) >> 10;
  };
  EXPECT_EQ(slice_of(512), 32u);
  EXPECT_EQ(slice_of(1024), 63u);
  EXPECT_EQ(slice_of(2048), 126u);
  EXPECT_EQ(slice_of(3 << 10), 189u);
  EXPECT_EQ(slice_of(4 << 10), 252u);
  EXPECT_EQ(slice_of(64 << 10), 252u);
}

TEST(Plan, SliceBytesAreWholeCacheLinesForAnyOptions) {
  PlanOptions options;
  options.slice_bytes_min = 100;
  options.slice_bytes_max = 1000;
  for (uint64_t count = 1; count < 5000; count += 7) {
    const uint32_t bytes = slice_bytes_for(allreduce(Dtype::kFloat32, count), 2, options);
    ASSERT_EQ(bytes % 64, 0u);
    ASSERT_GE(bytes, 64u);
    ASSERT_LE(bytes, 1000u);
  }
}

TEST(Plan, TheGreatestSliceSizeWinsOverTheLeast) {
  PlanOptions options;
  options.slice_bytes_min = 4096;
  options.slice_bytes_max = 1024;  // staging memory is this large
  EXPECT_LE(slice_bytes_for(allreduce(Dtype::kFloat32, 1u << 20), 2, options), 1024u);
  EXPECT_LE(slice_bytes_for(allreduce(Dtype::kFloat32, 1), 2, options), 1024u);
}

TEST(Plan, AnOpTravelsAsItsWireTypeFromASizeOnWhereverItTravels) {
  PlanOptions options;
  options.direct_members_max = 8;
  Signature s = allreduce(Dtype::kFloat32, options.packed_bytes_min / sizeof(float));
  s.wire = WireType::kBfloat16;
  const Plan plan = make_plan(s, 4, 0, {}, options);
  EXPECT_EQ(plan.wire, WireType::kBfloat16);
  EXPECT_EQ(plan.direct, Direct::kNo) << "what goes directly is not packed";
  EXPECT_EQ(plan.packed_length_of(0), plan.length_of(0) / 2);
  EXPECT_EQ(make_plan(s, 1, 0, {}, options).wire, WireType::kNative) << "it stays on its node";
  // The same in a later epoch, when it stays cut as it was.
  EXPECT_EQ(make_plan(s, 2, 0, {}, options, plan.slice_bytes).wire, WireType::kBfloat16);

  --s.count;
  const Plan small = make_plan(s, 4, 0, {}, options);
  EXPECT_EQ(small.wire, WireType::kNative);
  EXPECT_EQ(small.direct, Direct::kParts);
  EXPECT_EQ(small.packed_length_of(0), small.length_of(0));
  EXPECT_EQ(make_plan(s, 2, 0, {}, options, 64).wire, WireType::kNative);
}

TEST(Plan, APackedSliceFitsIntoTheMemoryOfAnyOther) {
  PlanOptions options;
  options.packed_bytes_min = 0;
  for (const uint32_t most : {64u, 128u, 4096u, 262144u}) {
    options.slice_bytes_max = most;
    options.slice_bytes_min = 64;
    for (const uint64_t count : {1, 15, 16, 17, 255, 256, 257, 5000, 70000}) {
      Signature s = allreduce(Dtype::kFloat32, count);
      s.wire = WireType::kInt8;
      const Plan plan = make_plan(s, 3, 0, {}, options);
      for (uint32_t slice = 0; slice < plan.slices; ++slice) {
        ASSERT_LE(plan.packed_length_of(slice), most) << count;
      }
    }
  }
}

// Of a thousand members each has a list of steps, and there may be ten thousand ops.
TEST(Plan, PlansOfAsManyMembersShareTheirSteps) {
  SharedStepLists lists;
  Signature sum{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 4096};
  const Plan one = make_plan(sum, 1000, 3, {}, {}, 0, &lists);
  sum.count = 100;
  const Plan other = make_plan(sum, 1000, 4, {}, {}, 0, &lists);
  EXPECT_EQ(one.steps_at, other.steps_at);
  EXPECT_EQ(one.hand_at, other.hand_at);
  const Plan fewer = make_plan(sum, 999, 4, {}, {}, 0, &lists);
  EXPECT_EQ(fewer.steps_at->size(), 999u);
  EXPECT_EQ(one.steps_at->size(), 1000u);
  EXPECT_EQ(make_plan(sum, 1000, 4, {}, {}).steps_at->size(), 1000u) << "and by itself";
}

}  // namespace
}  // namespace gradring::core
