#include "daemon/event_ring.h"

#include <gtest/gtest.h>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

NodeEvent named(const std::string& text) {
  NodeEvent event;
  event.text = text;
  return event;
}

TEST(EventRing, TellsWhatCameAfterANumber) {
  EventRing ring(10);
  EXPECT_TRUE(ring.after(0).events.empty());
  for (const char* text : {"a", "b", "c"}) ring.add(named(text));
  const EventRing::Part all = ring.after(0);
  ASSERT_EQ(all.events.size(), 3u);
  EXPECT_EQ(all.events[0].number, 1u);
  EXPECT_EQ(all.events[0].text, "a");
  EXPECT_EQ(all.forgotten, 0u);
  ASSERT_EQ(ring.after(2).events.size(), 1u);
  EXPECT_EQ(ring.after(2).events[0].text, "c");
  EXPECT_TRUE(ring.after(3).events.empty());
  EXPECT_TRUE(ring.after(UINT64_MAX).events.empty());
}

TEST(EventRing, KeepsTheLastAndSaysHowManyAreGone) {
  EventRing ring(3);
  for (int i = 1; i <= 10; ++i) ring.add(named(std::to_string(i)));
  const EventRing::Part part = ring.after(0);
  ASSERT_EQ(part.events.size(), 3u);
  EXPECT_EQ(part.events[0].number, 8u);
  EXPECT_EQ(part.events[0].text, "8");
  EXPECT_EQ(part.forgotten, 7u);
  EXPECT_EQ(ring.after(6).forgotten, 1u);
  EXPECT_EQ(ring.after(7).forgotten, 0u);
  EXPECT_EQ(ring.after(9).events.size(), 1u);
}

// Whatever the level of the log, and with its fields.
TEST(EventRing, HasWhatTheLogIsTold) {
  EventRing ring(3);
  remember_in(&ring);
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);
  tell(Notice::kJobFormed, spdlog::level::info, {{"GRADRING_JOB", "train"}}, "job train runs");
  tell(Notice::kPeerLost, spdlog::level::warn, {{"GRADRING_PEER", "b"}}, "peer b is lost");
  spdlog::set_level(level);
  remember_in(nullptr);
  const auto events = ring.after(0).events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, "job formed");
  EXPECT_EQ(events[0].level, "info");
  EXPECT_EQ(events[0].text, "job train runs");
  ASSERT_EQ(events[0].about.size(), 1u);
  EXPECT_EQ(events[0].about[0], (std::pair<std::string, std::string>("job", "train")));
  EXPECT_EQ(events[1].level, "warning");
  EXPECT_GT(events[0].wall, 0);
  EXPECT_GE(events[1].at, events[0].at);
}

}  // namespace
}  // namespace gradring::daemon
