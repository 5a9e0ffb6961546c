// gradringctl set: what can be changed of a job while it runs.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {
namespace {

tl::expected<wire::Query, Status> parse_set(const Arguments& said) {
  const Arguments arguments = without_bar(said);
  const auto refuse = [](std::string why) {
    return tl::unexpected(Status(Code::kInvalidArgument, std::move(why)));
  };
  if (arguments.size() != 2 || arguments[0].empty()) {
    return refuse("it takes a job and what to set, as in: set train weight=4");
  }
  const std::string& what = arguments[1];
  const size_t equals = what.find('=');
  if (equals == std::string::npos || equals == 0) {
    return refuse(
        fmt::format("\"{}\" sets nothing: write NAME=VALUE, as in weight=4", printable(what)));
  }
  wire::Query query;
  query.set_what(wire::Query::SET);
  query.set_job(arguments[0]);
  query.mutable_setting()->set_name(what.substr(0, equals));
  query.mutable_setting()->set_value(what.substr(equals + 1));
  return query;
}

// Nodes that do not know the job have no part in it; if none does, that is the answer.
std::optional<Status> refusal_of(const std::vector<NodeReply>& replies, const std::string& job) {
  std::optional<Status> refusal;
  for (const NodeReply& one : replies) {
    if (one.reply) return std::nullopt;
    const bool better = !refusal || refusal->code() == Code::kNotFound;
    if (better) refusal = one.reply.error();
  }
  if (refusal && refusal->code() == Code::kNotFound && replies.size() > 1) {
    return Status(Code::kNotFound,
                  fmt::format("no job {} runs on any of the {} nodes; gradringctl jobs lists those "
                              "of one",
                              printable(job), replies.size()));
  }
  return refusal;
}

// Only a member knows who the others are; and those that this daemon is not connected with were not
// asked.
void add_members_left_out(Questions& questions, const std::vector<NodeReply>& replies,
                          Answer* answer) {
  std::set<std::string> told;  // of which the answer says what became of it
  const NodeReply* member = nullptr;
  for (const NodeReply& one : replies) {
    if (!one.reply && one.reply.error().code() == Code::kNotFound) continue;
    told.insert(one.node);
    if (one.reply && member == nullptr) member = &one;
  }
  wire::Query query;
  query.set_what(wire::Query::JOB);
  query.set_job(member->reply->set().incarnation());
  if (member != &replies.front()) query.set_node(member->node);
  const Reply about = questions.ask(query);
  if (!about) return;  // it has ended
  for (const std::string& node : about->job().silent_nodes()) {
    if (told.count(node) > 0) continue;
    answer->problems.push_back(fmt::format(
        "node {}: it has ranks of the job, and could not be asked: nothing is set there",
        printable(node)));
  }
}

}  // namespace

Result run_set(const Context& context, const Arguments& arguments) {
  const auto query = parse_set(arguments);
  if (!query) return tl::unexpected(query.error());
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  const auto replies = ask_all_nodes(*questions, *query);
  if (!replies) return tl::unexpected(replies.error());
  if (const auto refusal = refusal_of(*replies, query->job())) return tl::unexpected(*refusal);
  Answer answer;
  auto nodes = nlohmann::ordered_json::array();
  Table table({{"node"}, {"job"}, {printable(query->setting().name())}, {"before"}});
  for (const NodeReply& one : *replies) {
    if (!one.reply) {
      if (one.reply.error().code() != Code::kNotFound) {
        answer.problems.push_back(fmt::format("node {}: {}", printable(one.node),
                                              printable(one.reply.error().message())));
      }
      continue;
    }
    const wire::SetReport& set = one.reply->set();
    table.add(
        {printable(one.node), printable(set.job()), printable(set.now()), printable(set.before())});
    nodes.push_back({{"node", one.node},
                     {"incarnation", set.incarnation()},
                     {"before", set.before()},
                     {"now", set.now()}});
  }
  add_members_left_out(*questions, *replies, &answer);
  answer.text = table.str();
  answer.json = {{"job", query->job()},
                 {"setting", query->setting().name()},
                 {"value", query->setting().value()},
                 {"nodes", nodes}};
  return answer;
}

}  // namespace gradring::tools
