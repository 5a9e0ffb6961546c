// What becomes of news of GPUs: which are unusable, and what people are shown.
#include "daemon/control/hardware/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

using machine::GpuFault;
using machine::GpuNews;

class GpuHealthTest : public testing::Test {
 protected:
  using Lost = GpuHealth::Lost;
  static constexpr const char* kGpu = "GPU-67726164-7269-6e67-2074-77696e202330";
  static constexpr const char* kUuid = "67726164-7269-6e67-2074-77696e202330";
  static constexpr const char* kPart = "MIG-12345678-0000-0000-0000-000000000001";
  static constexpr const char* kPartUuid = "12345678-0000-0000-0000-000000000001";
  static constexpr core::Time kNow = 100 * core::kSecond;

  static GpuNews of(uint64_t xid, const std::string& part = "") {
    return {GpuNews::Kind::kFault,           GpuFault::kXid, xid, kGpu, part,
            *machine::parse_pci("0:17:00.0")};
  }
  static GpuNews there(GpuNews::Kind kind = GpuNews::Kind::kThere, const std::string& part = "") {
    GpuNews news = of(0, part);
    news.kind = kind;
    return news;
  }
  wire::GpuErrorsReport report(core::Time now = kNow) const {
    wire::TopologyReport report;
    health_.add_to(&report, now);
    return report.gpu_errors();
  }
  // To those who read the log.
  std::vector<std::string> said() const {
    std::vector<std::string> texts;
    for (const NodeEvent& event : events_.after(0).events) texts.push_back(event.text);
    return texts;
  }
  void SetUp() override { remember_in(&events_); }
  void TearDown() override { remember_in(nullptr); }

  EventRing events_{100};
  GpuHealth health_{nullptr};
};

TEST_F(GpuHealthTest, UuidsAreWrittenAsNvidiaDoes) {
  std::array<std::byte, 16> uuid{};
  const std::string twin = "gradring twin #0";
  std::transform(twin.begin(), twin.end(), uuid.begin(), [](char c) { return std::byte(c); });
  EXPECT_EQ(uuid_text(uuid), kUuid);
  EXPECT_EQ(bare_uuid(kGpu), kUuid);
  EXPECT_EQ(bare_uuid(kPart), kPartUuid);
}

TEST_F(GpuHealthTest, AGpuIsLostOnceAndStaysSo) {
  EXPECT_THAT(health_.heard(there(), kNow), testing::IsEmpty());
  EXPECT_EQ(health_.why_unusable(kUuid), "");
  EXPECT_THAT(health_.heard(of(79), kNow),
              testing::ElementsAre(Lost{kGpu, "has fallen off the bus (Xid 79)"}));
  GpuNews lost = of(0);
  lost.fault = GpuFault::kLost;
  EXPECT_THAT(health_.heard(lost, kNow), testing::IsEmpty()) << "it is already";
  EXPECT_THAT(health_.heard(of(95), kNow), testing::IsEmpty());
  EXPECT_THAT(health_.why_unusable(kUuid),
              testing::AllOf(testing::HasSubstr(kGpu), testing::HasSubstr("(Xid 79)")));
  EXPECT_EQ(health_.why_unusable(kPartUuid), "") << "of which nobody has heard";
}

TEST_F(GpuHealthTest, AProgramsOwnFaultIsNotedAlone) {
  for (const uint64_t xid : {31, 94, 7777}) {
    EXPECT_THAT(health_.heard(of(xid), kNow), testing::IsEmpty()) << xid;
  }
  EXPECT_EQ(health_.why_unusable(kUuid), "");
  EXPECT_EQ(report().errors_size(), 3);
}

TEST_F(GpuHealthTest, WithAGpuItsPartsAreLost) {
  health_.heard(there(), kNow);
  health_.heard(there(GpuNews::Kind::kPart, kPart), kNow);
  const std::string why = "has fallen off the bus (Xid 79)";
  EXPECT_THAT(health_.heard(of(79), kNow), testing::ElementsAre(Lost{kGpu, why}, Lost{kPart, why}));
  EXPECT_NE(health_.why_unusable(kPartUuid), "");
  const std::string late = "MIG-12345678-0000-0000-0000-000000000002";
  EXPECT_THAT(health_.heard(there(GpuNews::Kind::kPart, late), kNow),
              testing::ElementsAre(Lost{late, why}))
      << "of which was heard too late";
}

TEST_F(GpuHealthTest, APartIsLostAlone) {
  health_.heard(there(), kNow);
  health_.heard(there(GpuNews::Kind::kPart, kPart), kNow);
  EXPECT_THAT(health_.heard(of(95, kPart), kNow), testing::SizeIs(1));
  EXPECT_NE(health_.why_unusable(kPartUuid), "");
  EXPECT_EQ(health_.why_unusable(kUuid), "");
}

TEST_F(GpuHealthTest, ErrorsAreShown) {
  EXPECT_FALSE(report().watched()) << "nobody looks";
  health_.heard(there(), kNow);
  EXPECT_EQ(report().errors_size(), 0);
  health_.heard(of(31), kNow - 5 * core::kSecond);
  health_.heard(of(31), kNow - 3 * core::kSecond);
  health_.heard(of(79), kNow);
  const wire::GpuErrorsReport shown = report();
  ASSERT_EQ(shown.errors_size(), 2);
  EXPECT_EQ(shown.errors(0).gpu(), kGpu);
  EXPECT_EQ(shown.errors(0).pci(), "0000:17:00.0");
  EXPECT_EQ(shown.errors(0).error(), "Xid 31");
  EXPECT_EQ(shown.errors(0).verdict(), "note");
  EXPECT_EQ(shown.errors(0).count(), 2u);
  EXPECT_EQ(shown.errors(0).last_ms(), 3000u);
  EXPECT_EQ(shown.errors(1).verdict(), "unusable");
  EXPECT_THAT(shown.errors(1).remedy(), testing::HasSubstr("drain the node"));

  const auto series = health_.series();
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].gpu, kGpu);
  EXPECT_TRUE(series[0].unusable);
  EXPECT_THAT(series[0].errors,
              testing::ElementsAre(testing::Pair("31", 2u), testing::Pair("79", 1u)));
}

TEST_F(GpuHealthTest, WhatItMeansIsSaidAndAStormIsSaidOnceAMinute) {
  health_.heard(of(79), kNow);
  EXPECT_THAT(said(), testing::ElementsAre(
                          "GPU " + std::string(kGpu) +
                          " (0000:17:00.0) has fallen off the bus (Xid 79): drain the node and "
                          "power it off and on; if it comes again, replace the GPU"));
  EXPECT_EQ(events_.after(0).events[0].kind, "gpu unusable");
  EXPECT_THAT(events_.after(0).events[0].about, testing::Contains(testing::Pair("xid", "79")));
  for (int i = 0; i < 1000; ++i) health_.heard(of(31), kNow + i);
  EXPECT_THAT(said(), testing::SizeIs(2));
  EXPECT_EQ(events_.after(1).events[0].kind, "gpu error");
  health_.heard(of(31), kNow + 61 * core::kSecond);
  ASSERT_THAT(said(), testing::SizeIs(3));
  EXPECT_THAT(said().back(), testing::HasSubstr("(Xid 31; 999 times more since it was said last)"));
}

// Whatever a driver makes up.
TEST_F(GpuHealthTest, KindsOfErrorsAreBounded) {
  for (uint64_t xid = 1000; xid < 2000; ++xid) health_.heard(of(xid), kNow);
  const auto series = health_.series();
  ASSERT_EQ(series.size(), 1u);
  ASSERT_EQ(series[0].errors.size(), 33u);
  uint64_t all = 0;
  for (const auto& [xid, count] : series[0].errors) all += count;
  EXPECT_EQ(all, 1000u);
  EXPECT_THAT(series[0].errors, testing::Contains(testing::Pair("other", 968u)));
  EXPECT_THAT(health_.heard(of(79), kNow), testing::SizeIs(1)) << "it counts all the same";
}

}  // namespace
}  // namespace gradring::daemon
