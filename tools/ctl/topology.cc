// gradringctl topology: what the node is made of, and what gradring makes of it.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"
#include "tools/ctl/topology/recordings.h"
#include "tools/ctl/topology/show.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

struct Question {
  std::string svg;
  std::string dot;
  std::string record;
  std::string replay;
  bool all = false;
};

// What would be left out without a word.
Status fault_of(const Question& question, const Context& context) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalidArgument, why); };
  const bool draws = !question.svg.empty() || !question.dot.empty();
  if (!question.record.empty() && draws) {
    return refuse("--record draws nothing: --replay what it wrote, with --svg or --dot");
  }
  const bool daemon = question.record.empty() && question.replay.empty();
  if (!daemon && (question.all || !context.node.empty())) {
    return refuse("--record and --replay ask no daemon: leave out --all and --node");
  }
  if (question.all && !context.node.empty()) {
    return refuse("--all asks all nodes and --node one: choose");
  }
  return {};
}

tl::expected<Question, Status> parse_topology(const Context& context, const Arguments& arguments) {
  Question question;
  Arguments rest;
  po::options_description known;
  known.add_options()("svg", po::value(&question.svg))("dot", po::value(&question.dot))(
      "all", po::bool_switch(&question.all))("record", po::value(&question.record))(
      "replay", po::value(&question.replay))("rest", po::value(&rest));
  po::positional_options_description positions;
  positions.add("rest", -1);
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(known).positional(positions).run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(Status(Code::kInvalidArgument, printable(words_of(error))));
  }
  // As of a variable of the shell that is not set.
  for (const char* name : {"svg", "dot", "record", "replay"}) {
    if (values.count(name) == 0 || !values[name].as<std::string>().empty()) continue;
    return tl::unexpected(
        Status(Code::kInvalidArgument, fmt::format("--{} takes a name, not nothing", name)));
  }
  if (Status status = no_arguments(rest); !status.ok()) return tl::unexpected(status);
  if (!question.record.empty() && !question.replay.empty()) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               "--record writes this machine, --replay shows another: one of them"));
  }
  if (Status status = fault_of(question, context); !status.ok()) return tl::unexpected(status);
  return question;
}

Status write(const std::string& file, const std::string& text) {
  if (file.empty()) return Status();
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out) return Status();
  return Status(Code::kInternal, fmt::format("cannot write {}: {}", file, std::strerror(errno)));
}

// Of one node, or of all that answer; `problems`: why others do not.
tl::expected<TopologyReports, Status> ask_daemon(const Context& context, bool all,
                                                 std::vector<std::string>* problems) {
  wire::Query query;
  query.set_what(wire::Query::TOPOLOGY);
  if (!all) {
    const auto reply = ask(context, query);
    if (!reply) return tl::unexpected(reply.error());
    return TopologyReports{reply->topology()};
  }
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  const auto replies = ask_all_nodes(*questions, query);
  if (!replies) return tl::unexpected(replies.error());
  TopologyReports reports;
  for (const NodeReply& one : *replies) {
    if (one.reply) {
      reports.push_back(one.reply->topology());
    } else {
      problems->push_back(printable(one.reply.error().message()));
    }
  }
  return reports;
}

}  // namespace

Result run_topology(const Context& context, const Arguments& arguments) {
  const auto question = parse_topology(context, arguments);
  if (!question) return tl::unexpected(question.error());
  if (!question->record.empty()) return record_machine(question->record);
  std::vector<std::string> problems;
  const auto reports = question->replay.empty() ? ask_daemon(context, question->all, &problems)
                                                : replay_machine(question->replay);
  if (!reports) return tl::unexpected(reports.error());
  Answer answer = show(*reports, context.style);
  answer.problems.insert(answer.problems.end(), problems.begin(), problems.end());
  if (Status status = write(question->svg, svg_of(*reports)); !status.ok())
    return tl::unexpected(status);
  if (Status status = write(question->dot, dot_of(*reports)); !status.ok())
    return tl::unexpected(status);
  return answer;
}

}  // namespace gradring::tools
