#include "daemon/control/sessions/charges.h"

#include <gtest/gtest.h>

#include <future>
#include <utility>

namespace gradring::daemon {
namespace {

constexpr uint32_t kUid = 1000;
constexpr uint64_t kSmallSegment = 4096;
constexpr uint64_t kLargeSegment = 65 << 20;

std::shared_ptr<const transport::Segment> held(Charges* charges, uint64_t bytes) {
  auto segment = transport::Segment::create(bytes);
  return charges->hold(kUid, std::move(*segment));
}

TEST(Charges, WhatIsSmallIsFreeAtOnce) {
  Charges charges;
  auto first = held(&charges, kSmallSegment), second = first;
  charges.add_session(kUid);
  EXPECT_EQ(charges.of(kUid).segment_bytes, kSmallSegment);
  first.reset();
  EXPECT_EQ(charges.of(kUid).segments, 1u) << "it has another owner";
  second.reset();
  EXPECT_EQ(charges.of(kUid).segments, 0u);
  EXPECT_EQ(charges.of(kUid).sessions, 1u);
  EXPECT_EQ(charges.set_aside(), 0u);
}

TEST(Charges, NobodyWaitsForWhatIsLargeAndItIsChargedUntilItIsFree) {
  Charges charges;
  std::promise<void> may_free, is_free;
  charges.when_free([&] { may_free.get_future().wait(); });
  held(&charges, kLargeSegment).reset();
  EXPECT_EQ(charges.set_aside(), 1u);
  EXPECT_EQ(charges.of(kUid).segment_bytes, kLargeSegment);
  EXPECT_EQ(charges.most().segment_bytes, kLargeSegment);
  may_free.set_value();
  charges.when_free([&] { is_free.set_value(); });
  is_free.get_future().wait();
  EXPECT_EQ(charges.of(kUid).segments, 0u);
  EXPECT_EQ(charges.segments(), 0u);
}

TEST(Charges, WhatIsLargeMayBeLetGoOfByAnyThreadAndAtTheEnd) {
  Charges charges;
  auto large = held(&charges, kLargeSegment);
  std::async(std::launch::async, [&] { large.reset(); }).wait();
  EXPECT_EQ(charges.set_aside(), 1u);
}

}  // namespace
}  // namespace gradring::daemon
