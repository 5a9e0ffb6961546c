#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <vector>

#include "transport/reducer.h"

namespace gradring::reducer_targets {

// Every instruction set that is compiled in and that this processor has.
inline std::vector<int64_t> present() {
  std::vector<int64_t> list;
  const int64_t all = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (int64_t left = all; left != 0; left &= left - 1) list.push_back(left & -left);
  return list;
}

// A test that runs once with each of them.
class OnEachTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    ASSERT_STREQ(transport::reducer_target(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

}  // namespace gradring::reducer_targets

#define GRADRING_ON_EACH_TARGET(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(Targets, suite,                                            \
                           ::testing::ValuesIn(gradring::reducer_targets::present()), \
                           [](const auto& target) { return hwy::TargetName(target.param); })
