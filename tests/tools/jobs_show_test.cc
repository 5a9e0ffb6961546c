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
