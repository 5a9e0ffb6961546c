#include "tools/ctl/top/model.h"

#include <algorithm>
#include <set>

#include "tools/common/bus_factor.h"

namespace gradring::tools::top {
namespace {

// Between two counts of one clock; nothing where that stood still or something began anew.
std::optional<double> rate_of(uint64_t before, uint64_t after, int64_t took_ns) {
  if (took_ns <= 0 || after < before) return std::nullopt;
  return static_cast<double>(after - before) * 1e9 / static_cast<double>(took_ns);
}

double part(uint64_t of, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(of) / static_cast<double>(whole);
}

uint64_t total_us(const wire::SplitReport& split) {
  return split.compute_us() + split.input_us() + split.straggler_us() + split.exposed_us();
}

Rank rank_of(const wire::RankReport& report) {
  Rank rank{.rank = report.rank(),
            .node = report.node(),
            .pid = report.pid(),
            .state = report.state(),
            .process_state = report.process_state(),
            .ops_submitted = report.ops_submitted(),
            .quiet_ms = report.quiet_ms()};
  if (const wire::StepsReport& steps = report.steps(); steps.recent() > 0) {
    const uint64_t total = total_us(steps.mean());
    rank.step = {static_cast<double>(total) / 1e6, part(steps.mean().exposed_us(), total),
                 part(steps.mean().straggler_us(), total), part(steps.late(), steps.recent()),
                 static_cast<double>(steps.late_us()) / 1e6};
  }
  return rank;
}

uint64_t bytes_of(const wire::JobSummary& summary, const std::string& collective) {
  for (const wire::MovedReport& moved : summary.moved()) {
    if (moved.collective() == collective) return moved.bytes();
  }
  return 0;
}

// The node that answers counts for all of its ranks; what one of them has is what the job has.
void add_rates(const JobSample& before, const JobSample& after, Job* job) {
  const wire::JobSummary& was = before.report.summary();
  const wire::JobSummary& is = after.report.summary();
  const int64_t took = is.counted_at() - was.counted_at();
  if (before.answered != after.answered || was.counted_at() == 0) return;
  job->ops_per_second = rate_of(was.ops_completed(), is.ops_completed(), took);
  const auto local = std::ranges::count_if(
      job->ranks, [&](const Rank& rank) { return rank.node == after.answered; });
  if (!job->ops_per_second || local == 0) return;
  double bytes = 0;
  double bus = 0;
  for (const wire::MovedReport& moved : is.moved()) {
    const auto all = rate_of(bytes_of(was, moved.collective()), moved.bytes(), took);
    if (!all) return;
    const double one = *all / static_cast<double>(local);
    const auto collective = parse_collective(moved.collective());
    bytes += one;
    bus += one * (collective ? bus_factor(*collective, static_cast<int>(is.size())) : 1);
  }
  job->bytes_per_second = bytes;
  job->bus_bytes_per_second = bus;
}

std::optional<double> exposed_of(const wire::JobReport& report) {
  uint64_t exposed = 0;
  uint64_t total = 0;
  for (const wire::RankReport& rank : report.ranks()) {
    exposed += rank.steps().mean().exposed_us();
    total += total_us(rank.steps().mean());
  }
  if (total == 0) return std::nullopt;
  return part(exposed, total);
}

Job job_of(const JobSample& sample, const Sample& before) {
  const wire::JobSummary& summary = sample.report.summary();
  Job job{.name = summary.name(),
          .incarnation = summary.incarnation(),
          .state = summary.state(),
          .policy = summary.policy(),
          .explanation = summary.explanation(),
          .epoch = summary.epoch(),
          .size = summary.size(),
          .over = summary.over(),
          .exposed = exposed_of(sample.report),
          .straggler = straggler_of(sample.report)};
  const auto& silent = sample.report.silent_nodes();
  std::set<std::string> nodes(silent.begin(), silent.end());
  for (const wire::RankReport& rank : sample.report.ranks()) {
    job.ranks.push_back(rank_of(rank));
    if (!rank.node().empty()) nodes.insert(rank.node());
  }
  job.nodes = static_cast<uint32_t>(nodes.size());
  if (auto ops = open_ops(sample.report); !ops.empty()) job.oldest = std::move(ops.front());
  const auto earlier = std::ranges::find_if(before.jobs, [&](const JobSample& other) {
    return !job.incarnation.empty() && other.report.summary().incarnation() == job.incarnation;
  });
  if (earlier != before.jobs.end()) add_rates(*earlier, sample, &job);
  return job;
}

const wire::PeerReport* find_peer(const NodeSample* node, const std::string& peer) {
  if (node == nullptr || peer.empty()) return nullptr;
  const auto it = std::ranges::find_if(
      node->peers.peers(), [&](const wire::PeerReport& other) { return other.node() == peer; });
  return it == node->peers.peers().end() ? nullptr : &*it;
}

void add_links(const NodeSample& node, const NodeSample* before, std::vector<Link>* links) {
  const int64_t took = before == nullptr ? 0 : node.peers.counted_at() - before->peers.counted_at();
  for (const wire::PeerReport& peer : node.peers.peers()) {
    Link link{.from = node.node,
              .to = peer.node().empty() ? peer.address() : peer.node(),
              .state = peer.state(),
              .reason = peer.reason()};
    if (peer.lanes().empty() || peer.state() != "up") links->push_back(link);
    const wire::PeerReport* const was = find_peer(before, peer.node());
    for (int i = 0; i < peer.lanes_size() && peer.state() == "up"; ++i) {
      const wire::LaneReport& lane = peer.lanes(i);
      link.device = lane.device();
      link.state = lane.state();
      link.reason = lane.reason();
      link.sent_per_second = link.received_per_second = std::nullopt;
      if (was != nullptr && i < was->lanes_size()) {
        link.sent_per_second = rate_of(was->lanes(i).sent_bytes(), lane.sent_bytes(), took);
        link.received_per_second =
            rate_of(was->lanes(i).received_bytes(), lane.received_bytes(), took);
      }
      links->push_back(link);
    }
  }
}

Node node_of(const NodeSample& sample) {
  Node node{
      sample.node, sample.status.state(), sample.status.version(), sample.status.uptime_ms(), {}};
  for (const wire::Limit& limit : sample.status.limits()) {
    node.limits.push_back({limit.name(), limit.used(), limit.cap(), limit.unit()});
  }
  return node;
}

}  // namespace

Model model_of(const Sample& before, const Sample& after) {
  Model model{.here = after.here,
              .peers = after.peers,
              .silent = after.silent,
              .problems = after.problems,
              .left_out = after.left_out};
  for (const NodeSample& node : after.nodes) {
    model.nodes.push_back(node_of(node));
    const auto earlier = std::ranges::find(before.nodes, node.node, &NodeSample::node);
    add_links(node, earlier == before.nodes.end() ? nullptr : &*earlier, &model.links);
  }
  for (Link& link : model.links) {
    const auto rtt = after.rtt_ns.find(link.to);
    if (link.from != after.here || rtt == after.rtt_ns.end()) continue;
    link.rtt_seconds = static_cast<double>(rtt->second) / 1e9;
  }
  for (const JobSample& job : after.jobs) model.jobs.push_back(job_of(job, before));
  return model;
}

}  // namespace gradring::tools::top
