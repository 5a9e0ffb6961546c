#include "proto/identity.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "proto/reduction.h"
#include "transport/reducer.h"

namespace gradring {
namespace {

constexpr size_t kCount = 33;

// An ordinary number in any type: the same byte all over; of a bool only 1 stays what it is.
std::vector<std::byte> values_of(Dtype dtype) {
  return std::vector<std::byte>(kCount * size_of(dtype),
                                dtype == Dtype::kBool ? std::byte{1} : std::byte{0x3c});
}

// Of every type and every op: what was there is there, whichever comes first.
TEST(Identity, ChangesNoValueInAnyReduction) {
  for (uint8_t d = 1; d <= kDtypeLast; ++d) {
    for (uint8_t o = 1; o <= kReduceOpLast; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op).ok()) continue;
      const std::vector<std::byte> values = values_of(dtype);
      std::vector<std::byte> identity(values.size()), result(values.size());
      fill_identity(dtype, op, identity.data(), kCount);
      for (const bool first : {true, false}) {
        const std::vector<const void*> inputs = {first ? identity.data() : values.data(),
                                                 first ? values.data() : identity.data()};
        transport::fold(dtype, op, inputs, result.data(), kCount, 0);
        EXPECT_EQ(result, values) << name_of(op) << " of " << name_of(dtype);
      }
    }
  }
}

TEST(Identity, OfExtremesIsInfinite) {
  const auto of = [](ReduceOp op) {
    float value = 0;
    fill_identity(Dtype::kFloat32, op, reinterpret_cast<std::byte*>(&value), 1);
    return value;
  };
  EXPECT_EQ(of(ReduceOp::kMin), std::numeric_limits<float>::infinity());
  EXPECT_EQ(of(ReduceOp::kMax), -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace gradring
