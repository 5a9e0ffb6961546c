#include "proto/policy.h"

#include <gtest/gtest.h>

namespace gradring {
namespace {

TEST(Policy, WhatPeopleWrite) {
  EXPECT_EQ(parse_policy("fail"), (Policy{false, 1, 0}));
  EXPECT_EQ(parse_policy(""), (Policy{false, 1, 0}));
  EXPECT_EQ(parse_policy("elastic"), (Policy{true, 1, 0}));
  EXPECT_EQ(parse_policy("elastic min=2"), (Policy{true, 2, 0}));
  EXPECT_EQ(parse_policy("  elastic  max=8   min=2 "), (Policy{true, 2, 8}));
  EXPECT_EQ(parse_policy("elastic min=3 max=3"), (Policy{true, 3, 3}));
}

TEST(Policy, WhatIsNone) {
  for (const char* text :
       {"rubber", "Fail", "fail min=2", "elastic min", "elastic min=", "elastic min=0",
        "elastic max=0", "elastic min=-1", "elastic min=2x", "elastic min= 2", "elastic 2",
        "elastic min=4 max=3", "elastic min=99999999999", "elasticmin=2"}) {
    EXPECT_EQ(parse_policy(text), std::nullopt) << text;
  }
}

TEST(Policy, ItsDescriptionMeansTheSame) {
  for (const Policy& policy : {Policy{}, Policy{true, 1, 0}, Policy{true, 2, 8}}) {
    EXPECT_EQ(parse_policy(describe(policy)), policy) << describe(policy);
  }
  EXPECT_EQ(describe(Policy{true, 2, 8}), "elastic min=2 max=8");
}

}  // namespace
}  // namespace gradring
