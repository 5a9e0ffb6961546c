#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/blocks.h"

namespace gradring {

// The numbers are wire values: append, never renumber.
enum class Dtype : uint8_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBfloat16 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kUint8 = 9,
  kUint16 = 10,
  kUint32 = 11,
  kUint64 = 12,
  kBool = 13,        // a byte: 0, or anything else; what is computed is 0 or 1
  kFloat8E4m3 = 14,  // these two are moved and never computed with
  kFloat8E5m2 = 15,
};
inline constexpr uint8_t kDtypeLast = 15;

enum class ReduceOp : uint8_t {
  kNone = 0,
  kSum = 1,
  kAverage = 2,
  kMin = 3,
  kMax = 4,
  kProduct = 5,
  kBand = 6,  // bit by bit
  kBor = 7,
  kBxor = 8,
};
inline constexpr uint8_t kReduceOpLast = 8;

// What float32 travels as between nodes; it is summed in float32, and rounded each time that it
// leaves a node. kInt8: blocks of kInt8Block elements, a float32 scale and a byte for each.
enum class WireType : uint8_t { kNative = 0, kFloat16 = 1, kBfloat16 = 2, kInt8 = 3 };
inline constexpr uint8_t kWireTypeLast = 3;
inline constexpr size_t kInt8Block = 256;

enum class Collective : uint8_t {
  kAllreduce = 1,
  kBroadcast = 2,
  kBarrier = 3,
  // A barrier at which an elastic job may grow: no op of any rank is open there.
  kJoinPoint = 4,
  kAllgather = 5,
  kReduceScatter = 6,
  kReduce = 7,
  kGather = 8,
  kScatter = 9,
  kAlltoall = 10,
  // An allreduce that ends when every rank has no more data. A rank that has submitted it stands in
  // for itself in the ops of the others (core/job_engine.h).
  kJoin = 11,
};
inline constexpr uint8_t kCollectiveLast = 11;

// False of barriers, which have no elements.
bool moves_data(Collective collective);
// Has a reduce op.
bool reduces(Collective collective);
// One rank gives to all, or gets from all.
bool has_root(Collective collective);
// Buffers are laid out in blocks, one for each rank, in the order of ranks.
bool in_blocks(Collective collective);
// What each part of the result is, is wanted by one rank alone.
bool goes_to_one(Collective collective);
// Means nothing without every one of its ranks; the others go on with those who are left.
bool needs_all_ranks(Collective collective);

// Bytes of one element; 0 for a value outside the enumeration.
size_t size_of(Dtype dtype);
// With a sign or without; a bool is none.
bool is_integer(Dtype dtype);
// Whether it is computed with as a number that may have fractions.
bool is_float(Dtype dtype);
// Whether it is float16 or bfloat16, which are summed in float32.
bool is_half(Dtype dtype);

std::string_view name_of(Dtype dtype);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Collective collective);
std::string_view name_of(WireType wire);
std::optional<Dtype> parse_dtype(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);
std::optional<Collective> parse_collective(std::string_view name);
std::optional<WireType> parse_wire_type(std::string_view name);

// Bytes that `count` float32 are on the wire.
uint64_t packed_bytes(WireType wire, uint64_t count);

// No signature from outside may count more: bytes() of any type then stays far from overflow, so
// that a check against the end of a segment cannot be fooled.
inline constexpr uint64_t kCountMax = uint64_t{1} << 56;
// Far beyond any job.
inline constexpr uint32_t kRanksMax = 1 << 20;

// What all ranks of an op must agree on. Travels whole in READY, so that a mismatch can be told to
// people as two signatures instead of two hashes. `root` is meaningful where has_root() says so,
// `op` where reduces() does, `ranks` where needs_all_ranks() does; they are zero otherwise.
struct Signature {
  Collective collective = Collective::kBarrier;
  Dtype dtype = Dtype::kUint8;
  ReduceOp op = ReduceOp::kNone;
  uint32_t root = 0;
  uint64_t count = 0;  // elements per rank; of a collective in blocks, in the longest of them
  uint32_t ranks = 0;  // among which it is
  WireType wire = WireType::kNative;  // another: where may_pack() says so
  double postscale = 1;  // the result is multiplied by it; another: as can_scale() says
  Blocks blocks = {};    // of a collective in blocks

  bool operator==(const Signature&) const = default;
  uint64_t bytes() const { return count * size_of(dtype); }
};
// Every number is within bounds that make extent_of() safe to multiply, and the blocks, if they are
// known, are those of an op like this.
bool is_sane(const Signature& signature);

// One for each rank, or each pair; of an op that is not in blocks 1.
uint64_t blocks_of(const Signature& signature);
// Of all blocks together, or of the one where there are none. Uneven ones must be known.
uint64_t elements_of(const Signature& signature);

// What one rank reads and writes, in bytes: 0 where it gives or gets nothing. `position`: of the
// rank among the op's. Requires is_sane(), and that uneven blocks are known.
struct Extent {
  uint64_t input = 0;
  uint64_t output = 0;

  bool operator==(const Extent&) const = default;
};
Extent extent_of(const Signature& signature, uint32_t rank, uint32_t position);
// Whether buffers that overlap are in the one place where that does no harm: the same, or the
// smaller one is the rank's own block of the larger one. As extent_of().
bool in_place(const Signature& signature, uint32_t position, const void* input, const void* output);
// "the same or apart", or what else the collective allows.
std::string_view in_place_words(Collective collective);
// "allreduce sum of 1024 float32"
std::string describe(const Signature& signature);

// Names one op within a job. `space` 0 counts the ops of a job in program order; any other value is
// the hash of a name given by the trainer, and `sequence` counts the uses of that name.
struct OpKey {
  uint64_t space = 0;
  uint64_t sequence = 0;

  // Join points count by themselves, whatever key a trainer gives.
  static constexpr uint64_t kJoinSpace = 0x6a6f696e20707421;
  // And so do the joins of ranks without more data.
  static constexpr uint64_t kNoMoreSpace = 0x6e6f206d6f726521;

  auto operator<=>(const OpKey&) const = default;
};
std::string describe(const OpKey& key);
// An op's name as messages show it: of a long one the beginning, so that where they are cut who is
// to blame, or waited for, is still in them.
std::string shown_name(std::string_view name);

// One life of a job, minted once at random by the daemon of rank 0 (protocol rule J0).
using JobId = std::array<uint8_t, 16>;
std::string hex(const JobId& id);

}  // namespace gradring
