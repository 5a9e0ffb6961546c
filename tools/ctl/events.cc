// gradringctl events: what happened here, and elsewhere.
#include "tools/ctl/events.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>
#include <utility>

#include "tools/common/option_error.h"
#include "tools/common/output.h"
#include "tools/common/table.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

constexpr std::chrono::seconds kAsksEvery{1};
constexpr int64_t kNsOfSecond = 1'000'000'000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr uint64_t kDayMs = 24ull * 3600 * 1000;

// By the reader's own time zone; with the date once it was not today.
std::string local_time(const Happened& happened) {
  const std::time_t seconds = happened.event.wall() / kNsOfSecond;
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) return "?";
  return happened.age_ms < kDayMs ? fmt::format("{:%H:%M:%S}", local)
                                  : fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string iso_time(int64_t wall) {
  const std::time_t seconds = wall / kNsOfSecond;
  std::tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr) return "";
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", utc, wall % kNsOfSecond / kMillisecond);
}

std::string kind_of_event(const Happened& happened, const Style& style) {
  const std::string kind = printable(happened.event.kind());
  return happened.event.level() == "info" ? kind : style.bad(kind);
}

std::vector<NodeReply> ask_nodes(Questions& questions, const std::vector<std::string>& nodes,
                                 const EventReader& reader, const std::string& here) {
  std::vector<wire::Query> queries;
  for (const std::string& node : nodes) {
    queries.push_back(reader.query_for(node));
    if (node != here) queries.back().set_node(node);
  }
  std::vector<Reply> replies = questions.ask(queries);
  std::vector<NodeReply> answers;
  for (size_t i = 0; i < nodes.size(); ++i) answers.push_back({nodes[i], std::move(replies[i])});
  return answers;
}

// Of whom, through which daemon. Missing: of those of whom nothing can be asked, why not.
tl::expected<std::vector<NodeReply>, Status> look(const Context& context, bool all,
                                                  const EventReader& reader,
                                                  std::vector<std::string>* missing = nullptr) {
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  auto nodes = all_nodes(*questions, all ? missing : nullptr);
  if (!nodes) return tl::unexpected(nodes.error());
  const std::string here = nodes->front();
  if (!all) *nodes = {context.node.empty() ? here : context.node};
  auto answers = ask_nodes(*questions, *nodes, reader, here);
  if (!all && !answers.front().reply) return tl::unexpected(answers.front().reply.error());
  return answers;
}

void forget_older(std::vector<Happened>* events, const EventsWanted& wanted) {
  if (!wanted.since_ms) return;
  std::erase_if(*events, [&](const Happened& one) { return one.age_ms > *wanted.since_ms; });
}

// Until it is interrupted, nothing more can be written, or nobody reads it any more.
Status follow(const Context& context, const EventsWanted& wanted) {
  EventReader reader;
  std::vector<std::string> told;  // of what cannot be asked at the moment
  bool first = true;
  while (true) {
    std::vector<std::string> problems;
    const auto answers = look(context, wanted.all, reader, &problems);
    if (!answers && first) return answers.error();
    if (!answers) problems.push_back(answers.error().message());
    auto events = answers ? reader.take(*answers, &problems) : std::vector<Happened>();
    if (std::exchange(first, false)) forget_older(&events, wanted);
    std::string lines;
    for (const Happened& one : events) {
      lines += context.json
                   ? to_json(one).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                   : line_of(one, wanted.all, context.style);
      lines += '\n';
    }
    if (reader_has_gone() || !put_out(lines))
      return {Code::kInternal, "cannot write what happened"};
    for (const std::string& complaint : problems) {
      if (std::ranges::find(told, complaint) != told.end()) continue;
      put_err(fmt::format("gradringctl events: {}\n", printable(complaint)));
    }
    told = std::move(problems);
    std::this_thread::sleep_for(kAsksEvery);
  }
}

}  // namespace

tl::expected<EventsWanted, Status> parse_events(const Arguments& arguments) {
  EventsWanted wanted;
  std::string since;
  po::options_description known;
  known.add_options()("since", po::value(&since))("follow,f", po::bool_switch(&wanted.follow))(
      "all", po::bool_switch(&wanted.all));
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(Status(Code::kInvalidArgument, printable(words_of(error))));
  }
  if (values.count("since") == 0) return wanted;
  wanted.since_ms = parse_age(since);
  if (!wanted.since_ms) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               fmt::format("--since takes an age as in 90s, 10m, 2h or 3d, not \"{}\"",
                           printable(since))));
  }
  return wanted;
}

std::optional<uint64_t> parse_age(std::string_view text) {
  constexpr uint64_t kMost = 1'000'000;  // a thousand years in days would still be in range
  uint64_t count = 0;
  const char* const begin = std::to_address(text.begin());
  const char* const end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, count);
  if (error != std::errc() || count > kMost) return std::nullopt;
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (unit.empty() || unit == "s") return count * 1000;
  if (unit == "m" || unit == "min") return count * 60 * 1000;
  if (unit == "h") return count * 3600 * 1000;
  if (unit == "d") return count * kDayMs;
  return std::nullopt;
}

wire::Query EventReader::query_for(const std::string& node) const {
  wire::Query query;
  query.set_what(wire::Query::EVENTS);
  const auto it = known_.find(node);
  query.set_events_after(it == known_.end() ? 0 : it->second.number);
  return query;
}

std::vector<Happened> EventReader::take(const std::vector<NodeReply>& replies,
                                        std::vector<std::string>* problems) {
  std::vector<Happened> fresh;
  for (const NodeReply& one : replies) {
    if (!one.reply) {
      problems->push_back(printable(one.reply.error().message()));
      continue;
    }
    const wire::EventsReport& report = one.reply->events();
    Known& known = known_[one.node];
    const bool anew = known.life != report.life();
    const bool asked_for_later = anew && known.number > 0;
    if (anew) known = {report.life(), 0};
    if (asked_for_later) continue;  // the next question is for all of this life
    if (report.forgotten() > 0 && known.number > 0) {
      problems->push_back(fmt::format("node {}: {} came too fast to be read", printable(one.node),
                                      counted(report.forgotten(), "event")));
    }
    for (const wire::EventReport& event : report.events()) {
      const int64_t age = std::max<int64_t>(one.reply->answered_at() - event.at(), 0);
      fresh.push_back({one.node, static_cast<uint64_t>(age / kMillisecond), event});
      known.number = std::max(known.number, event.number());
    }
  }
  std::ranges::stable_sort(
      fresh, [](const Happened& a, const Happened& b) { return a.age_ms > b.age_ms; });
  return fresh;
}

nlohmann::ordered_json to_json(const Happened& happened) {
  auto about = nlohmann::ordered_json::object();
  for (const wire::EventField& field : happened.event.about()) about[field.name()] = field.value();
  return {{"node", happened.node},
          {"number", happened.event.number()},
          {"time", iso_time(happened.event.wall())},
          {"monotonic_ns", happened.event.at()},
          {"age_seconds", seconds(happened.age_ms)},
          {"event", happened.event.kind()},
          {"level", happened.event.level()},
          {"text", happened.event.text()},
          {"about", about}};
}

std::string line_of(const Happened& happened, bool all, const Style& style) {
  return fmt::format("{}  {}{}  {}", local_time(happened),
                     all ? printable(happened.node) + "  " : "", kind_of_event(happened, style),
                     printable(happened.event.text()));
}

Answer show(const std::vector<Happened>& events, bool all, const Style& style) {
  Answer answer;
  answer.json = {{"events", nlohmann::ordered_json::array()}};
  std::vector<Table::Column> columns = {{"time"}, {"age"}, {"event"}, {"what"}};
  if (all) columns.insert(columns.begin() + 2, Table::Column{"node"});
  Table table(columns);
  for (const Happened& one : events) {
    answer.json["events"].push_back(to_json(one));
    std::vector<std::string> row = {local_time(one), style.faint(format_ago(one.age_ms)),
                                    kind_of_event(one, style), printable(one.event.text())};
    if (all) row.insert(row.begin() + 2, printable(one.node));
    table.add(std::move(row));
  }
  answer.text = events.empty() ? "nothing happened\n" : table.str();
  return answer;
}

Result run_events(const Context& context, const Arguments& arguments) {
  const auto wanted = parse_events(arguments);
  if (!wanted) return tl::unexpected(wanted.error());
  if (wanted->all && !context.node.empty()) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "--all asks all nodes and --node one: choose"));
  }
  if (wanted->follow) return tl::unexpected(follow(context, *wanted));
  EventReader reader;
  std::vector<std::string> problems;
  const auto answers = look(context, wanted->all, reader, &problems);
  if (!answers) return tl::unexpected(answers.error());
  auto events = reader.take(*answers, &problems);
  forget_older(&events, *wanted);
  Answer answer = show(events, wanted->all, context.style);
  answer.problems = std::move(problems);
  return answer;
}

}  // namespace gradring::tools
