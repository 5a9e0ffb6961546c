// The parts of drain and events that need no daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/expect_sound.h"
#include "tools/ctl/drain.h"
#include "tools/ctl/events.h"

namespace gradring::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- drain ----

TEST(Drain, TakesATimeoutOrCancels) {
  EXPECT_FALSE(parse_drain({})->timeout_ms);
  EXPECT_EQ(parse_drain({"--timeout", "1.5"})->timeout_ms, 1500u);
  EXPECT_EQ(parse_drain({"--timeout", "0"})->timeout_ms, 0u);
  EXPECT_TRUE(parse_drain({"--cancel"})->cancel);
  for (const Arguments& wrong :
       {Arguments{"--timeout", "-1"}, Arguments{"--timeout", "700000"}, Arguments{"--timeout", "x"},
        Arguments{"--timeout", "nan"}, Arguments{"--timeout"}, Arguments{"now"},
        Arguments{"--cancel", "--timeout", "1"}, Arguments{"--force"}}) {
    const auto wanted = parse_drain(wrong);
    ASSERT_FALSE(wanted) << wrong[0];
    EXPECT_EQ(wanted.error().code(), Code::kInvalidArgument);
  }
}

TEST(Drain, SaysWhatIsLeft) {
  wire::DrainReport report;
  report.set_node("n0");
  report.set_left_ms(12'300);
  report.add_jobs("train");
  EXPECT_EQ(describe(report), "node n0 drains: 1 job left (train), 12.3 s at most");
  for (int i = 0; i < 7; ++i) report.add_jobs("other");
  EXPECT_THAT(describe(report),
              HasSubstr("8 jobs left (train, other, other, other, other, and 3 more)"));
}

TEST(Drain, SaysHowItEnded) {
  DrainEnd end{.node = "n0", .cut_off = {}, .why = {}, .took_ms = 2500};
  Answer good = show(end, Style{});
  EXPECT_EQ(good.text, "node n0 has drained and stopped after 2.5 s\n");
  EXPECT_TRUE(good.problems.empty());
  expect_sound(good, "drain");
  end.cut_off = {"train", "eval"};
  Answer bad = show(end, Style{});
  EXPECT_EQ(bad.json["result"], "stopped");
  EXPECT_THAT(bad.problems, ElementsAre("2 jobs had not ended and were cut off: train, eval"));
  expect_sound(bad, "drain");
  for (const auto how : {DrainEnd::How::kCancelled, DrainEnd::How::kForgotten, DrainEnd::How::kGone,
                         DrainEnd::How::kUnasked}) {
    end.how = how;
    const Answer answer = show(end, Style{});
    EXPECT_EQ(answer.problems.size(), 1u);
    expect_sound(answer, "drain");
  }
}

// Somebody switches the node off then.
TEST(Drain, SaysThatANodeIsGoneOnlyIfItIs) {
  DrainEnd end{.node = "n0",
               .how = DrainEnd::How::kGone,
               .cut_off = {},
               .why = "node n0 went before it answered",
               .took_ms = 2500};
  const Answer gone = show(end, Style{});
  EXPECT_EQ(gone.text, "node n0 is gone after 2.5 s\n");
  EXPECT_EQ(gone.json["result"], "unknown");
  EXPECT_THAT(gone.problems, ElementsAre(HasSubstr("(node n0 went before it answered)")));
  end.how = DrainEnd::How::kUnasked;
  end.why = "node n0 did not answer within 2 s";
  const Answer silent = show(end, Style{});
  EXPECT_EQ(silent.text, "node n0 cannot be asked any more after 2.5 s\n");
  EXPECT_EQ(silent.json["result"], "unanswered");
  EXPECT_THAT(silent.problems, ElementsAre("its drain goes on, but how it ends was not seen: node "
                                           "n0 did not answer within 2 s"));
}

// ---- events ----

TEST(Events, TakesAnAge) {
  EXPECT_EQ(parse_age("90"), 90'000u);
  EXPECT_EQ(parse_age("90s"), 90'000u);
  EXPECT_EQ(parse_age("10m"), 600'000u);
  EXPECT_EQ(parse_age("2h"), 7'200'000u);
  EXPECT_EQ(parse_age("3d"), 3u * 86'400'000u);
  for (const char* wrong :
       {"", "m", "-1m", "1.5h", "10 m", "10x", "99999999999999999999", "2000000"}) {
    EXPECT_FALSE(parse_age(wrong)) << wrong;
  }
}

TEST(Events, RefusesOtherWords) {
  EXPECT_TRUE(parse_events({"--follow", "--all", "--since", "10m"}));
  for (const Arguments& wrong : {Arguments{"--since", "soon"}, Arguments{"--since"},
                                 Arguments{"yesterday"}, Arguments{"--node-only"}}) {
    EXPECT_EQ(parse_events(wrong).error().code(), Code::kInvalidArgument);
  }
}

constexpr int64_t kSecond = 1'000'000'000;

wire::EventReport event(uint64_t number, int64_t at, const std::string& kind) {
  wire::EventReport report;
  report.set_number(number);
  report.set_at(at * kSecond);
  report.set_wall(1'750'000'000 * kSecond + at * kSecond);
  report.set_kind(kind);
  report.set_level(kind == "peer lost" ? "warning" : "info");
  report.set_text("what " + kind + " means");
  return report;
}

NodeReply reply(const std::string& node, uint64_t life, int64_t now,
                const std::vector<wire::EventReport>& events) {
  wire::QueryReply answer;
  answer.set_answered_at(now * kSecond);
  answer.mutable_events()->set_node(node);
  answer.mutable_events()->set_life(life);
  for (const auto& one : events) *answer.mutable_events()->add_events() = one;
  return {node, answer};
}

std::vector<std::string> kinds_of(const std::vector<Happened>& events) {
  std::vector<std::string> kinds;
  for (const Happened& one : events) kinds.push_back(one.node + " " + one.event.kind());
  return kinds;
}

// Nodes have no clock in common: their events are put in order by their ages.
TEST(Events, OfSeveralNodesComeInOrder) {
  EventReader reader;
  std::vector<std::string> problems;
  const auto events =
      reader.take({reply("a", 1, 100, {event(1, 50, "ready"), event(2, 95, "job formed")}),
                   reply("b", 2, 9000, {event(1, 8960, "ready"), event(2, 8999, "peer lost")})},
                  &problems);
  EXPECT_THAT(kinds_of(events), ElementsAre("a ready", "b ready", "a job formed", "b peer lost"));
  EXPECT_EQ(events[0].age_ms, 50'000u);
  EXPECT_TRUE(problems.empty());
}

TEST(Events, AreReadOnce) {
  EventReader reader;
  std::vector<std::string> problems;
  reader.take({reply("a", 1, 100, {event(1, 50, "ready"), event(2, 95, "job formed")})}, &problems);
  EXPECT_EQ(reader.query_for("a").events_after(), 2u);
  EXPECT_EQ(reader.query_for("b").events_after(), 0u);
  const auto more = reader.take({reply("a", 1, 101, {event(3, 100, "job ended")})}, &problems);
  EXPECT_THAT(kinds_of(more), ElementsAre("a job ended"));
}

TEST(Events, OfAnotherLifeAreReadFromItsBeginning) {
  EventReader reader;
  std::vector<std::string> problems;
  reader.take({reply("a", 1, 100, {event(7, 50, "ready")})}, &problems);
  EXPECT_TRUE(reader.take({reply("a", 2, 101, {})}, &problems).empty());
  EXPECT_EQ(reader.query_for("a").events_after(), 0u);
  const auto events = reader.take({reply("a", 2, 102, {event(1, 100, "ready")})}, &problems);
  EXPECT_THAT(kinds_of(events), ElementsAre("a ready"));
}

TEST(Events, SayWhoDidNotAnswer) {
  EventReader reader;
  std::vector<std::string> problems;
  reader.take({{"b", tl::unexpected(Status(Code::kDeadlineExceeded, "node b did not answer"))}},
              &problems);
  EXPECT_THAT(problems, ElementsAre("node b did not answer"));
}

TEST(Events, AreShownWithTimeAgeAndKind) {
  Happened happened{"a", 95'000, event(3, 4, "peer lost")};
  auto* about = happened.event.add_about();
  about->set_name("peer");
  about->set_value("b");
  const Answer answer = show({happened}, false, Style{});
  EXPECT_THAT(answer.text, HasSubstr("1 min ago  peer lost  what peer lost means"));
  EXPECT_THAT(answer.text, HasSubstr(":"));
  expect_sound(answer, "events");
  EXPECT_EQ(answer.json["events"][0]["time"], "2025-06-15T15:06:44.000Z");
  EXPECT_EQ(answer.json["events"][0]["about"]["peer"], "b");
  const Answer all = show({happened}, true, Style{});
  EXPECT_THAT(all.text, HasSubstr("1 min ago  a     peer lost"));
  EXPECT_EQ(show({}, false, Style{}).text, "nothing happened\n");
  expect_sound(show({}, false, Style{}), "events");
  EXPECT_THAT(line_of(happened, true, Style{}), HasSubstr("  a  peer lost  what peer lost means"));
}

TEST(Events, DoNotDisturbATerminal) {
  Happened happened{"a\x1b", 0, event(1, 4, "ready")};
  happened.event.set_text("a \x1b[2J job");
  EXPECT_THAT(show({happened}, true, Style{}).text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(line_of(happened, true, Style{}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace gradring::tools
