// The table of how sums go, as people write it.

#include "daemon/tuning_text.h"

#include <gmock/gmock.h>

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

core::Tuning parsed(const std::string& text) {
  const auto tuning = parse_tuning(text);
  EXPECT_TRUE(tuning.has_value()) << tuning.error();
  return tuning.value_or(core::Tuning{});
}

TEST(TuningText, WhatPeopleWriteIsWhatTheyRead) {
  for (const std::string text :
       {"default", "64K:parts", "64K:parts,1M:128K", "1K:whole,4K:default,64M:1M,rest:ring",
        "rest:whole", "2M:100032"}) {
    EXPECT_EQ(to_text(parsed(text)), text);
  }
  EXPECT_EQ(to_text(parsed("1K:ring, 2K:ring, 4K:ring")), "4K:ring");
  EXPECT_EQ(to_text(parsed("64K:parts,rest:default")), "64K:parts");
}

TEST(TuningText, WhatMakesNoSenseIsRefusedInWords) {
  const auto fault = [](const std::string& text) {
    const auto tuning = parse_tuning(text);
    return tuning ? "none" : tuning.error();
  };
  EXPECT_THAT(fault("64K"), HasSubstr("'64K' must be SIZE:WAY"));
  EXPECT_THAT(fault(""), HasSubstr("'' must be SIZE:WAY"));
  EXPECT_THAT(fault("64K:parts,"), HasSubstr("must be SIZE:WAY"));
  EXPECT_THAT(fault("63K:parts"), HasSubstr("'63K' is not a size"));
  EXPECT_THAT(fault("128M:ring"), HasSubstr("from 1K to 64M"));
  EXPECT_THAT(fault("512:ring"), HasSubstr("is not a size"));
  EXPECT_THAT(fault("64K:star"), HasSubstr("'star' is not a way"));
  EXPECT_THAT(fault("64K:1K"), HasSubstr("slices of 1K cannot be"));
  EXPECT_THAT(fault("64K:99999999999999999999"), HasSubstr("is not a way"));
  EXPECT_THAT(fault("1M:ring,64K:parts"), HasSubstr("64K does not"));
  EXPECT_THAT(fault("rest:ring,rest:ring"), HasSubstr("rest does not"));
}

}  // namespace
}  // namespace gradring::daemon
