#include "proto/types.h"

#include <algorithm>
#include <charconv>

#include "proto/reduction.h"

namespace gradring {
namespace {

enum class Kind : uint8_t { kNone, kFloat, kInteger, kOther };

struct DtypeRow {
  std::string_view name;
  size_t size;
  Kind kind;
};

// Indexed by the wire value.
constexpr std::array<DtypeRow, kDtypeLast + 1> kDtypes = {{{"none", 0, Kind::kNone},
                                                           {"float32", 4, Kind::kFloat},
                                                           {"float64", 8, Kind::kFloat},
                                                           {"float16", 2, Kind::kFloat},
                                                           {"bfloat16", 2, Kind::kFloat},
                                                           {"int8", 1, Kind::kInteger},
                                                           {"int16", 2, Kind::kInteger},
                                                           {"int32", 4, Kind::kInteger},
                                                           {"int64", 8, Kind::kInteger},
                                                           {"uint8", 1, Kind::kInteger},
                                                           {"uint16", 2, Kind::kInteger},
                                                           {"uint32", 4, Kind::kInteger},
                                                           {"uint64", 8, Kind::kInteger},
                                                           {"bool", 1, Kind::kOther},
                                                           {"float8_e4m3", 1, Kind::kOther},
                                                           {"float8_e5m2", 1, Kind::kOther}}};
constexpr std::array<std::string_view, kReduceOpLast + 1> kOps = {
    "none", "sum", "average", "min", "max", "product", "band", "bor", "bxor"};
constexpr std::array<std::string_view, kWireTypeLast + 1> kWireTypes = {"native", "fp16", "bf16",
                                                                        "int8"};
constexpr std::array<std::string_view, kCollectiveLast + 1> kCollectives = {
    "none",           "allreduce", "broadcast", "barrier", "join point", "allgather",
    "reduce-scatter", "reduce",    "gather",    "scatter", "alltoall",   "join"};

const DtypeRow& row_of(Dtype dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kDtypes[index <= kDtypeLast ? index : 0];
}

template <size_t N>
std::string_view name_at(const std::array<std::string_view, N>& names, size_t index) {
  return index < N ? names[index] : "unknown";
}

// The fewest that mean this number.
std::string in_digits(double number) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

std::string in_hex(uint64_t number) {
  std::array<char, 16> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, 16).ptr;
  return {text.data(), end};
}

}  // namespace

size_t size_of(Dtype dtype) { return row_of(dtype).size; }
bool is_integer(Dtype dtype) { return row_of(dtype).kind == Kind::kInteger; }
bool is_float(Dtype dtype) { return row_of(dtype).kind == Kind::kFloat; }
bool is_half(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16; }

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }
std::string_view name_of(ReduceOp op) { return name_at(kOps, static_cast<size_t>(op)); }
std::string_view name_of(Collective collective) {
  return name_at(kCollectives, static_cast<size_t>(collective));
}
std::string_view name_of(WireType wire) { return name_at(kWireTypes, static_cast<size_t>(wire)); }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (size_t i = 1; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  for (size_t i = 1; i < kOps.size(); ++i) {
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

std::optional<Collective> parse_collective(std::string_view name) {
  for (size_t i = 1; i < kCollectives.size(); ++i) {
    if (kCollectives[i] == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::optional<WireType> parse_wire_type(std::string_view name) {
  for (size_t i = 0; i < kWireTypes.size(); ++i) {
    if (kWireTypes[i] == name) return static_cast<WireType>(i);
  }
  return std::nullopt;
}

uint64_t packed_bytes(WireType wire, uint64_t count) {
  switch (wire) {
    case WireType::kNative:
      break;
    case WireType::kFloat16:
    case WireType::kBfloat16:
      return count * 2;
    case WireType::kInt8:
      return count + (count + kInt8Block - 1) / kInt8Block * sizeof(float);
  }
  return count * sizeof(float);
}

bool moves_data(Collective c) { return c != Collective::kBarrier && c != Collective::kJoinPoint; }

bool reduces(Collective c) {
  return c == Collective::kAllreduce || c == Collective::kReduceScatter ||
         c == Collective::kReduce || c == Collective::kJoin;
}

bool has_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}

bool in_blocks(Collective c) {
  return c == Collective::kAllgather || c == Collective::kReduceScatter ||
         c == Collective::kGather || c == Collective::kScatter || c == Collective::kAlltoall;
}

bool goes_to_one(Collective c) {
  return c == Collective::kReduce || (in_blocks(c) && c != Collective::kAllgather);
}

bool needs_all_ranks(Collective c) { return c == Collective::kReduce || in_blocks(c); }

// With each pair of ranks a block of its own an op has their square.
bool is_sane(const Signature& s) {
  constexpr uint64_t kPairsMax = 1024;
  if (s.count > kCountMax) return false;
  if (s.blocks.uneven() && !in_blocks(s.collective)) return false;
  if (s.wire != WireType::kNative && !may_pack(s.collective, s.dtype)) return false;
  if (!can_scale(s.collective, s.dtype, s.postscale).ok()) return false;
  if (!needs_all_ranks(s.collective)) return s.ranks == 0;
  if (s.ranks == 0 || s.ranks > kRanksMax) return false;
  const bool pairs = s.collective == Collective::kAlltoall;
  if (pairs && s.ranks > kPairsMax) return false;
  if (s.count > kCountMax / blocks_of(s)) return false;
  if (!s.blocks.known()) return true;
  return s.blocks.pairs() == pairs && s.blocks.ranks() == s.ranks && s.blocks.longest() == s.count;
}

uint64_t blocks_of(const Signature& s) {
  if (!in_blocks(s.collective)) return 1;
  return s.collective == Collective::kAlltoall ? uint64_t{s.ranks} * s.ranks : s.ranks;
}

uint64_t elements_of(const Signature& s) {
  return s.blocks.uneven() ? s.blocks.total() : s.count * blocks_of(s);
}

Extent extent_of(const Signature& s, uint32_t rank, uint32_t position) {
  uint64_t one = s.bytes();
  uint64_t all = one * std::max<uint64_t>(s.ranks, 1);
  if (s.blocks.uneven()) {
    if (position >= s.ranks) return {};
    const uint64_t element = size_of(s.dtype);
    if (s.blocks.pairs()) {
      return {s.blocks.before(position, s.ranks) * element,
              s.blocks.taken_before(s.ranks, position) * element};
    }
    one = s.blocks.count(position) * element;
    all = s.blocks.total() * element;
  }
  const bool root = s.root == rank;
  switch (s.collective) {
    case Collective::kAllreduce:
    case Collective::kJoin:
      return {one, one};
    case Collective::kBroadcast:
      return {root ? one : 0, one};
    case Collective::kBarrier:
    case Collective::kJoinPoint:
      return {};
    case Collective::kAllgather:
      return {one, all};
    case Collective::kReduceScatter:
      return {all, one};
    case Collective::kReduce:
      return {one, root ? one : 0};
    case Collective::kGather:
      return {one, root ? all : 0};
    case Collective::kScatter:
      return {root ? all : 0, one};
    case Collective::kAlltoall:
      return {all, all};
  }
  return {};
}

bool in_place(const Signature& s, uint32_t position, const void* input, const void* output) {
  const auto from = reinterpret_cast<uintptr_t>(input);
  const auto to = reinterpret_cast<uintptr_t>(output);
  const bool uneven = s.blocks.uneven() && !s.blocks.pairs();
  const uint64_t own = uneven ? s.blocks.before(position) * size_of(s.dtype) : s.bytes() * position;
  switch (s.collective) {
    case Collective::kAlltoall:
      return false;  // what arrives would overwrite what has not left yet
    case Collective::kAllgather:
    case Collective::kGather:
      return from == to + own;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return to == from + own;
    default:
      return from == to;
  }
}

std::string_view in_place_words(Collective c) {
  if (c == Collective::kAlltoall) return "apart";
  return in_blocks(c) ? "apart, or the smaller one this rank's own block of the larger one"
                      : "the same or apart";
}

std::string describe(const Signature& s) {
  std::string text(name_of(s.collective));
  if (!moves_data(s.collective) || s.collective == Collective::kJoin) return text;
  if (reduces(s.collective)) text += " " + std::string(name_of(s.op));
  text += " of ";
  if (in_blocks(s.collective)) text += std::to_string(s.ranks) + " x ";
  if (s.blocks.uneven()) text += "up to ";
  text += std::to_string(s.count) + " " + std::string(name_of(s.dtype));
  if (s.collective == Collective::kReduce) {
    text += " of " + std::to_string(s.ranks) + " ranks";
  }
  const bool gives = s.collective == Collective::kBroadcast || s.collective == Collective::kScatter;
  if (has_root(s.collective)) {
    text += (gives ? " from rank " : " to rank ") + std::to_string(s.root);
  }
  if (s.blocks.uneven()) text += ", in blocks " + in_hex(s.blocks.digest());
  if (s.postscale != 1) text += " times " + in_digits(s.postscale);
  if (s.wire != WireType::kNative) text += ", " + std::string(name_of(s.wire)) + " on the wire";
  return text;
}

std::string describe(const OpKey& key) {
  if (key.space == 0) return "op " + std::to_string(key.sequence);
  if (key.space == OpKey::kJoinSpace) return "join point " + std::to_string(key.sequence);
  if (key.space == OpKey::kNoMoreSpace) return "join " + std::to_string(key.sequence);
  return "named op " + std::to_string(key.space) + " use " + std::to_string(key.sequence);
}

std::string shown_name(std::string_view name) {
  constexpr size_t kMost = 128;
  constexpr std::string_view kRest = "...";
  if (name.size() <= kMost) return std::string(name);
  size_t length = kMost - kRest.size();
  // A byte 10xxxxxx continues a UTF-8 character that began before the cut.
  while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;
  return std::string(name.substr(0, length)).append(kRest);
}

std::string hex(const JobId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : id) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace gradring
