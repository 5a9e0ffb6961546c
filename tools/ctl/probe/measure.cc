// gradringctl bandwidth --matrix, --latency: measures the lanes between daemons.
#include "tools/ctl/probe/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "tools/common/progress.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/probe/cells.h"
#include "tools/ctl/probe/show.h"

namespace gradring::tools {
namespace {

// A node has the end of its last probe a moment later than who sent it, and takes no other before.
constexpr std::chrono::milliseconds kBusyAtMost{1000};
constexpr std::chrono::milliseconds kBusyPause{20};

// More than a daemon takes in any case, which answers also when nothing comes through.
std::chrono::milliseconds patience_for(const ProbeWish& wish) {
  const double seconds = 15 + (wish.force ? 7 : 2) * std::max(wish.seconds, 2.0);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

wire::Query query_of(wire::Query::What what) {
  wire::Query query;
  query.set_what(what);
  return query;
}

// What all nodes say; those that do not answer, or cannot be asked, are told of in `problems`.
tl::expected<std::vector<NodeReply>, Status> ask_all(Questions& questions, wire::Query::What what,
                                                     std::vector<std::string>* problems) {
  auto replies = ask_all_nodes(questions, query_of(what), problems);
  if (!replies) return tl::unexpected(replies.error());
  std::vector<NodeReply> good;
  for (NodeReply& one : *replies) {
    if (one.reply) {
      good.push_back(std::move(one));
    } else if (problems != nullptr) {
      problems->push_back(printable(one.reply.error().message()));
    }
  }
  return good;
}

tl::expected<std::vector<ProbedNode>, Status> ask_about_nodes(Questions& questions,
                                                              std::vector<std::string>* problems) {
  auto peers = ask_all(questions, wire::Query::PEERS, problems);
  if (!peers) return tl::unexpected(peers.error());
  auto topologies = ask_all(questions, wire::Query::TOPOLOGY, nullptr);
  if (!topologies) return tl::unexpected(topologies.error());
  std::vector<ProbedNode> nodes;
  for (NodeReply& one : *peers) {
    nodes.push_back({one.node, std::move(*one.reply->mutable_peers()), {}});
    const auto it = std::ranges::find(*topologies, one.node, &NodeReply::node);
    if (it != topologies->end()) nodes.back().topology = it->reply->topology();
  }
  return nodes;
}

// Peers that nobody could have asked yet: without a word of them it would seem that there are none.
void add_those_never_met(const wire::PeersReport& own, std::vector<std::string>* problems) {
  for (const wire::PeerReport& peer : own.peers()) {
    if (can_be_asked(peer) || why_not_asked(peer)) continue;
    problems->push_back(fmt::format(
        "peer {} is {}{}", printable(peer.node().empty() ? peer.address() : peer.node()),
        printable(peer.state()), peer.reason().empty() ? "" : ": " + printable(peer.reason())));
  }
}

// Jobs that would have to share their network with the measurement.
Status refusal_beside_jobs(Questions& questions) {
  const auto replies = ask_all(questions, wire::Query::JOBS, nullptr);
  if (!replies) return replies.error();
  for (const NodeReply& one : *replies) {
    for (const wire::JobSummary& job : one.reply->jobs().jobs()) {
      if (job.state() != "running" && job.state() != "forming") continue;
      return {Code::kAborted,
              fmt::format("job {} has trainers on node {}, and to measure takes the network from "
                          "them: wait for its end, or use --force, which takes a tenth of the time",
                          printable(job.name()), printable(one.node))};
    }
  }
  return {};
}

wire::Query order_of(const ProbeWish& wish, const ProbeCell& cell) {
  wire::Query query = query_of(wire::Query::PROBE);
  query.set_node(cell.from);
  query.mutable_probe()->set_to(cell.to);
  query.mutable_probe()->set_lane(cell.lane);
  query.mutable_probe()->set_latency(wish.latency);
  query.mutable_probe()->set_bytes(wish.bytes);
  query.mutable_probe()->set_measure_ms(static_cast<uint64_t>(wish.seconds * 1000));
  query.mutable_probe()->set_force(wish.force);
  return query;
}

Reply probe(Questions& questions, const ProbeWish& wish, const ProbeCell& cell) {
  const auto until = std::chrono::steady_clock::now() + kBusyAtMost;
  while (true) {
    Reply reply = questions.ask({order_of(wish, cell)}, patience_for(wish)).front();
    const bool busy = !reply && reply.error().code() == Code::kResourceExhausted;
    if (!busy || std::chrono::steady_clock::now() >= until) return reply;
    std::this_thread::sleep_for(kBusyPause);
  }
}

// What holds for all cells: nobody is allowed to ask, or the daemon that passes all questions on
// says nothing any more.
Status fault_of_all(Questions& questions, const Status& fault) {
  if (fault.code() == Code::kPermissionDenied) return fault;
  if (fault.code() != Code::kUnavailable && fault.code() != Code::kDeadlineExceeded) return {};
  const Reply here = questions.ask(query_of(wire::Query::STATUS));
  return here ? Status() : here.error();
}

Status fill(Questions& questions, const ProbeWish& wish, ProbeMatrix* matrix) {
  ProgressBar bar("measuring", ProgressBar::Shows::kCount);
  uint64_t done = 0;
  for (ProbeCell& cell : matrix->cells) {
    bar.show(done++, matrix->cells.size());
    if (!cell.fault.empty()) continue;
    const Reply reply = probe(questions, wish, cell);
    if (reply && reply->has_probe()) {
      cell.figures = reply->probe();
      cell.device = reply->probe().device();
    } else if (reply) {
      cell.fault = "its daemon answered another question";
    } else if (Status fault = fault_of_all(questions, reply.error()); !fault.ok()) {
      return fault;
    } else {
      cell.fault =
          reply.error().message() == "unknown query"
              ? fmt::format("the gradringd of node {} is of a release that knows no probes",
                            cell.from)
              : reply.error().message();
    }
  }
  return {};
}

Status write(const std::string& file, const std::string& text, std::ios::openmode how) {
  std::ofstream out(file, std::ios::binary | how);
  out << text;
  out.close();
  if (out) return {};
  return {Code::kInternal,
          fmt::format("cannot write {}: {}", printable(file), std::strerror(errno))};
}

}  // namespace

Result measure(const Context& context, const ProbeWish& wish) {
  auto questions = Questions::open(context.runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  if (!wish.force) {
    if (Status why = refusal_beside_jobs(*questions); !why.ok()) return tl::unexpected(why);
  }
  // Before anything is measured; what is in the file stays until there is something new.
  const bool draws = !wish.svg.empty();
  if (Status why = draws ? write(wish.svg, "", std::ios::app) : Status(); !why.ok()) {
    return tl::unexpected(why);
  }
  std::vector<std::string> problems;
  const auto nodes = ask_about_nodes(*questions, &problems);
  if (!nodes) return tl::unexpected(nodes.error());
  if (!nodes->empty()) add_those_never_met(nodes->front().peers, &problems);
  ProbeMatrix matrix = cells_of(*nodes);
  matrix.latency = wish.latency;
  matrix.forced = wish.force;
  matrix.seconds = wish.seconds;
  if (Status why = fill(*questions, wish, &matrix); !why.ok()) return tl::unexpected(why);
  Answer answer = show_probes(matrix, context.style);
  if (matrix.cells.empty() && !problems.empty()) {
    answer.text = "no other node could be asked, so there is nothing to measure\n";
  }
  const Status drawn = draws ? write(wish.svg, draw_probes(matrix), std::ios::trunc) : Status();
  if (!drawn.ok()) problems.push_back(drawn.message());
  answer.problems.insert(answer.problems.end(), problems.begin(), problems.end());
  return answer;
}

}  // namespace gradring::tools
