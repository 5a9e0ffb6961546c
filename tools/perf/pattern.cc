#include "tools/perf/pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradring::tools {
namespace {

// Whole numbers up to here are exact in bfloat16; float16 reaches 2048, int8 127.
constexpr int kExact = 256;
constexpr int kExactSum = 127;
// More than any value that is given where nothing is reduced.
constexpr int kOtherwise = 64;

// Scrambles a position, so that neighbours share nothing: multiplied by the golden ratio twice.
uint64_t scrambled(uint64_t i) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / 1.618...
  i = (i + 1) * kGolden;
  i = (i ^ (i >> 32)) * kGolden;
  return i ^ (i >> 29);
}

// A few bits of a scrambled position that belong to one rank.
unsigned bits_of(uint64_t hash, int rank) {
  return static_cast<unsigned>(std::rotr(hash, rank * 7 % 64));
}

// The largest 2^k - 1 that is at most `limit`, and at most 15.
unsigned mask_up_to(int limit) {
  return limit < 1 ? 0 : std::min(15u, (std::bit_floor(static_cast<unsigned>(limit) + 1)) - 1);
}

// Every sum of some of the ranks stays within int8.
int sum_input(uint64_t hash, int rank, int ranks) {
  if (rank >= kExactSum) return 0;
  return static_cast<int>(bits_of(hash, rank) & mask_up_to(kExactSum / std::min(ranks, kExactSum)));
}

// All share a base and pairs of ranks deviate from it in opposite directions: the average is the
// base.
int average_base(uint64_t hash, int ranks) {
  return static_cast<int>((hash >> 60) & mask_up_to((kExact - 32) / ranks));
}
int average_input(uint64_t hash, int rank, int ranks) {
  const bool single = rank == ranks - 1 && ranks % 2 == 1;
  const int deviation = single ? 0 : static_cast<int>(bits_of(hash, rank / 2) & 7);
  return average_base(hash, ranks) + (rank % 2 == 0 ? deviation : -deviation);
}

// Six twos at most, at other ranks from element to element, else ones.
int product_input(uint64_t hash, int rank, int ranks) {
  const auto groups = static_cast<uint64_t>((ranks + 5) / 6);
  const bool chosen = (hash >> 40) % groups == static_cast<uint64_t>(rank) % groups;
  return chosen && (bits_of(hash, rank) & 1) != 0 ? 2 : 1;
}

bool has_sign(Dtype dtype) {
  return is_float(dtype) || dtype == Dtype::kInt8 || dtype == Dtype::kInt16 ||
         dtype == Dtype::kInt32 || dtype == Dtype::kInt64;
}

int extreme_input(uint64_t hash, int rank, Dtype dtype) {
  const int value = static_cast<int>(bits_of(hash, rank) & 63);
  return has_sign(dtype) ? value - 32 : value;
}

// What the sum of bools is called, and so on.
ReduceOp of_bools(ReduceOp op) {
  if (op == ReduceOp::kProduct || op == ReduceOp::kMin) return ReduceOp::kBand;
  return op == ReduceOp::kSum || op == ReduceOp::kMax ? ReduceOp::kBor : op;
}

// Mostly one rank is not what all others are, and it decides.
int bool_input(uint64_t hash, int rank, int ranks, ReduceOp op) {
  if (op == ReduceOp::kBxor) return static_cast<int>(bits_of(hash, rank) & 1);
  const bool odd = (hash >> 40) % (static_cast<uint64_t>(ranks) + 1) == static_cast<uint64_t>(rank);
  return odd == (of_bools(op) == ReduceOp::kBor) ? 1 : 0;
}

int fold(ReduceOp op, int a, int b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kBand:
      return a & b;
    case ReduceOp::kBor:
      return a | b;
    case ReduceOp::kBxor:
      return a ^ b;
    default:
      return a + b;
  }
}

template <typename T>
void put(int value, std::byte* to) {
  const T element = static_cast<T>(value);
  std::memcpy(to, &element, sizeof element);
}

// Exact for the whole numbers of this file: the bits that are dropped are zero.
uint16_t to_bfloat16(int value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}
uint16_t to_float16(int value) {
  if (value == 0) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

void encode(Dtype dtype, int value, std::byte* to) {
  switch (dtype) {
    case Dtype::kFloat32:
      return put<float>(value, to);
    case Dtype::kFloat64:
      return put<double>(value, to);
    case Dtype::kFloat16:
      return put<uint16_t>(to_float16(value), to);
    case Dtype::kBfloat16:
      return put<uint16_t>(to_bfloat16(value), to);
    case Dtype::kInt8:
      return put<int8_t>(value, to);
    case Dtype::kInt16:
      return put<int16_t>(value, to);
    case Dtype::kInt32:
      return put<int32_t>(value, to);
    case Dtype::kInt64:
      return put<int64_t>(value, to);
    case Dtype::kUint16:
      return put<uint16_t>(value, to);
    case Dtype::kUint32:
      return put<uint32_t>(value, to);
    case Dtype::kUint64:
      return put<uint64_t>(value, to);
    case Dtype::kUint8:
    case Dtype::kBool:
    case Dtype::kFloat8E4m3:
    case Dtype::kFloat8E5m2:
      return put<uint8_t>(value, to);
  }
}

}  // namespace

int input_value(const Case& of, int rank, int ranks, uint64_t i) {
  const uint64_t hash = scrambled(i);
  if (!reduces(of.collective)) {
    const int value = static_cast<int>(hash & 63);
    const bool gives = of.collective != Collective::kBroadcast || rank == static_cast<int>(of.root);
    return gives ? value : kOtherwise + value;
  }
  if (of.dtype == Dtype::kBool) return bool_input(hash, rank, ranks, of.op);
  switch (of.op) {
    case ReduceOp::kAverage:
      return average_input(hash, rank, ranks);
    case ReduceOp::kProduct:
      return product_input(hash, rank, ranks);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return extreme_input(hash, rank, of.dtype);
    default:
      return sum_input(hash, rank, ranks);
  }
}

int expected_value(const Case& of, int ranks, uint64_t i) {
  if (!reduces(of.collective)) return input_value(of, static_cast<int>(of.root), ranks, i);
  const ReduceOp op = of.dtype == Dtype::kBool ? of_bools(of.op) : of.op;
  int result = input_value(of, 0, ranks, i);
  for (int rank = 1; rank < ranks; ++rank) {
    result = fold(op, result, input_value(of, rank, ranks, i));
  }
  return of.op == ReduceOp::kAverage ? result / ranks : result;
}

Pattern::Pattern(const Case& of, int rank, int ranks) : element_(size_of(of.dtype)) {
  // Pairs of ranks have blocks of their own, and there are more of these than one buffer holds.
  const uint64_t whole = of.collective == Collective::kAlltoall ? kPeriod : of.count;
  const size_t elements = std::min<uint64_t>(whole, kPeriod);
  input_.resize(elements * element_);
  expected_.resize(elements * element_);
  if (!reduces(of.collective)) otherwise_.resize(elements * element_);
  for (size_t i = 0; i < elements; ++i) {
    encode(of.dtype, input_value(of, rank, ranks, i), &input_[i * element_]);
    const int expected = expected_value(of, ranks, i);
    encode(of.dtype, expected, &expected_[i * element_]);
    if (!otherwise_.empty()) encode(of.dtype, kOtherwise + expected, &otherwise_[i * element_]);
  }
}

namespace {

// Goes through `bytes` bytes in runs that are contiguous in a cycle of values as well, which begin
// with element `first`: visit(at, in_cycle, length).
template <typename Visit>
void in_runs(size_t bytes, size_t cycle, uint64_t first_byte, Visit visit) {
  if (bytes == 0) return;
  size_t in_cycle = first_byte % cycle;
  for (size_t at = 0; at < bytes;) {
    const size_t length = std::min(cycle - in_cycle, bytes - at);
    visit(at, in_cycle, length);
    at += length;
    in_cycle = 0;
  }
}

}  // namespace

void Pattern::fill(std::span<std::byte> buffer, uint64_t first) const {
  in_runs(buffer.size(), input_.size(), first * element_,
          [&](size_t at, size_t in_cycle, size_t length) {
            std::memcpy(&buffer[at], &input_[in_cycle], length);
          });
}

void Pattern::fill_otherwise(std::span<std::byte> buffer) const {
  in_runs(buffer.size(), otherwise_.size(), 0, [&](size_t at, size_t in_cycle, size_t length) {
    std::memcpy(&buffer[at], &otherwise_[in_cycle], length);
  });
}

uint64_t Pattern::wrong_elements(std::span<const std::byte> buffer, uint64_t first) const {
  uint64_t wrong = 0;
  in_runs(buffer.size(), expected_.size(), first * element_,
          [&](size_t at, size_t in_cycle, size_t length) {
            if (std::memcmp(&buffer[at], &expected_[in_cycle], length) == 0) return;
            for (size_t i = 0; i < length; i += element_) {
              wrong += std::memcmp(&buffer[at + i], &expected_[in_cycle + i], element_) != 0;
            }
          });
  return wrong;
}

}  // namespace gradring::tools
