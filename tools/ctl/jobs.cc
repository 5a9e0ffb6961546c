// gradringctl jobs: what runs here.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

constexpr std::string_view kFailed = "failed";
constexpr size_t kShortId = 8;  // digits of an incarnation that are enough to tell two apart

// What a job has done nobody knows any more when it is over, nor yet while it forms.
std::string count_of(const wire::JobSummary& job, uint64_t ops) {
  return job.counted_at() == 0 ? "-" : std::to_string(ops);
}

// The daemon knows them by numbers that mean nothing to anybody. What is over comes last.
std::vector<wire::JobSummary> in_order_of_age(const wire::JobsReport& report) {
  std::vector<wire::JobSummary> jobs(report.jobs().begin(), report.jobs().end());
  std::ranges::stable_sort(jobs, [](const wire::JobSummary& a, const wire::JobSummary& b) {
    return a.over() != b.over() ? b.over() : a.age_ms() > b.age_ms();
  });
  return jobs;
}

// Ranks of a launch come within seconds of one another. A guest of an elastic job (epoch 0) waits
// for the others' next join point, which may be far.
constexpr uint64_t kFormsLongMs = 60'000;
bool forms_for_long(const wire::JobSummary& job) {
  const bool guest = !job.incarnation().empty() && job.epoch() == 0;
  return job.state() == "forming" && !guest && job.age_ms() >= kFormsLongMs;
}

}  // namespace

nlohmann::ordered_json to_json(const wire::JobSummary& summary) {
  return {{"name", summary.name()},
          {"incarnation", summary.incarnation()},
          {"state", summary.state()},
          {"epoch", summary.epoch()},
          {"size", summary.size()},
          {"ranks_present", summary.ranks_present()},
          {"uid", summary.uid()},
          {"policy", summary.policy()},
          {"age_seconds", seconds(summary.age_ms())},
          {"ops_completed", summary.ops_completed()},
          {"ops_open", summary.ops_open()},
          {"weight", summary.weight()},
          {"explanation", summary.explanation()},
          {"over", summary.over()}};
}

std::string problem_of(const wire::JobSummary& job) {
  const std::string name = printable(job.name());
  if (job.state() == kFailed && !job.over()) return fmt::format("job {} has failed", name);
  if (!forms_for_long(job)) return "";
  return fmt::format("job {} has been forming for {}: {}", name, format_duration(job.age_ms()),
                     printable(job.explanation()));
}

std::string table_of(const std::vector<wire::JobSummary>& jobs, const Style& style) {
  Table table({{"job"},
               {"id"},
               {"state"},
               {"ranks", Table::Align::kRight},
               {"uid", Table::Align::kRight},
               {"begun"},
               {"ops done", Table::Align::kRight},
               {"open", Table::Align::kRight},
               {"weight", Table::Align::kRight},
               {"what"}});
  for (const wire::JobSummary& job : jobs) {
    const bool forming = job.incarnation().empty();
    const std::string state = printable(job.state());
    const bool bad = job.state() == kFailed || forms_for_long(job);
    table.add(
        {printable(job.name()), forming ? "-" : printable(job.incarnation().substr(0, kShortId)),
         bad ? style.bad(state) : state,
         forming ? fmt::format("{}/{}", job.ranks_present(), job.size())
                 : std::to_string(job.size()),
         std::to_string(job.uid()), format_ago(job.age_ms()), count_of(job, job.ops_completed()),
         count_of(job, job.ops_open()), job.weight() == 0 ? "-" : std::to_string(job.weight()),
         printable(job.explanation())});
  }
  return table.empty() ? "" : table.str();
}

Answer show(const wire::JobsReport& report, const Style& style) {
  Answer answer;
  auto listed = nlohmann::ordered_json::array();
  const std::vector<wire::JobSummary> jobs = in_order_of_age(report);
  for (const wire::JobSummary& job : jobs) {
    listed.push_back(to_json(job));
    if (std::string problem = problem_of(job); !problem.empty()) {
      answer.problems.push_back(std::move(problem));
    }
  }
  answer.text = jobs.empty() ? "no jobs\n" : table_of(jobs, style);
  answer.json = {{"jobs", listed}};
  return answer;
}

Result run_jobs(const Context& context, const Arguments& arguments) {
  if (Status status = no_arguments(arguments); !status.ok()) return tl::unexpected(status);
  wire::Query query;
  query.set_what(wire::Query::JOBS);
  const auto reply = ask(context, query);
  if (!reply) return tl::unexpected(reply.error());
  return show(reply->jobs(), context.style);
}

}  // namespace gradring::tools
