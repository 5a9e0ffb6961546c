// gradringctl job NAME: who waits for whom, and for how long.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "proto/shell_word.h"
#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"
#include "tools/ctl/nonfinite.h"
#include "tools/ctl/steps.h"
#include "tools/ctl/tuning.h"
#include "tools/ctl/waits.h"

namespace gradring::tools {
namespace {

// An op that waits longer for a rank is worth a look: no healthy step is that uneven.
constexpr uint64_t kLateMs = 10'000;

bool is_halted(const std::string& process_state) {
  return process_state == "T" || process_state == "t" || process_state == "Z" ||
         process_state == "X";
}

std::vector<std::string> problems_of(const wire::JobReport& report,
                                     const std::vector<OpenOp>& ops) {
  std::vector<std::string> problems;
  const auto& summary = report.summary();
  if (summary.state() == "failed") {
    problems.push_back(fmt::format("the job has failed: {}", printable(summary.explanation())));
  }
  if (summary.state() == "forming") {
    if (std::string late = problem_of(summary); !late.empty()) problems.push_back(std::move(late));
  }
  for (const auto& node : report.silent_nodes()) {
    problems.push_back(fmt::format("node {} did not answer", printable(node)));
  }
  for (const auto& rank : report.ranks()) {
    if (rank.state() == "dead" || is_halted(rank.process_state())) {
      problems.push_back(fmt::format(
          "{} is {}", rank_at(rank.rank(), rank.node(), rank.pid()),
          rank.state() == "dead" ? "dead"
                                 : "in state " + describe_process_state(rank.process_state())));
    }
  }
  // The oldest tells it all: the others are listed above it, and wait for the same as a rule.
  std::vector<OpenOp> late;
  std::ranges::copy_if(ops, std::back_inserter(late), [](const OpenOp& op) {
    return !op.waiting_for.empty() && op.age_ms >= kLateMs;
  });
  if (!late.empty()) {
    problems.push_back(
        describe(late.front()) +
        (late.size() > 1 ? fmt::format(", and {} late", counted(late.size() - 1, "more op")) : ""));
    const std::string crossing = describe_crossing(late.front(), late);
    if (!crossing.empty()) problems.push_back(crossing);
  }
  for (const auto& inner : report.within()) {
    if (std::string problem = problem_of(inner); !problem.empty()) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

nlohmann::ordered_json json_of(const wire::RankReport& rank) {
  nlohmann::ordered_json json = {{"rank", rank.rank()},
                                 {"node", rank.node()},
                                 {"pid", rank.pid()},
                                 {"local_rank", rank.local_rank()},
                                 {"state", rank.state()},
                                 {"process_state", rank.process_state()},
                                 {"ops_submitted", rank.ops_submitted()},
                                 {"quiet_seconds", seconds(rank.quiet_ms())},
                                 {"nonfinite", rank.nonfinite()},
                                 {"ops_held", rank.ops_held()}};
  if (rank.has_steps()) json["steps"] = tools::json_of(rank.steps());
  return json;
}

nlohmann::ordered_json json_of(const OpenOp& op) {
  auto waiting = nlohmann::ordered_json::array();
  for (const auto& who : op.waiting_for) {
    nlohmann::ordered_json one = {{"node", who.node}};
    if (who.is_rank) {
      one.update({{"rank", who.rank},
                  {"pid", who.pid},
                  {"process_state", who.process_state},
                  {"quiet_seconds", seconds(who.quiet_ms)}});
    } else {
      one["why"] = who.why;
    }
    waiting.push_back(one);
  }
  return {{"name", op.name},
          {"sequence", op.sequence},
          {"signature", op.signature},
          {"age_seconds", seconds(op.age_ms)},
          {"waits_for", name_of(op.waits_for)},
          {"waiting_for", waiting},
          {"slices_final", op.slices_final},
          {"slices_final_at", op.behind},
          {"slices", op.slices}};
}

std::string heading_of(const wire::JobReport& report, const Style& style) {
  const auto& summary = report.summary();
  // A node that does not answer has ranks that nobody lists.
  std::set<std::string> nodes(report.silent_nodes().begin(), report.silent_nodes().end());
  for (const auto& rank : report.ranks()) {
    if (!rank.node().empty()) nodes.insert(rank.node());
  }
  const std::string state = printable(summary.state());
  std::string where = counted(summary.size(), "rank");
  if (!nodes.empty())
    where += " on " + counted(nodes.size(), "node");  // a job that is over has none
  std::string text = fmt::format(
      "job {}{}: {}, {}, epoch {}, policy {}, uid {}{}, begun {}\n", printable(summary.name()),
      summary.incarnation().empty() ? "" : fmt::format(" ({})", printable(summary.incarnation())),
      summary.state() == "failed" ? style.bad(state) : style.good(state), where, summary.epoch(),
      printable(summary.policy()), summary.uid(),
      summary.weight() == 0 ? "" : fmt::format(", weight {}", summary.weight()),
      format_ago(summary.age_ms()));
  if (summary.counted_at() != 0) {
    text += fmt::format("{} done, {} open; staging {} of {}\n",
                        counted(summary.ops_completed(), "op"), summary.ops_open(),
                        format_bytes(report.staging_bytes()), format_bytes(report.staging_cap()));
  }
  if (!summary.explanation().empty()) text += printable(summary.explanation()) + "\n";
  return text;
}

std::string ranks_of(const wire::JobReport& report, const Style& style) {
  std::vector<Table::Column> columns = {{"rank", Table::Align::kRight},
                                        {"node"},
                                        {"pid", Table::Align::kRight},
                                        {"state"},
                                        {"process"},
                                        {"ops submitted", Table::Align::kRight},
                                        {"the last"}};
  const bool nonfinite = any_nonfinite(report);
  if (nonfinite) columns.push_back({"NaN, infinite", Table::Align::kRight});
  Table table(std::move(columns));
  for (const auto& rank : report.ranks()) {
    const std::string state = printable(rank.state());
    const std::string process = describe_process_state(rank.process_state());
    std::vector<std::string> cells = {
        std::to_string(rank.rank()),
        printable(rank.node()),
        rank.pid() == 0 ? "-" : std::to_string(rank.pid()),
        rank.state() == "dead" ? style.bad(state) : state,
        is_halted(rank.process_state()) ? style.bad(process) : process,
        std::to_string(rank.ops_submitted()),
        rank.ops_submitted() == 0 ? "-" : format_ago(rank.quiet_ms())};
    if (nonfinite) {
      const std::string count = std::to_string(rank.nonfinite());
      cells.push_back(rank.nonfinite() == 0 ? count : style.bad(count));
    }
    table.add(std::move(cells));
  }
  return table.empty() ? "" : "\n" + table.str();
}

// In which of them its ranks may wait for one another as well.
std::string within_of(const wire::JobReport& report, const Style& style) {
  if (report.within().empty()) return "";
  std::string text =
      "\ngroups and pairs\n" + table_of({report.within().begin(), report.within().end()}, style);
  if (report.within_left_out() > 0) {
    text += fmt::format("and {} more\n", report.within_left_out());
  }
  const auto busy = std::ranges::find_if(report.within(), [](const wire::JobSummary& inner) {
    return inner.ops_open() > 0 && inner.state() == "running";
  });
  if (busy == report.within().end()) return text;
  return text + fmt::format("who waits for whom in one of them: gradringctl --node {} job {}\n",
                            printable(shell_word(busy->node())),
                            printable(shell_word(busy->name())));
}

}  // namespace

Answer show(const wire::JobReport& report, const Style& style) {
  const auto ops = open_ops(report);
  Answer answer{heading_of(report, style) + ranks_of(report, style), to_json(report.summary()),
                problems_of(report, ops)};
  answer.text += steps_of(report, style);
  if (report.has_first_nonfinite()) {
    answer.text += fmt::format("\n{}\n", describe(report.first_nonfinite()));
  }
  if (report.has_tuning()) answer.text += "\n" + describe(report.tuning());
  if (!ops.empty()) answer.text += "\nopen ops\n";
  auto open = nlohmann::ordered_json::array();
  for (const auto& op : ops) {
    answer.text += fmt::format("  {}\n", describe(op));
    open.push_back(json_of(op));
  }
  answer.text += within_of(report, style);
  auto within = nlohmann::ordered_json::array();
  for (const auto& inner : report.within()) {
    within.push_back(to_json(inner));
    within.back()["node"] = inner.node();
  }
  auto ranks = nlohmann::ordered_json::array();
  for (const auto& rank : report.ranks()) ranks.push_back(json_of(rank));
  auto silent = nlohmann::ordered_json::array();
  for (const auto& node : report.silent_nodes()) silent.push_back(node);
  answer.json["staging_bytes"] = report.staging_bytes();
  answer.json["staging_cap_bytes"] = report.staging_cap();
  answer.json["ranks"] = ranks;
  answer.json["ops"] = open;
  answer.json["silent_nodes"] = silent;
  answer.json["within"] = within;
  answer.json["within_left_out"] = report.within_left_out();
  if (const auto straggler = straggler_of(report)) answer.json["straggler"] = json_of(*straggler);
  if (report.has_first_nonfinite()) {
    answer.json["first_nonfinite"] = json_of(report.first_nonfinite());
  }
  if (report.has_tuning()) answer.json["tuning"] = json_of(report.tuning());
  return answer;
}

Result run_job(const Context& context, const Arguments& arguments) {
  const Arguments names = without_bar(arguments);
  const bool as_it_is = names.size() < arguments.size();
  if (names.size() != 1 || names[0].empty() || (names[0][0] == '-' && !as_it_is)) {
    return tl::unexpected(Status(Code::kInvalidArgument,
                                 "it takes the name of one job; \"gradringctl jobs\" lists them"));
  }
  wire::Query query;
  query.set_what(wire::Query::JOB);
  query.set_job(names[0]);
  const auto reply = ask(context, query);
  if (!reply) return tl::unexpected(reply.error());
  return show(reply->job(), context.style);
}

}  // namespace gradring::tools
