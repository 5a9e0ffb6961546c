// gradring-perf without a daemon: what it puts in, what it expects, and what it prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <span>

#include "tests/sanitized.h"
#include "tests/tools/process.h"
#include "tests/tools/schema.h"
#include "tools/common/bus_factor.h"
#include "tools/perf/buffers.h"
#include "tools/perf/pattern.h"
#include "tools/perf/show.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

template <typename T>
double as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

double decode(Dtype dtype, const std::byte* from) {
  switch (dtype) {
    case Dtype::kFloat32:
      return as<float>(from);
    case Dtype::kFloat64:
      return as<double>(from);
    case Dtype::kInt8:
      return as<int8_t>(from);
    case Dtype::kInt16:
      return as<int16_t>(from);
    case Dtype::kInt32:
      return as<int32_t>(from);
    case Dtype::kInt64:
      return as<int64_t>(from);
    case Dtype::kUint16:
      return as<uint16_t>(from);
    case Dtype::kUint32:
      return as<uint32_t>(from);
    case Dtype::kUint64:
      return static_cast<double>(as<uint64_t>(from));
    case Dtype::kUint8:
    case Dtype::kBool:
    case Dtype::kFloat8E4m3:
    case Dtype::kFloat8E5m2:
      return as<uint8_t>(from);
    default:
      break;
  }
  const bool brain = dtype == Dtype::kBfloat16;
  const int fraction = brain ? 7 : 10, bias = brain ? 127 : 15;
  const auto bits = static_cast<unsigned>(as<uint16_t>(from));
  const int exponent = static_cast<int>(bits >> fraction) & (brain ? 0xff : 0x1f);
  if (exponent == 0) return 0;  // subnormals do not occur
  const double mantissa = 1 + std::ldexp(bits & ((1u << fraction) - 1), -fraction);
  return (bits & 0x8000 ? -1 : 1) * std::ldexp(mantissa, exponent - bias);
}

double fold(const Case& of, double a, double b) {
  const auto x = static_cast<int>(a), y = static_cast<int>(b);
  if (of.op == ReduceOp::kMin) return std::min(a, b);
  if (of.op == ReduceOp::kMax) return std::max(a, b);
  if (of.op == ReduceOp::kProduct) return a * b;
  if (of.op == ReduceOp::kBand) return x & y;
  if (of.op == ReduceOp::kBor) return x | y;
  if (of.op == ReduceOp::kBxor) return x ^ y;
  return of.dtype == Dtype::kBool ? std::max(a, b) : a + b;
}

// Whole numbers beyond this may be rounded.
double exact_up_to(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBfloat16:
      return 256;
    case Dtype::kFloat16:
      return 2048;
    case Dtype::kInt8:
      return 127;
    case Dtype::kUint8:
      return 255;
    default:
      return 32767;
  }
}

TEST(Pattern, IsExactForEveryTypeOperationAndSize) {
  constexpr size_t kCount = 300;
  const auto cases = all_cases(Collective::kAllreduce, {1, 1, 2}, 0);
  EXPECT_THAT(cases, SizeIs(4 * 5 + 8 * 7 + 7));
  for (Case one : cases) {
    one.count = kCount;
    const size_t element = size_of(one.dtype);
    for (const int ranks : {1, 2, 3, 5, 8, 16, 31, 130}) {
      if (kSanitized && ranks > 8) break;
      std::vector<double> result(kCount);
      std::vector<std::byte> bytes(one.bytes());
      for (int rank = 0; rank < ranks; ++rank) {
        Pattern(one, rank, ranks).fill(bytes);
        for (size_t i = 0; i < kCount; ++i) {
          const double value = decode(one.dtype, &bytes[i * element]);
          result[i] = rank == 0 ? value : fold(one, result[i], value);
          ASSERT_LE(std::abs(result[i]), exact_up_to(one.dtype))
              << describe(Signature{one.collective, one.dtype, one.op, 0, one.count}) << ", "
              << ranks << " ranks";
        }
      }
      const Pattern pattern(one, 0, ranks);
      for (size_t i = 0; i < kCount; ++i) {
        const double wanted = one.op == ReduceOp::kAverage ? result[i] / ranks : result[i];
        ASSERT_EQ(expected_value(one, ranks, i), wanted);
        if (one.dtype == Dtype::kFloat32) {
          const auto value = static_cast<float>(wanted);
          std::memcpy(&bytes[i * element], &value, element);
        }
      }
      if (one.dtype == Dtype::kFloat32) {
        EXPECT_EQ(pattern.wrong_elements(bytes), 0u);
      }
    }
  }
}

TEST(Pattern, RanksDifferAndEachCounts) {
  constexpr int kRanks = 4;
  constexpr uint64_t kCount = 2000;
  for (const Case& one : all_cases(Collective::kAllreduce, {1, 1, 2}, 0)) {
    for (int left_out = 0; left_out < kRanks; ++left_out) {
      uint64_t noticed = 0;
      for (uint64_t i = 0; i < kCount; ++i) {
        bool first = true;
        int result = 0;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (rank == left_out) continue;
          const int value = input_value(one, rank, kRanks, i);
          result = first ? value : static_cast<int>(fold(one, result, value));
          first = false;
        }
        if (one.op == ReduceOp::kAverage) result /= kRanks;
        noticed += result != expected_value(one, kRanks, i);
      }
      EXPECT_GT(noticed, kCount / 10) << name_of(one.op) << " without rank " << left_out;
    }
  }
}

TEST(Pattern, NoticesOneBitAndAShift) {
  const Case one{Collective::kAllreduce, Dtype::kInt16, ReduceOp::kSum, 0, 2'100'000};
  const Pattern pattern(one, 0, 1);  // alone, the input is the result
  std::vector<std::byte> bytes(one.bytes());
  pattern.fill(bytes);
  EXPECT_EQ(pattern.wrong_elements(bytes), 0u);
  bytes[2 * 1'999'999] ^= std::byte{1};
  EXPECT_EQ(pattern.wrong_elements(bytes), 1u);
  pattern.fill(bytes);
  std::rotate(bytes.begin(), bytes.begin() + 4096, bytes.end());
  EXPECT_GT(pattern.wrong_elements(bytes), one.count / 2);
}

TEST(Pattern, ABroadcastMustReplaceWhatWasThere) {
  for (const Case& one : all_cases(Collective::kBroadcast, {4096, 4096, 2}, 2)) {
    std::vector<std::byte> mine(one.bytes()), root(one.bytes());
    Pattern(one, 2, 4).fill(root);
    const Pattern pattern(one, 0, 4);
    pattern.fill(mine);
    EXPECT_EQ(pattern.wrong_elements(root), 0u);
    EXPECT_EQ(pattern.wrong_elements(mine), one.count);
  }
}

TEST(Plan, Sizes) {
  EXPECT_THAT(sizes_in({4096, 262144, 4}), ElementsAre(4096, 16384, 65536, 262144));
  EXPECT_THAT(sizes_in({1, 7, 2}), ElementsAre(1, 2, 4));
  EXPECT_THAT(sizes_in({5, 5, 2}), ElementsAre(5));
  EXPECT_THAT(sizes_in({uint64_t{1} << 62, ~uint64_t{0}, 8}), SizeIs(1));
}

TEST(Plan, CasesAreWholeElements) {
  const auto cases =
      cases_of(Collective::kAllreduce, {1, 16, 4}, Dtype::kFloat64, ReduceOp::kMax, 3);
  ASSERT_THAT(cases, SizeIs(3));
  EXPECT_EQ(cases[0], (Case{Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kMax, 0, 1}));
  EXPECT_EQ(cases[2].count, 2u);
  EXPECT_THAT(all_cases(Collective::kBroadcast, {8, 8, 2}, 1), SizeIs(kDtypeLast));
  EXPECT_THAT(all_cases(Collective::kBarrier, {8, 1024, 2}, 0), SizeIs(1));
  EXPECT_EQ(cases_of(Collective::kBarrier, {8, 8, 2}, Dtype::kInt8, ReduceOp::kSum, 0)[0].bytes(),
            0u);
}

TEST(Plan, SizesOfTheSameElementsAreOne) {
  const auto counts = [](Collective collective) {
    std::vector<uint64_t> all;
    for (const Case& one :
         rounded(cases_of(collective, {1, 256, 4}, Dtype::kFloat32, ReduceOp::kSum, 0), 8))
      all.push_back(one.count);
    return all;
  };
  EXPECT_EQ(counts(Collective::kAllreduce), (std::vector<uint64_t>{1, 4, 16, 64}));
  EXPECT_EQ(counts(Collective::kReduceScatter), (std::vector<uint64_t>{8, 16, 64}));
}

TEST(Plan, BusFactorIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 1), 0.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 8), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduce, 8), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAlltoall, 2), 0.5);
}

// A stand-in for the ring: every element goes where its number in the whole says.
TEST(Buffers, WhatAllRanksPutInIsWhatTheyMustFind) {
  constexpr int kRanks = 3;
  constexpr Collective kMoving[] = {Collective::kAllgather, Collective::kGather,
                                    Collective::kScatter, Collective::kAlltoall};
  for (size_t kind = 0; kind < 2 * std::size(kMoving); ++kind) {
    const Collective collective = kMoving[kind / 2];
    Case one = rounded({collective, Dtype::kInt32, ReduceOp::kNone, 1, 1000}, kRanks);
    EXPECT_EQ(one.count, 999u);
    one.uneven = kind % 2 == 1;
    std::map<uint64_t, std::vector<std::byte>> whole;  // element by element, by its number
    const auto memory_of = [&](int rank) {
      const Pattern pattern(one, rank, kRanks);
      const Buffers buffers = buffers_of(one, rank, kRanks);
      std::vector<std::byte> memory(buffers.elements * 4);
      pattern.fill_otherwise(memory);
      for (const Part& part : buffers.given) {
        pattern.fill(std::span(memory).subspan(part.at * 4, part.count * 4), part.first);
      }
      return memory;
    };
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto memory = memory_of(rank);
      for (const Part& part : buffers_of(one, rank, kRanks).given) {
        for (uint64_t i = 0; i < part.count; ++i) {
          const auto from = memory.begin() + static_cast<std::ptrdiff_t>((part.at + i) * 4);
          whole[part.first + i].assign(from, from + 4);
        }
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      auto memory = memory_of(rank);
      const Pattern pattern(one, rank, kRanks);
      for (const Part& part : buffers_of(one, rank, kRanks).expected) {
        const auto bytes = std::span(memory).subspan(part.at * 4, part.count * 4);
        // The root of a scatter has its own block already.
        const bool has_it = (collective == Collective::kScatter && rank == 1) || part.count == 0;
        EXPECT_EQ(pattern.wrong_elements(bytes, part.first) == 0, has_it) << name_of(collective);
        for (uint64_t i = 0; i < part.count; ++i) {
          ASSERT_EQ(whole.count(part.first + i), 1u) << name_of(collective);
          std::memcpy(&bytes[i * 4], whole[part.first + i].data(), 4);
        }
        EXPECT_EQ(pattern.wrong_elements(bytes, part.first), 0u) << name_of(collective);
      }
    }
  }
}

TEST(Buffers, WhereSumsAreInPlace) {
  const Case one{Collective::kReduceScatter, Dtype::kFloat32, ReduceOp::kSum, 0, 40};
  const Buffers buffers = buffers_of(one, 2, 4);
  EXPECT_EQ(buffers.output, 20u);
  EXPECT_THAT(buffers.expected, ElementsAre(Part{20, 20, 10}));
  EXPECT_THAT(buffers.given, ElementsAre(Part{0, 0, 40}));
}

TEST(Measure, RepetitionsFitTheTime) {
  EXPECT_EQ(good_iterations(0.003), 100);
  EXPECT_EQ(good_iterations(10), 2);
  EXPECT_EQ(good_iterations(0), 20'000);
}

Measurement sample(std::optional<uint64_t> wrong) {
  return {{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1 << 20}, 20, 0.002, wrong};
}

TEST(PerfShow, TheColumnsOfNcclTests) {
  EXPECT_EQ(
      perf_heading(Collective::kAllreduce, 4, 2, "j\x1b", {}),
      "# gradring-perf 0.1.0: allreduce, 4 ranks (2 on this node), in place, job j\\x1b\n"
      "#\n"
      "#        size         count      type    redop  root        time    algbw    busbw  #wrong\n"
      "#         (B)    (elements)                                 (us)   (GB/s)   (GB/s)\n");
}

TEST(PerfShow, NamesTheGpuOnWhichBuffersLie) {
  EXPECT_THAT(perf_heading(Collective::kAllreduce, 4, 2, "j", {.gpu = "GPU 0, NVIDIA H100 (gpu)"}),
              HasSubstr("in place, job j, on GPU 0, NVIDIA H100 (gpu)\n"));
}

TEST(PerfShow, SaysWhatMakesTheFiguresOthers) {
  const Manner manner{.together = 64, .wire = "bf16"};
  EXPECT_THAT(perf_heading(Collective::kAllreduce, 4, 2, "j", manner),
              HasSubstr("job j, 64 at a time, bf16 on the wire\n"));
  const auto document = perf_document(Collective::kAllreduce, 4, {sample(0)}, manner);
  EXPECT_EQ(offence(schema_of("perf"), document), "");
  EXPECT_EQ(document["together"], 64);
  EXPECT_EQ(document["wire"], "bf16");
}

TEST(PerfShow, Rows) {
  EXPECT_EQ(perf_row(sample(0), 4),
            "      4194304       1048576   float32      sum    -1      2000.0     2.10     3.15    "
            "   0\n");
  EXPECT_EQ(perf_row(sample(std::nullopt), 4),
            "      4194304       1048576   float32      sum    -1      2000.0     2.10     3.15    "
            " N/A\n");
  const Measurement barrier{
      {Collective::kBarrier, Dtype::kUint8, ReduceOp::kNone, 0, 0}, 9, 0.000123, 0};
  EXPECT_EQ(perf_row(barrier, 4),
            "            0             0      none     none    -1       123.0        -        -    "
            " N/A\n");
  const Measurement broadcast{
      {Collective::kBroadcast, Dtype::kInt64, ReduceOp::kNone, 3, 1024}, 9, 0.001, std::nullopt};
  EXPECT_THAT(perf_row(broadcast, 4),
              HasSubstr("int64     none     3      1000.0     0.01     0.01"));
}

TEST(PerfShow, EndingAveragesAndJudges) {
  EXPECT_EQ(perf_ending({sample(0), sample(0)}, 4),
            "# Wrong values: 0 OK\n# Average bus bandwidth: 3.146 GB/s\n");
  EXPECT_THAT(perf_ending({sample(0), sample(5)}, 4), HasSubstr("# Wrong values: 5 FAILED\n"));
  Measurement barrier = sample(0);
  barrier.of = {Collective::kBarrier, Dtype::kUint8, ReduceOp::kNone, 0, 0};
  EXPECT_EQ(perf_ending({barrier}, 2), "# Wrong values: 0 OK\n");
  EXPECT_EQ(perf_ending({sample(std::nullopt)}, 2), "# Average bus bandwidth: 2.097 GB/s\n");
}

TEST(PerfShow, DocumentIsAsItsSchemaSays) {
  const auto document = perf_document(Collective::kAllreduce, 4, {sample(0), sample(2)}, {});
  EXPECT_EQ(offence(schema_of("perf"), document), "");
  EXPECT_EQ(document["wrong"], 2);
  EXPECT_EQ(document["results"][0]["time_seconds"], 0.002);
  Measurement barrier = sample(0);
  barrier.of = {Collective::kBarrier, Dtype::kUint8, ReduceOp::kNone, 0, 0};
  const auto barriers =
      perf_document(Collective::kBarrier, 1, {barrier}, {.memory = MemoryKind::kPool});
  EXPECT_EQ(offence(schema_of("perf"), barriers), "");
  EXPECT_EQ(barriers["results"][0]["type"], "none") << "as in the table";
}

TEST(Perf, Int8IsNotCheckedWhoeverAsksForIt) {
  for (const char* word : {"--wire=int8", "--min=8K"}) {
    const auto outcome =
        run({"GRADRING_WIRE=int8", GRADRING_PERF, "allreduce", "--ranks", "2", "--check", word});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("rounds"));
  }
}

TEST(Perf, WithoutADaemonAllRanksEndAndSayWhy) {
  TemporaryFolder empty;
  const auto outcome =
      run({GRADRING_PERF, "allreduce", "--ranks", "2", "--runtime-dir", empty.path()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no gradring daemon at " + empty.path()));
}

TEST(Perf, WhereItCannotWriteItDoesNotBegin) {
  TemporaryFolder empty;
  const auto outcome = run({"RANK=0", "WORLD_SIZE=1", GRADRING_PERF, "allreduce", "--json",
                            empty.path() + "/no/folder", "--runtime-dir", empty.path()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write " + empty.path() + "/no/folder"));
}

TEST(Perf, WhatIsInItsFileStaysUntilThereIsSomethingNew) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/perf.json";
  std::ofstream(file) << "of last week";
  run({"RANK=0", "WORLD_SIZE=1", GRADRING_PERF, "allreduce", "--json", file, "--runtime-dir",
       folder.path()});
  std::string text;
  std::getline(std::ifstream(file), text);
  EXPECT_EQ(text, "of last week");
}

TEST(Perf, UsageIsTwo) {
  EXPECT_EQ(run({GRADRING_PERF, "--help"}).exit_code, 0);
  EXPECT_EQ(run({GRADRING_PERF}).exit_code, 2);
  EXPECT_EQ(run({"sh", "-c", "exec \"$0\" allreduce 2>&-", GRADRING_PERF}).exit_code, 2);
  const auto both = run({"RANK=0", "WORLD_SIZE=4", GRADRING_PERF, "allreduce", "--ranks", "2"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("leave --ranks 2 out"));
}

}  // namespace
}  // namespace gradring::tools
