// Sums that are made in blocks, by several threads, into several outputs at once.

#include "daemon/data/pass.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "daemon/data/reduce_team.h"

namespace gradring::daemon {
namespace {

using namespace std::chrono_literals;

// ---- the team ----

struct Tally {
  explicit Tally(uint32_t parts) : times(parts) {}
  std::vector<std::atomic<uint32_t>> times;
};

void count_part(void* tally, uint32_t part) { ++static_cast<Tally*>(tally)->times[part]; }

TEST(ReduceTeam, DoesEveryPartOnce) {
  for (const uint32_t helpers : {0u, 1u, 3u}) {
    ReduceTeam team(helpers);
    for (uint32_t turn = 0; turn < 3000; ++turn) {
      const uint32_t parts = turn % 17;
      Tally tally(parts);
      team.run(parts, &count_part, &tally, turn % 3 == 0);
      for (uint32_t part = 0; part < parts; ++part) {
        ASSERT_EQ(tally.times[part], 1u) << helpers << " helpers, turn " << turn;
      }
    }
  }
}

TEST(ReduceTeam, NeedsNobodyWhoSleeps) {
  ReduceTeam team(2);
  std::this_thread::sleep_for(20ms);  // longer than they look on
  Tally tally(64);
  team.run(64, &count_part, &tally, false);
  for (const auto& times : tally.times) EXPECT_EQ(times, 1u);
}

void wait_for_another(void* arrived, uint32_t) {
  auto& count = *static_cast<std::atomic<uint32_t>*>(arrived);
  ++count;
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (count < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

TEST(ReduceTeam, WakesWhoSleeps) {
  ReduceTeam team(1);
  std::this_thread::sleep_for(20ms);
  std::atomic<uint32_t> arrived{0};
  team.run(2, &wait_for_another, &arrived, true);  // neither part ends before both have begun
  EXPECT_EQ(arrived, 2u);
}

// ---- passes ----

std::vector<float> values(size_t count, uint32_t seed) {
  std::vector<float> list(count);
  for (size_t i = 0; i < count; ++i) {
    list[i] = static_cast<float>((i * 2654435761u + seed * 40503u) % 1000) / 7;
  }
  return list;
}

// Inputs and outputs of some ranks, in place or not, and what the outputs must become.
struct Ranks {
  Ranks(size_t number, size_t count, bool in_place) {
    for (uint32_t r = 0; r < number; ++r) memory.push_back(values(count, r));
    for (const auto& one : memory) inputs.push_back(one.data());
    if (!in_place) {
      for (size_t r = 0; r < number; ++r) results.emplace_back(count);
    }
    for (auto& one : in_place ? memory : results) {
      outputs.push_back(reinterpret_cast<std::byte*>(one.data()));
    }
  }
  std::vector<std::vector<float>> memory, results;
  std::vector<const void*> inputs;
  std::vector<std::byte*> outputs;
};

std::vector<float> sum_of(const std::vector<const void*>& inputs, size_t count, uint32_t divisor) {
  std::vector<float> sum(count);
  transport::fold(Dtype::kFloat32, ReduceOp::kSum, inputs, sum.data(), count, divisor);
  return sum;
}

bool same(const void* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

void expect_nothing_spoilt(uint64_t, uint64_t, const transport::FoldFindings&) {
  ADD_FAILURE() << "all is finite";
}

constexpr size_t kCounts[] = {1, 5, 4096, 4097, 16384, 100003, 400000};

TEST(Pass, WritesTheSumToAllOutputsInPlaceOrNot) {
  for (const uint32_t helpers : {0u, 2u}) {
    PassRunner runner(helpers);
    for (const size_t count : kCounts) {
      for (const size_t number : {1u, 2u, 5u, 70u}) {
        if (number * count > 2'000'000) continue;
        for (const bool in_place : {true, false}) {
          for (const bool stays : {true, false}) {
            SCOPED_TRACE(testing::Message()
                         << count << " x " << number << " " << in_place << stays);
            Ranks ranks(number, count, in_place);
            const std::vector<float> sum = sum_of(ranks.inputs, count, 3);
            std::vector<float> to(count);
            auto* const at = stays ? reinterpret_cast<std::byte*>(to.data()) : nullptr;
            runner.run({Dtype::kFloat32, ReduceOp::kSum, 3, ranks.inputs, at, ranks.outputs,
                        count * sizeof(float)},
                       expect_nothing_spoilt);
            for (const std::byte* output : ranks.outputs) ASSERT_TRUE(same(output, sum));
            if (stays) {
              ASSERT_TRUE(same(to.data(), sum));
            }
          }
        }
      }
    }
  }
}

TEST(Pass, ScalesInputsAndTheResult) {
  PassRunner runner(2);
  const std::vector<double> factors = {0.3, -2};
  for (const size_t count : kCounts) {
    Ranks ranks(2, count, true);
    std::vector<float> arrived = values(count, 9), sum(count);
    ranks.inputs.push_back(arrived.data());  // has no factor
    transport::fold(Dtype::kFloat32, ReduceOp::kSum, ranks.inputs, sum.data(), count, 3,
                    {factors, 0.7});
    Pass pass{Dtype::kFloat32, ReduceOp::kSum,       3, ranks.inputs, nullptr,
              ranks.outputs,   count * sizeof(float)};
    pass.scale = {factors, 0.7};
    runner.run(pass, expect_nothing_spoilt);
    for (const std::byte* output : ranks.outputs) ASSERT_TRUE(same(output, sum)) << count;
  }
}

TEST(Pass, AddsOntoWhatArrived) {
  PassRunner runner(2);
  for (const size_t count : kCounts) {
    Ranks ranks(2, count, true);
    std::vector<float> arrived = values(count, 9);
    ranks.inputs.insert(ranks.inputs.begin(), arrived.data());
    const std::vector<float> sum = sum_of(ranks.inputs, count, 0);
    runner.run({Dtype::kFloat32, ReduceOp::kSum, 0, ranks.inputs,
                reinterpret_cast<std::byte*>(arrived.data()), ranks.outputs, count * sizeof(float)},
               expect_nothing_spoilt);
    ASSERT_TRUE(same(arrived.data(), sum));
    for (const std::byte* output : ranks.outputs) ASSERT_TRUE(same(output, sum));
  }
}

TEST(Pass, CopiesARootsInput) {
  PassRunner runner(1);
  for (const size_t count : kCounts) {
    Ranks ranks(3, count, true);
    const std::vector<float> root = ranks.memory[1];
    const std::vector<const void*> input = {ranks.memory[1].data()};
    runner.run(
        {Dtype::kInt8, ReduceOp::kNone, 0, input, nullptr, ranks.outputs, count * sizeof(float)},
        expect_nothing_spoilt);
    for (const std::byte* output : ranks.outputs) ASSERT_TRUE(same(output, root));
  }
}

// In place, so that what is looked at must not have been overwritten.
TEST(Pass, WhatIsNotFiniteIsLookedAtBeforeItIsWrittenAndInOrder) {
  constexpr size_t kCount = 300000;
  const std::vector<size_t> spoilt = {7, 4100, 8191, 200000, 299999};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool stays : {true, false}) {
    for (const uint32_t helpers : {0u, 2u}) {
      PassRunner runner(helpers);
      Ranks ranks(2, kCount, true);
      for (const size_t at : spoilt) ranks.memory[1][at] = nan;
      const auto before = ranks.memory;
      const std::vector<float> sum = sum_of(ranks.inputs, kCount, 0);
      std::vector<float> to(kCount);
      size_t seen = 0;   // of `spoilt`, all in a range that was told
      uint64_t end = 0;  // of the last one
      auto* const at = stays ? reinterpret_cast<std::byte*>(to.data()) : nullptr;
      runner.run({Dtype::kFloat32, ReduceOp::kSum, 0, ranks.inputs, at, ranks.outputs,
                  kCount * sizeof(float)},
                 [&](uint64_t first, uint64_t length, const transport::FoldFindings& found) {
                   EXPECT_GE(first, end);
                   end = first + length;
                   const size_t element = first / sizeof(float);
                   for (size_t r = 0; r < 2; ++r) {
                     EXPECT_EQ(std::memcmp(&ranks.memory[r][element], &before[r][element], length),
                               0);
                   }
                   EXPECT_LE(element, spoilt.at(seen));
                   const size_t before_these = seen;
                   while (seen < spoilt.size() && spoilt[seen] < end / sizeof(float)) ++seen;
                   EXPECT_EQ(found.nonfinite, seen - before_these);
                   EXPECT_LE(length, 64u << 10) << "little is looked at again";
                 });
      EXPECT_EQ(seen, spoilt.size());
      for (const std::byte* output : ranks.outputs) EXPECT_TRUE(same(output, sum));
    }
  }
}

}  // namespace
}  // namespace gradring::daemon
