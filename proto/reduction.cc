#include "proto/reduction.h"

#include <array>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <string>

namespace gradring {
namespace {

Status refuse(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

bool bitwise(ReduceOp op) {
  return op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
}

}  // namespace

Status can_reduce(Dtype dtype, ReduceOp op) {
  if (size_of(dtype) == 0) {
    return refuse("there is no element type number " + std::to_string(static_cast<int>(dtype)));
  }
  if (op == ReduceOp::kNone || static_cast<uint8_t>(op) > kReduceOpLast) {
    return refuse("there is no reduction number " + std::to_string(static_cast<int>(op)) +
                  "; use sum, average, min, max, product, band, bor or bxor");
  }
  const std::string name(name_of(dtype));
  if (is_float(dtype)) {
    if (!bitwise(op)) return {};
    return refuse("the " + std::string(name_of(op)) + " of " + name +
                  " would mix the bits of numbers: reduce their bits as integers");
  }
  if (!is_integer(dtype) && dtype != Dtype::kBool) {
    return refuse(name + " is moved as it is and never reduced: reduce in a wider type");
  }
  if (op != ReduceOp::kAverage) return {};
  return refuse(
      "the average of " + name +
      " is refused, it would cut off fractions: reduce with sum, and divide in a type that "
      "can hold the result");
}

bool may_pack(Collective collective, Dtype dtype) {
  return reduces(collective) && dtype == Dtype::kFloat32;
}

Status can_scale(Collective collective, Dtype dtype, double factor) {
  if (factor == 1) return {};
  if (!reduces(collective) || !is_float(dtype)) {
    return refuse(std::string(name_of(collective)) + " of " + std::string(name_of(dtype)) +
                  " cannot be scaled; what reduces float16, bfloat16, float32 or float64 can");
  }
  const bool is_double = dtype == Dtype::kFloat64;
  const double most = is_double ? DBL_MAX : FLT_MAX;
  const double least = is_double ? DBL_MIN : FLT_MIN;
  if (std::abs(factor) <= most && std::abs(factor) >= least) return {};  // false for NaN
  std::array<char, 160> why;
  std::snprintf(why.data(), why.size(),
                "%g is nothing to scale by: as %s a factor lies between %.2g and %.2g, or their "
                "negatives",
                factor, is_double ? "float64" : "float32", least, most);
  return refuse(why.data());
}

}  // namespace gradring
