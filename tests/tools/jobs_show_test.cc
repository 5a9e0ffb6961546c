// What gradringctl jobs prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/schema.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ShowJobs, ListsThem) {
  wire::JobsReport report;
  auto* forming = report.add_jobs();
  forming->set_name("evening");
  forming->set_state("forming");
  forming->set_size(4);
  forming->set_ranks_present(3);
  forming->set_explanation("waits for rank 2");
  auto* failed = report.add_jobs();
  failed->set_name("morning");
  failed->set_incarnation("0123456789abcdef0123456789abcdef");
  failed->set_state("failed");
  failed->set_size(4);
  const auto answer = show(report, Style{});
  EXPECT_EQ(offence(schema_of("jobs"), document_of(answer)), "");
  EXPECT_THAT(answer.problems, ElementsAre("job morning has failed"));
  for (const char* word : {"3/4", "waits for rank 2", "01234567 "}) {
    EXPECT_THAT(answer.text, HasSubstr(word));
  }
  EXPECT_THAT(answer.text, ContainsRegex("failed .* - +- +-\n"));
  failed->set_over(true);
  EXPECT_THAT(show(report, Style{}).problems, IsEmpty()) << "nobody of it is here";
  failed->set_state("running");
  failed->set_counted_at(1);
  failed->set_ops_completed(12);
  EXPECT_THAT(show(report, Style{}).text, ContainsRegex("running .* 12 +0 +-\n"));
}

TEST(ShowJobs, OneThatFormsForLongIsAProblem) {
  wire::JobsReport report;
  auto* job = report.add_jobs();
  job->set_name("evening");
  job->set_state("forming");
  job->set_size(4);
  job->set_ranks_present(3);
  job->set_age_ms(59'000);
  job->set_explanation("waits for 1 of 4 ranks");
  EXPECT_THAT(show(report, Style{}).problems, IsEmpty()) << "its ranks may be on their way";
  job->set_age_ms(130'000);
  EXPECT_THAT(show(report, Style{}).problems,
              ElementsAre("job evening has been forming for 2 min 10 s: waits for 1 of 4 ranks"));
  job->set_incarnation("0123456789abcdef0123456789abcdef");
  EXPECT_THAT(show(report, Style{}).problems, IsEmpty()) << "a guest waits for a join point";
  job->set_epoch(1);
  EXPECT_EQ(show(report, Style{}).problems.size(), 1u);
}

TEST(ShowJob, TellsOfItsGroupsAndWhatIsWrongWithThem) {
  wire::JobReport report;
  report.mutable_summary()->set_name("train");
  report.mutable_summary()->set_state("running");
  report.mutable_summary()->set_incarnation("0123456789abcdef0123456789abcdef");
  EXPECT_THAT(show(report, Style{}).text, Not(HasSubstr("groups")));
  auto* forming = report.add_within();
  forming->set_name("train[0-1]");
  forming->set_state("forming");
  forming->set_size(2);
  forming->set_ranks_present(1);
  forming->set_age_ms(61'000);
  forming->set_explanation("waits for 1 of 2 ranks: rank 1 (node b, pid 7) of job train");
  auto* running = report.add_within();
  running->set_name("train[2,3]");
  running->set_state("running");
  running->set_incarnation("fedcba9876543210fedcba9876543210");
  running->set_ops_open(1);
  running->set_counted_at(1);
  running->set_node("b");
  report.set_within_left_out(3);
  const auto answer = show(report, Style{});
  EXPECT_EQ(offence(schema_of("job"), document_of(answer)), "");
  EXPECT_THAT(answer.problems,
              ElementsAre("job train[0-1] has been forming for 1 min 1 s: waits for 1 of 2 ranks: "
                          "rank 1 (node b, pid 7) of job train"));
  for (const char* words :
       {"\ngroups and pairs\n", "and 3 more\n", "gradringctl --node b job 'train[2,3]'\n"}) {
    EXPECT_THAT(answer.text, HasSubstr(words));
  }
}

TEST(ShowJobs, TheOldestFirstAndWhatIsOverLast) {
  wire::JobsReport report;
  const auto add = [&](const std::string& name, uint64_t age_ms, bool over) {
    auto* job = report.add_jobs();
    job->set_name(name);
    job->set_state(over ? "failed" : "running");
    job->set_age_ms(age_ms);
    job->set_over(over);
  };
  add("over-new", 1000, true);
  add("new", 2000, false);
  add("over-old", 9000, true);
  add("old", 8000, false);
  const auto answer = show(report, Style{});
  std::vector<std::string> names;
  for (const auto& job : answer.json["jobs"]) names.push_back(job["name"]);
  EXPECT_THAT(names, ElementsAre("old", "new", "over-old", "over-new"));
  EXPECT_THAT(answer.text, ContainsRegex("\nold .*\nnew .*\nover-old .*\nover-new "));
}

}  // namespace
}  // namespace gradring::tools
