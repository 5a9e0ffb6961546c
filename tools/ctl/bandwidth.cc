// gradringctl bandwidth: what goes from node to node right now, by the daemons' own counts; or what
// could go, which is measured (probe/).
#include "tools/ctl/bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "proto/frame.h"
#include "tools/common/option_error.h"
#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"
#include "tools/ctl/probe/measure.h"
#include "tools/ctl/rates.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

// Daemons publish what they have counted every quarter of `suspect`, which is a second by default.
constexpr double kSecondsLeast = 0.5;
constexpr double kSecondsMost = 3600;
constexpr double kSecondsUsual = 2;

// Of a probe, for each way.
constexpr double kProbeSecondsLeast = 0.1;
constexpr double kProbeSecondsMost = 60;

// A matrix of so many columns of text no terminal shows, and of more lanes than that those that are
// well and carry nothing are not listed: all nodes have some to all others, and a ring uses few.
constexpr size_t kWidest = 160;
constexpr size_t kAllListed = 64;

struct Wish {
  std::optional<double> seconds;
  std::optional<ProbeWish> probe;  // none: look at what goes anyway
};

std::string gigabits(double bytes_per_second) {
  return fmt::format("{:.3f}", bytes_per_second * 8 / 1e9);
}

tl::unexpected<Status> usage(std::string why) {
  return tl::unexpected(Status(Code::kInvalidArgument, std::move(why)));
}

tl::expected<Wish, Status> parse_bandwidth(const Arguments& arguments) {
  double seconds = 0;
  bool matrix = false;
  std::string size;
  ProbeWish probe;
  po::options_description known;
  known.add_options()("seconds", po::value(&seconds))("matrix", po::bool_switch(&matrix))(
      "latency", po::bool_switch(&probe.latency))("force", po::bool_switch(&probe.force))(
      "size", po::value(&size))("svg", po::value(&probe.svg));
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return usage(printable(words_of(error)));
  }
  // As of a variable of the shell that is not set.
  if (values.count("svg") > 0 && probe.svg.empty()) return usage("--svg takes a name, not nothing");
  if (matrix && probe.latency) return usage("--matrix or --latency: one of them is measured");
  const bool measures = matrix || probe.latency;
  if (!measures && (probe.force || !size.empty() || !probe.svg.empty())) {
    return usage("--size, --svg and --force are of --matrix and --latency, which measure");
  }
  const double least = measures ? kProbeSecondsLeast : kSecondsLeast;
  const double most = measures ? kProbeSecondsMost : kSecondsMost;
  Wish wish;
  if (values.count("seconds") > 0) {
    if (!(seconds >= least && seconds <= most)) {
      return usage(fmt::format("--seconds takes {} to {}", least, most));
    }
    wish.seconds = seconds;
  }
  if (!size.empty()) {
    const auto bytes = parse_size(size);
    if (!bytes || *bytes == 0 || *bytes > kProbeBytesMax) {
      return usage(fmt::format("--size takes 1 to {}", format_bytes(kProbeBytesMax)));
    }
    probe.bytes = *bytes;
  }
  probe.seconds = wish.seconds.value_or(probe.seconds);
  if (measures) wish.probe = probe;
  return wish;
}

tl::expected<std::vector<SentSample>, Status> sample(Questions& questions,
                                                     std::vector<std::string>* problems) {
  wire::Query query;
  query.set_what(wire::Query::PEERS);
  problems->clear();
  auto replies = ask_all_nodes(questions, query, problems);
  if (!replies) return tl::unexpected(replies.error());
  std::vector<SentSample> samples;
  for (NodeReply& one : *replies) {
    if (one.reply) {
      samples.push_back({one.node, std::move(*one.reply->mutable_peers())});
    } else {
      problems->push_back(printable(one.reply.error().message()));
    }
  }
  return samples;
}

std::string matrix_of(const std::vector<LaneRate>& rates) {
  std::map<std::string, std::map<std::string, double>> cells;
  std::vector<std::string> nodes;
  for (const LaneRate& rate : rates) {
    cells[rate.from][rate.to] += rate.sent_bytes_per_second;
    for (const std::string& node : {rate.from, rate.to}) {
      if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
    }
  }
  std::ranges::sort(nodes, in_order);
  std::vector<Table::Column> columns = {{"from \\ to"}};
  for (const std::string& node : nodes) columns.push_back({printable(node), Table::Align::kRight});
  Table table(std::move(columns));
  for (const std::string& from : nodes) {
    std::vector<std::string> row = {printable(from)};
    for (const std::string& to : nodes) {
      const auto it = cells[from].find(to);
      row.push_back(it == cells[from].end() ? "-" : gigabits(it->second));
    }
    table.add(std::move(row));
  }
  std::string text = table.str();
  if (text.find('\n') <= kWidest) return text;
  return fmt::format("the matrix of {} nodes is too wide to be read; --json has all of it\n",
                     nodes.size());
}

}  // namespace

Answer show_rates(std::vector<LaneRate> rates, double seconds, const Style& style) {
  std::ranges::stable_sort(rates, [](const LaneRate& a, const LaneRate& b) {
    return a.from != b.from ? in_order(a.from, b.from) : in_order(a.to, b.to);
  });
  Answer answer;
  answer.json = {{"seconds", seconds}, {"lanes", nlohmann::ordered_json::array()}};
  const bool counted = std::ranges::any_of(rates, &LaneRate::port_counted);
  std::vector<Table::Column> columns = {
      {"from"}, {"to"}, {"lane"}, {"state"}, {"Gbit/s", Table::Align::kRight}};
  if (counted) {
    columns.push_back({"sent again/s", Table::Align::kRight});
    columns.push_back({"pauses/s", Table::Align::kRight});
  }
  Table lanes(std::move(columns));
  size_t idle = 0;
  for (const LaneRate& rate : rates) {
    const bool up = rate.state == "up";
    const std::string state = printable(rate.state);
    std::vector<std::string> row = {
        printable(rate.from), printable(rate.to), printable(rate.device),
        up ? style.good(state) : style.bad(state), gigabits(rate.sent_bytes_per_second)};
    if (counted) {
      row.push_back(rate.port_counted ? fmt::format("{:.1f}", rate.retransmits_per_second) : "-");
      row.push_back(rate.port_counted ? fmt::format("{:.1f}", rate.pauses_per_second) : "-");
    }
    if (up && rate.sent_bytes_per_second == 0 && rates.size() > kAllListed) {
      ++idle;
    } else {
      lanes.add(std::move(row));
    }
    answer.json["lanes"].push_back({{"from", rate.from},
                                    {"to", rate.to},
                                    {"device", rate.device},
                                    {"state", rate.state},
                                    {"sent_bytes_per_second", rate.sent_bytes_per_second},
                                    {"path_bytes_per_second", rate.path_bytes_per_second},
                                    {"retransmits_per_second", rate.retransmits_per_second},
                                    {"pauses_per_second", rate.pauses_per_second}});
    if (!up) {
      answer.problems.push_back(fmt::format("the lane on {} from {} to {} is {}",
                                            printable(rate.device), printable(rate.from),
                                            printable(rate.to), state));
    }
  }
  answer.json["slow_links"] = nlohmann::ordered_json::array();
  for (const SlowLink& link : slow_links(rates)) {
    answer.json["slow_links"].push_back({{"from", link.lane.from},
                                         {"to", link.lane.to},
                                         {"device", link.lane.device},
                                         {"path_bytes_per_second", link.lane.path_bytes_per_second},
                                         {"median_bytes_per_second", link.median}});
    answer.problems.push_back("slow link: " + describe(link));
  }
  if (rates.empty()) {
    answer.text = fmt::format("nothing was counted between nodes in the last {:.1f} s\n", seconds);
    return answer;
  }
  answer.text = fmt::format("gradients between nodes in the last {:.1f} s, Gbit/s\n{}\n{}", seconds,
                            matrix_of(rates), lanes.empty() ? "" : lanes.str());
  if (idle > 0) answer.text += fmt::format("{} lanes that are up carried nothing\n", idle);
  return answer;
}

Result run_bandwidth(const Context& context, const Arguments& arguments) {
  const auto wish = parse_bandwidth(arguments);
  if (!wish) return tl::unexpected(wish.error());
  if (wish->probe) return measure(context, *wish->probe);
  const double seconds = wish->seconds.value_or(kSecondsUsual);
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  std::vector<std::string> problems;
  const auto before = sample(*questions, &problems);
  if (!before) return tl::unexpected(before.error());
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const auto after = sample(*questions, &problems);
  if (!after) return tl::unexpected(after.error());
  Answer answer = show_rates(rates_between(*before, *after), seconds, context.style);
  if (after->size() == 1 && after->front().peers.peers().empty()) {
    answer.text = "this daemon has no peers: its jobs stay on this node\n";
  }
  answer.problems.insert(answer.problems.end(), problems.begin(), problems.end());
  return answer;
}

}  // namespace gradring::tools
