#include "tools/ctl/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "proto/frame.h"
#include "tools/ctl/trace/chrome.h"
#include "tools/ctl/trace/collect.h"

namespace gradring::tools {
namespace {

constexpr JobPrefix kTraced = {0xab, 0xcd, 1, 2};

struct At {
  FlightKind kind;
  int64_t time;
  uint32_t rank = kNoRank;
  uint32_t index = 0;
  uint8_t code = 0;
  uint64_t value = 0;
  std::string name{};
};

NodeFlight node_of(const std::string& name, const std::vector<At>& events, int64_t behind = 0) {
  NodeFlight node;
  node.node = name;
  node.behind = behind;
  FlightEntry job;
  job.event.kind = FlightKind::kJobProposed;
  job.event.job = kTraced;
  job.event.time = 1;
  job.name = "digits";
  node.life.entries.push_back(job);
  for (const At& at : events) {
    FlightEntry entry;
    entry.event.kind = at.kind;
    entry.event.time = at.time;
    entry.event.rank = at.rank;
    entry.event.index = at.index;
    entry.event.code = at.code;
    entry.event.value = at.value;
    entry.event.job = kTraced;
    entry.event.key = {0, 17};
    entry.name = at.name;
    node.life.entries.push_back(entry);
  }
  return node;
}

At submitted(int64_t time, uint32_t rank) {
  return {
      FlightKind::kOpSubmitted, time, rank, 0, static_cast<uint8_t>(Collective::kAllreduce), 4096};
}
At done(int64_t time, uint32_t rank) {
  return {FlightKind::kOpDone, time, rank, 0, static_cast<uint8_t>(Verdict::kOk)};
}
At moves(int64_t time) { return {FlightKind::kOpMoves, time}; }
At landed(int64_t time, uint32_t lane, uint32_t slice) {
  return {FlightKind::kSliceLanded, time, lane, slice, static_cast<uint8_t>(Phase::kPartial), 1};
}
At forwarded(int64_t time, uint32_t lane, uint32_t slice) {
  return {FlightKind::kSliceForwarded, time, lane, slice, static_cast<uint8_t>(Phase::kPartial), 2};
}

TEST(Timeline, PutsAnOpTogetherOnOneClock) {
  const auto timeline = timeline_of(
      {node_of("a",
               {submitted(1000, 0), submitted(1500, 1), moves(3000), done(5000, 0), done(5100, 1)}),
       node_of("b", {submitted(2900, 2), moves(2950), done(4800, 2)}, 100)},
      "");
  ASSERT_EQ(timeline.ops.size(), 3u);
  const OpSpan& first = timeline.ops[0];
  EXPECT_EQ(first.job, "digits");
  EXPECT_EQ(first.name, "op 17");
  EXPECT_EQ(first.collective, "allreduce");
  EXPECT_EQ(first.bytes, 4096u);
  EXPECT_EQ(first.submitted, 1000);
  EXPECT_EQ(first.moved, 3000);
  EXPECT_EQ(first.ended, 5000);
  EXPECT_EQ(first.end, "OK");
  const OpSpan& far = timeline.ops[2];
  EXPECT_EQ(far.node, "b");
  EXPECT_EQ(far.submitted, 3000);
  EXPECT_EQ(far.moved, 3050);
  EXPECT_EQ(far.ended, 4900);
  EXPECT_EQ(far.flow, first.flow) << "the same op";
}

TEST(Timeline, ASliceStaysFromWhereItLandsUntilItHasGone) {
  const auto timeline =
      timeline_of({node_of("a", {landed(2000, 1, 4),
                                 forwarded(2600, 1, 4),
                                 {FlightKind::kSliceDelivered, 2700, kNoRank, 4}})},
                  "digits");
  ASSERT_EQ(timeline.slices.size(), 1u);
  EXPECT_EQ(timeline.slices[0].lane, 1u);
  EXPECT_EQ(timeline.slices[0].slice, 4u);
  EXPECT_EQ(timeline.slices[0].phase, "partial");
  EXPECT_EQ(timeline.slices[0].from, 2000);
  EXPECT_EQ(timeline.slices[0].to, 2700);
}

At began(int64_t time, uint32_t number, GpuTask task) {
  return {FlightKind::kGpuBegan, time, kNoRank, number, static_cast<uint8_t>(task), 1 << 20};
}
At ended(int64_t time, uint32_t number, bool failed = false) {
  return {FlightKind::kGpuEnded, time, kNoRank, number, static_cast<uint8_t>(failed ? 1 : 0)};
}

TEST(Timeline, GpusWorkFromBeginningToEnd) {
  const auto timeline = timeline_of(
      {node_of("a", {began(2000, 0, GpuTask::kBring), began(2100, 1, GpuTask::kBring),
                     ended(2500, 0), began(2600, 2, GpuTask::kSpread), ended(2700, 2, true)})},
      "");
  ASSERT_EQ(timeline.gpus.size(), 3u);
  EXPECT_EQ(timeline.gpus[0].task, "bring");
  EXPECT_EQ(timeline.gpus[0].bytes, 1u << 20);
  EXPECT_EQ(timeline.gpus[0].op, "op 17");
  EXPECT_EQ(timeline.gpus[0].to, 2500);
  EXPECT_EQ(timeline.gpus[1].to, 0) << "it was not seen to end";
  EXPECT_TRUE(timeline.gpus[2].failed);
  EXPECT_TRUE(timeline.moments.size() == 1u) << "none of them is a mark";
}

TEST(Timeline, WhatWasNotSeenHasNoTime) {
  const auto timeline = timeline_of({node_of("a", {done(5000, 0), submitted(6000, 1)})}, "");
  ASSERT_EQ(timeline.ops.size(), 2u);
  EXPECT_EQ(timeline.ops[0].submitted, 0);
  EXPECT_EQ(timeline.ops[0].ended, 5000);
  EXPECT_EQ(timeline.ops[1].submitted, 6000);
  EXPECT_EQ(timeline.ops[1].ended, 0);
}

TEST(Timeline, AnotherJobAndAnEarlierTraceAreLeftOut) {
  auto node = node_of("a", {submitted(1000, 0), done(2000, 0), submitted(3000, 0), done(4000, 0)});
  EXPECT_TRUE(timeline_of({node}, "letters").ops.empty());
  EXPECT_EQ(timeline_of({node}, "abcd0102").ops.size(), 2u);
  node.since = 2500;
  node.life.overwritten = 7;
  const auto later = timeline_of({node}, "");
  EXPECT_EQ(later.ops.size(), 1u);
  EXPECT_EQ(later.lost, 0u) << "what was overwritten is older";
  node.since = 0;
  EXPECT_EQ(timeline_of({node}, "").lost, 7u);
}

TEST(Timeline, AJobThatNobodyKnowsIsToldFromOneThatDidNothing) {
  const auto node = node_of("a", {});
  EXPECT_TRUE(fault_of_job({node}, "digits").ok());
  EXPECT_TRUE(fault_of_job({node_of("b", {}), node}, "abcd0102").ok());
  EXPECT_EQ(fault_of_job({node}, "letters").message(),
            "nothing is recorded of a job letters; of these there is: digits");
  EXPECT_FALSE(fault_of_job({}, "letters").ok());
}

TEST(Timeline, FaultsAreMoments) {
  auto node = node_of("a", {});
  FlightEntry lost;
  lost.event.kind = FlightKind::kPeerLost;
  lost.event.time = 9000;
  lost.event.code = static_cast<uint8_t>(Cause::kPeerLost);
  lost.name = "b";
  lost.words = "its connection closed";
  node.life.entries.push_back(lost);
  const auto timeline = timeline_of({node}, "");
  ASSERT_EQ(timeline.moments.size(), 2u);  // and that the job was formed
  EXPECT_TRUE(timeline.moments[1].bad);
  EXPECT_THAT(timeline.moments[1].text, testing::HasSubstr("its connection closed"));
}

nlohmann::json chrome_of(const Timeline& timeline) {
  std::ostringstream text;
  write_chrome(timeline, text);
  return nlohmann::json::parse(text.str());
}

TEST(Chrome, RowsDoNotOverlapAndPhasesLieWithinTheirOp) {
  const auto timeline = timeline_of(
      {node_of("a", {submitted(1000, 0), moves(1500), landed(1600, 0, 0), landed(1700, 0, 1),
                     forwarded(2000, 0, 0), forwarded(2100, 0, 1), done(3000, 0)})},
      "");
  const auto trace = chrome_of(timeline);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  std::map<std::string, int> arrows;
  std::vector<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "s" || phase == "t" || phase == "f") ++arrows[phase];
    if (phase == "M") names.push_back(event["args"]["name"]);
    if (phase != "X") continue;
    const double from = event["ts"], to = from + event["dur"].get<double>();
    for (const auto& [begin, end] : rows[{event["pid"], event["tid"]}]) {
      const bool apart = to <= begin || from >= end;
      const bool inside = from >= begin && to <= end;
      EXPECT_TRUE(apart || inside) << event;
    }
    rows[{event["pid"], event["tid"]}].emplace_back(from, to);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("job digits on node a", "rank 0", "lane 0",
                                                   "lane 0 +1"));
  EXPECT_EQ(arrows, (std::map<std::string, int>{{"s", 1}, {"t", 2}, {"f", 1}}));
  EXPECT_THAT(trace.dump(), testing::AllOf(testing::HasSubstr("\"NEGOTIATE_ALLREDUCE\""),
                                           testing::HasSubstr("\"ALLREDUCE\"")));
}

TEST(Chrome, GpusHaveATrackOfTheirOwn) {
  const auto trace = chrome_of(
      timeline_of({node_of("a", {submitted(1000, 0), moves(1500), began(1600, 0, GpuTask::kStay),
                                 ended(2500, 0), done(3000, 0)})},
                  ""));
  std::vector<std::string> names;
  int spans = 0, arrows = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") names.push_back(event["args"]["name"]);
    if (event["ph"] == "t") ++arrows;
    if (event.value("cat", "") != "gpu") continue;
    ++spans;
    EXPECT_EQ(event["name"], "op 17 stay");
    EXPECT_EQ(event["dur"], 0.9);
    EXPECT_EQ(event["args"]["bytes"], 1 << 20);
  }
  EXPECT_EQ(spans, 1);
  EXPECT_EQ(arrows, 1) << "it belongs to the op";
  EXPECT_THAT(names, testing::Contains("GPUs"));
}

TEST(Chrome, TracksHaveNumbersThatPerfettoTakes) {
  Timeline timeline;
  timeline.slices.push_back({"digits", "a", 3, "op 1", 0, "final", 0, 10, 20, 1});
  timeline.gpus.push_back({"digits", "a", "op 1", "stay", 4, 10, 20, false, 1});
  const auto trace = chrome_of(timeline);
  std::set<uint64_t> tracks;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") tracks.insert(event["tid"].get<uint64_t>());
  }
  EXPECT_EQ(tracks.size(), 2u);
  EXPECT_LT(*tracks.rbegin(), uint64_t{1} << 32);
}

TEST(Chrome, HoweverManyOpsAreUnderWayNoneCutsAnother) {
  constexpr int kOps = 600;  // a Horovod script has one for each tensor
  Timeline timeline;
  for (int i = 0; i < kOps; ++i) {
    OpSpan op;
    op.node = "a";
    op.submitted = 1000 + i;
    op.ended = 10'000 + i;
    timeline.ops.push_back(op);
  }
  const auto trace = chrome_of(timeline);
  std::set<uint64_t> rows;
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "op") rows.insert(event["tid"].get<uint64_t>());
  }
  ASSERT_EQ(rows.size(), size_t{kOps});
  EXPECT_LT(*rows.rbegin(), uint64_t{1} << 32);
}

TEST(Chrome, AnOpWhoseBeginningIsGoneBeginsWithWhatIsLeftOfItsNodesOps) {
  // Its submission was overwritten; that the job was formed, long before, was not.
  const auto trace = chrome_of(timeline_of(
      {node_of("a", {submitted(9'000'000, 1), done(9'010'000, 0), done(9'020'000, 1)})}, ""));
  int seen = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "op" || event["args"]["collective"] != "") continue;
    ++seen;
    EXPECT_EQ(event["dur"], 10) << event;
  }
  EXPECT_EQ(seen, 1);
}

TEST(Chrome, NamesMayHoldAnything) {
  Timeline timeline;
  timeline.moments.push_back({"job \"x\"\n\xff", "a\\", 5, "<b>", true});
  const auto trace = chrome_of(timeline);
  EXPECT_EQ(trace["traceEvents"].size(), 2u);
}

TEST(Clock, TheQuickestRoundTripSaysByHowMuchAnotherIsBehind) {
  // 50 behind; the second took 10 each way, the others longer on one of them.
  EXPECT_EQ(behind({{1000, 970, 1200}, {2000, 1960, 2020}, {3000, 3100, 3160}}), 50);
  EXPECT_EQ(behind({{1000, 5005, 1010}}), -4000);
}

}  // namespace
}  // namespace gradring::tools
