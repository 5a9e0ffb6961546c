#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/schema.h"
#include "tools/ctl/command.h"
#include "tools/ctl/steps.h"

namespace gradring::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

wire::JobReport four_ranks() {
  wire::JobReport report;
  report.mutable_summary()->set_state("running");
  report.mutable_summary()->set_size(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto* one = report.add_ranks();
    one->set_rank(rank);
    one->set_node(rank < 2 ? "a" : "b");
    one->set_pid(4708 + rank);
    one->set_state("training");
    one->set_process_state("S");
  }
  return report;
}

wire::StepsReport* add_steps(wire::RankReport* rank, uint32_t late, uint64_t late_us) {
  wire::StepsReport* steps = rank->mutable_steps();
  steps->set_steps(700);
  steps->set_recent(500);
  steps->set_late(late);
  steps->set_late_us(late_us);
  steps->mutable_mean()->set_compute_us(60'000);
  steps->mutable_mean()->set_overlapped_us(12'000);
  steps->mutable_mean()->set_straggler_us(30'000);
  steps->mutable_mean()->set_exposed_us(10'000);
  for (int i = 0; i < 10; ++i) steps->add_lateness(70);
  return steps;
}

TEST(ShowSteps, WhereTheTimeGoesAndWhoIsLate) {
  wire::JobReport report = four_ranks();
  for (auto& rank : *report.mutable_ranks()) add_steps(&rank, 20, 3'000);
  report.mutable_ranks(3)->mutable_steps()->set_late(465);
  report.mutable_ranks(3)->mutable_steps()->set_late_us(41'000);
  report.mutable_ranks(3)->mutable_steps()->mutable_mean()->set_compute_us(90'000);
  report.mutable_ranks(3)->set_process_state("D");
  const auto answer = show(report, Style{});
  EXPECT_EQ(offence(schema_of("job"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, IsEmpty()) << "to be slow is no fault";
  EXPECT_THAT(answer.text, HasSubstr("   0  100.0 ms   60.0 %  0.0 %   10.0 %     30.0 %      "
                                     "12.0 %   4.0 %   3.0 ms       500\n"));
  EXPECT_THAT(answer.text, HasSubstr("straggler: rank 3 (node b, pid 4711) was late by 41.0 ms in "
                                     "93.0 % of the last 500 steps; it is in state D "));
  EXPECT_EQ(answer.json["straggler"]["rank"], 3);
  EXPECT_EQ(answer.json["ranks"][0]["steps"]["mean_seconds"]["exposed"], 0.01);
}

TEST(ShowSteps, WhoIsLateForWantOfInputIsAStraggler) {
  wire::JobReport report = four_ranks();
  for (auto& rank : *report.mutable_ranks()) add_steps(&rank, 20, 3'000);
  auto* slow = add_steps(report.mutable_ranks(1), 500, 30'000);
  slow->mutable_mean()->set_input_us(30'000);
  EXPECT_EQ(show(report, Style{}).json["straggler"]["rank"], 1);
}

// As behind a slow link, which brings it the sums later than others.
TEST(ShowSteps, WhoIsLateAndTakesNoLongerThanOthersIsNoStraggler) {
  wire::JobReport report = four_ranks();
  for (auto& rank : *report.mutable_ranks()) add_steps(&rank, 20, 3'000);
  auto* late = add_steps(report.mutable_ranks(3), 435, 35'000);
  late->mutable_mean()->set_compute_us(66'000);
  const auto answer = show(report, Style{});
  EXPECT_FALSE(answer.json.contains("straggler"));
  EXPECT_THAT(answer.text, HasSubstr("no straggler: rank 3 comes late in 87.0 % of its steps, but "
                                     "takes no longer than others for them; a slow link may"));
  late->mutable_mean()->set_compute_us(80'000);
  EXPECT_EQ(show(report, Style{}).json["straggler"]["rank"], 3);
}

TEST(ShowSteps, WhoIsLateNowAndThenIsNoStraggler) {
  wire::JobReport report = four_ranks();
  for (auto& rank : *report.mutable_ranks()) add_steps(&rank, 100, 90'000);
  EXPECT_FALSE(show(report, Style{}).json.contains("straggler"));
  auto* young = add_steps(report.mutable_ranks(1), 10, 90'000);
  young->set_recent(10);
  EXPECT_FALSE(show(report, Style{}).json.contains("straggler")) << "too few to say";
}

}  // namespace
}  // namespace gradring::tools
