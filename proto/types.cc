#include "proto/types.h"

namespace gradring {
namespace {

struct DtypeRow {
  std::string_view name;
  size_t size;
  bool integer;
};

// Indexed by the wire value.
constexpr std::array<DtypeRow, kDtypeLast + 1> kDtypes = {{{"none", 0, false},
                                                           {"float32", 4, false},
                                                           {"float64", 8, false},
                                                           {"float16", 2, false},
                                                           {"bfloat16", 2, false},
                                                           {"int8", 1, true},
                                                           {"int16", 2, true},
                                                           {"int32", 4, true},
                                                           {"int64", 8, true},
                                                           {"uint8", 1, true}}};
constexpr std::array<std::string_view, kReduceOpLast + 1> kOps = {"none", "sum", "average",
                                                                  "min",  "max", "product"};
constexpr std::array<std::string_view, kCollectiveLast + 1> kCollectives = {
    "none", "allreduce", "broadcast", "barrier", "join point"};

const DtypeRow& row_of(Dtype dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kDtypes[index <= kDtypeLast ? index : 0];
}

template <size_t N>
std::string_view name_at(const std::array<std::string_view, N>& names, size_t index) {
  return index < N ? names[index] : "unknown";
}

}  // namespace

size_t size_of(Dtype dtype) { return row_of(dtype).size; }
bool is_integer(Dtype dtype) { return row_of(dtype).integer; }

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }
std::string_view name_of(ReduceOp op) { return name_at(kOps, static_cast<size_t>(op)); }
std::string_view name_of(Collective collective) {
  return name_at(kCollectives, static_cast<size_t>(collective));
}

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

std::string describe(const Signature& s) {
  std::string text(name_of(s.collective));
  if (s.collective >= Collective::kBarrier) return text;
  if (s.collective == Collective::kAllreduce) text += " " + std::string(name_of(s.op));
  text += " of " + std::to_string(s.count) + " " + std::string(name_of(s.dtype));
  if (s.collective == Collective::kBroadcast) text += " from rank " + std::to_string(s.root);
  return text;
}

std::string describe(const OpKey& key) {
  if (key.space == 0) return "op " + std::to_string(key.sequence);
  return "named op " + std::to_string(key.space) + " use " + std::to_string(key.sequence);
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
