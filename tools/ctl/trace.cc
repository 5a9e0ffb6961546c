// gradringctl trace: what all daemons do, as a timeline to look at.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "tools/common/option_error.h"
#include "tools/common/progress.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"
#include "tools/ctl/trace/chrome.h"
#include "tools/ctl/trace/collect.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

struct Wanted {
  std::string action;
  std::string file;
  std::string job;
};

tl::expected<Wanted, Status> parse_trace(const Arguments& arguments) {
  const auto refuse = [](std::string why) {
    return tl::unexpected(Status(Code::kInvalidArgument, std::move(why)));
  };
  Wanted wanted;
  std::vector<std::string> actions;
  po::options_description known;
  known.add_options()("output,o", po::value(&wanted.file))("job", po::value(&wanted.job))(
      "action", po::value(&actions));
  po::positional_options_description positions;
  positions.add("action", -1);
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional(positions).run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    return refuse(printable(words_of(error)));
  }
  if (actions.size() != 1 ||
      (actions[0] != "start" && actions[0] != "stop" && actions[0] != "dump")) {
    return refuse("it takes one of start, stop and dump");
  }
  wanted.action = actions[0];
  const bool writes = wanted.action != "start";
  if (writes && wanted.file.empty()) return refuse("where to? Say -o FILE");
  if (wanted.file == "-") return refuse("-o takes a file; what goes to stdout is the answer");
  if (!writes && !(wanted.file.empty() && wanted.job.empty())) {
    return refuse("start takes no options: all is traced, and stop says what to write");
  }
  return wanted;
}

// What is read then is an earlier trace, that nobody takes for a new one. A daemon of an earlier
// release does not say whether one was on.
void add_that_none_was_on(const std::vector<NodeReply>& replies, Answer* answer) {
  std::optional<int64_t> age;
  for (const NodeReply& one : replies) {
    if (!one.reply) continue;
    const wire::FlightReport& flight = one.reply->flight();
    if (!flight.has_was_tracing() || flight.was_tracing()) return;
    if (flight.trace_ended() == 0) continue;
    const int64_t ended = std::max<int64_t>(one.reply->answered_at() - flight.trace_ended(), 0);
    age = std::min(age.value_or(ended), ended);
  }
  answer->problems.push_back(age ? fmt::format("no trace was on: this is the one that ended {}",
                                               format_ago(static_cast<uint64_t>(*age) / 1'000'000))
                                 : "no trace was on: this is an earlier one");
}

// Left on by whoever was killed, as a trainer with a timeline is: what is written has that as well.
void add_that_one_was_on(const std::vector<NodeReply>& replies, Answer* answer) {
  for (const NodeReply& one : replies) {
    if (!one.reply || !one.reply->flight().was_tracing()) continue;
    const int64_t since = one.reply->answered_at() - one.reply->flight().trace_since();
    answer->problems.push_back(fmt::format(
        "node {} has a trace on that began {}, which goes on: \"gradringctl trace stop\" "
        "before a start leaves out what was before",
        printable(one.node),
        format_ago(static_cast<uint64_t>(std::max<int64_t>(since, 0)) / 1'000'000)));
  }
}

// Of all nodes. Problems: who does not.
tl::expected<Answer, Status> set_tracing(Questions& questions, bool on) {
  wire::Query query;
  query.set_what(wire::Query::TRACE);
  query.set_trace_on(on);
  std::vector<std::string> missing;
  const auto replies = ask_all_nodes(questions, query, on ? &missing : nullptr);
  if (!replies) return tl::unexpected(replies.error());
  if (!replies->front().reply) return tl::unexpected(replies->front().reply.error());
  Answer answer;
  answer.problems = std::move(missing);
  auto nodes = nlohmann::ordered_json::array();
  for (const NodeReply& one : *replies) {
    if (one.reply) {
      nodes.push_back(one.node);
    } else {
      answer.problems.push_back(printable(one.reply.error().message()));
    }
  }
  on ? add_that_one_was_on(*replies, &answer) : add_that_none_was_on(*replies, &answer);
  answer.text = fmt::format(
      "tracing on {}; \"gradringctl trace stop -o FILE\" ends it and writes what there was\n",
      counted(nodes.size(), "node"));
  answer.json = {{"tracing", on}, {"nodes", nodes}};
  return answer;
}

// Whoever could not be asked to stop cannot be read from either.
void add_problems(const std::vector<std::string>& more, Answer* answer) {
  for (const std::string& problem : more) {
    const auto& told = answer->problems;
    if (std::ranges::find(told, problem) == told.end()) answer->problems.push_back(problem);
  }
}

Status cannot_write(const std::string& file) {
  return {Code::kInternal,
          fmt::format("cannot write {}: {}", printable(file), std::strerror(errno))};
}

// Before a trace is ended, and all that the nodes have is read.
Status fault_of_file(const std::string& file) {
  const std::filesystem::path path(file);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const bool there = access(path.c_str(), F_OK) == 0;
  if (access((there ? path : folder).c_str(), W_OK) != 0) return cannot_write(file);
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    errno = EISDIR;
    return cannot_write(file);
  }
  return {};
}

// Beside the file first, so that a disk which is full leaves no half of it, and whatever was there.
// A device, a link or a pipe is written as it is, and so is a file in a folder that is not ours.
Status put_into(const std::string& file, const Timeline& timeline) {
  std::error_code none;
  const auto kind = std::filesystem::symlink_status(file, none).type();
  const bool replaces =
      kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular;
  const std::string beside = fmt::format("{}.{}.new", file, getpid());
  std::ofstream to;
  if (replaces) to.open(beside, std::ios::trunc);
  const bool is_beside = to.is_open();
  if (!is_beside) to.open(file, std::ios::trunc);
  if (to) write_chrome(timeline, to);
  to.close();
  const bool written = !to.fail() && (!is_beside || rename(beside.c_str(), file.c_str()) == 0);
  if (written) return {};
  Status fault = cannot_write(file);
  if (is_beside) unlink(beside.c_str());
  return fault;
}

Result write(Questions& questions, const Wanted& wanted) {
  const bool trace = wanted.action == "stop";
  ProgressBar bar("reading");
  const auto collected =
      collect(questions, trace, [&bar](uint64_t done, uint64_t all) { bar.show(done, all); });
  if (!collected) return tl::unexpected(collected.error());
  if (!wanted.job.empty()) {
    if (Status fault = fault_of_job(collected->nodes, wanted.job); !fault.ok())
      return tl::unexpected(fault);
  }
  const Timeline timeline = timeline_of(collected->nodes, wanted.job);
  Answer answer;
  for (const Status& missing : collected->missing) {
    answer.problems.push_back(printable(missing.message()));
  }
  if (timeline.lost > 0 && trace) {
    answer.problems.push_back(
        fmt::format("{} were overwritten before they were read: a larger trace-size, or a shorter "
                    "trace, loses none",
                    counted(timeline.lost, "event")));
  }
  if (Status fault = put_into(wanted.file, timeline); !fault.ok()) return tl::unexpected(fault);
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = 0;
  for (const OpSpan& op : timeline.ops) {
    if (op.submitted != 0) first = std::min(first, op.submitted);
    last = std::max({last, op.submitted, op.ended});
  }
  const double seconds = last > first ? static_cast<double>(last - first) / 1e9 : 0;
  answer.text = fmt::format("{}: {} and {} of {:.3f} s on {}; open it at https://ui.perfetto.dev\n",
                            printable(wanted.file), counted(timeline.ops.size(), "op"),
                            counted(timeline.slices.size(), "slice"), seconds,
                            counted(collected->nodes.size(), "node"));
  auto nodes = nlohmann::ordered_json::array();
  for (const NodeFlight& node : collected->nodes) nodes.push_back(node.node);
  answer.json = {{"file", wanted.file},
                 {"nodes", nodes},
                 {"ops", timeline.ops.size()},
                 {"slices", timeline.slices.size()},
                 {"moments", timeline.moments.size()},
                 {"seconds", seconds},
                 {"overwritten", timeline.lost}};
  return answer;
}

}  // namespace

Result run_trace(const Context& context, const Arguments& arguments) {
  const auto wanted = parse_trace(arguments);
  if (!wanted) return tl::unexpected(wanted.error());
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  if (wanted->action == "start") return set_tracing(*questions, true);
  if (Status fault = fault_of_file(wanted->file); !fault.ok()) return tl::unexpected(fault);
  if (wanted->action == "dump") return write(*questions, *wanted);
  const auto stopped = set_tracing(*questions, false);
  if (!stopped) return tl::unexpected(stopped.error());
  auto answer = write(*questions, *wanted);
  if (answer) add_problems(stopped->problems, &*answer);
  return answer;
}

}  // namespace gradring::tools
