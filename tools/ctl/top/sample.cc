#include "tools/ctl/top/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "tools/common/text.h"

namespace gradring::tools::top {
namespace {

// A daemon answers 64 questions about jobs at a time, to all who ask.
constexpr size_t kJobsMost = 32;
// Questions that a daemon passes on for one look, of the 256 it passes on at a time.
constexpr size_t kPeersMost = 64;

wire::Query query_of(wire::Query::What what, const std::string& node) {
  wire::Query query;
  query.set_what(what);
  query.set_node(node);
  return query;
}

std::vector<std::string> nodes_of(const Sample& sample, const Choice& choice) {
  if (!choice.all) return {choice.node.empty() ? sample.here : choice.node};
  std::vector<std::string> nodes = {sample.here};
  nodes.insert(nodes.end(), sample.peers.begin(), sample.peers.end());
  return nodes;
}

// A daemon that asks itself by name would look for a peer.
std::string address_of(const Sample& sample, const std::string& node) {
  return node == sample.here ? "" : node;
}

std::string not_shown(size_t count, const char* what) {
  return fmt::format("{} {} not shown", counted(count, what), count == 1 ? "is" : "are");
}

// Who can be asked, and, where all are, a word of who cannot. Returns those that are up: the time
// to one that says nothing just now is not worth that a look waits for it.
std::vector<std::string> take_peers(const wire::PeersReport& report, const Choice& choice,
                                    Sample* sample) {
  std::vector<std::string> up;
  size_t left_out = 0;
  for (const wire::PeerReport& peer : report.peers()) {
    const auto why = why_not_asked(peer);
    if (why && choice.all) {
      ++sample->silent;
      sample->problems.push_back(*why);
    }
    if (!can_be_asked(peer)) continue;
    if (sample->peers.size() == kPeersMost) {
      ++left_out;
      continue;
    }
    sample->peers.push_back(peer.node());
    if (peer.state() == "up") up.push_back(peer.node());
  }
  if (left_out > 0 && choice.all) {
    sample->left_out.push_back(not_shown(left_out, "more node"));
  }
  return up;
}

// What a job is asked for by: its name is not its own before it has begun.
std::string key_of(const wire::JobSummary& job) {
  return job.incarnation().empty() ? job.name() : job.incarnation();
}

// Of each job by its key, from the first node that has it.
struct Listed {
  std::string node;
  wire::JobSummary summary;
};
using Jobs = std::map<std::string, Listed>;

void ask_for_jobs(Questions& questions, const Jobs& jobs, const Sample& before, Sample* sample) {
  std::vector<wire::Query> queries;
  std::vector<std::string> answering;
  std::vector<const Jobs::value_type*> asked;
  for (const auto& job : jobs) {
    if (job.second.summary.over()) continue;
    asked.push_back(&job);
    sample->done[job.first] = job.second.summary.ops_completed();
  }
  // Of the others the ones that are longest there, always the same.
  std::ranges::stable_sort(asked, std::greater{}, [&before](const auto* job) {
    const wire::JobSummary& summary = job->second.summary;
    return std::pair(wants_a_look(summary, before.done), summary.age_ms());
  });
  if (asked.size() > kJobsMost) {
    sample->left_out.push_back(not_shown(asked.size() - kJobsMost, "more job"));
    asked.resize(kJobsMost);
  }
  for (const auto* job : asked) {
    queries.push_back(query_of(wire::Query::JOB, address_of(*sample, job->second.node)));
    queries.back().set_job(job->first);
    answering.push_back(job->second.node);
  }
  if (queries.empty()) return;
  std::vector<Reply> replies = questions.ask(queries);
  for (size_t i = 0; i < replies.size(); ++i) {
    // A job that has gone since it was listed is no news.
    if (replies[i]) sample->jobs.push_back({answering[i], std::move(*replies[i]->mutable_job())});
  }
}

// Of what is over nobody knows more than the list says.
void add_those_over(const Jobs& jobs, Sample* sample) {
  for (const auto& [key, job] : jobs) {
    if (!job.summary.over() || sample->jobs.size() >= kJobsMost) continue;
    JobSample& over = sample->jobs.emplace_back();
    over.answered = job.node;
    *over.report.mutable_summary() = job.summary;
  }
}

}  // namespace

bool wants_a_look(const wire::JobSummary& job, const std::map<std::string, uint64_t>& done_before) {
  if (job.state() == "failed") return true;
  const auto before = done_before.find(key_of(job));
  return job.ops_open() > 0 && before != done_before.end() && before->second == job.ops_completed();
}

tl::expected<Sample, Status> take_sample(Questions& questions, const Choice& choice,
                                         const Sample& before) {
  const auto about =
      questions.ask({query_of(wire::Query::STATUS, ""), query_of(wire::Query::PEERS, "")});
  for (const Reply& reply : about) {
    if (!reply) return tl::unexpected(reply.error());
  }
  Sample sample;
  sample.here = about[0]->status().node();
  const std::vector<std::string> echoes = take_peers(about[1]->peers(), choice, &sample);

  constexpr size_t kQuestions = 3;  // to each node
  const std::vector<std::string> nodes = nodes_of(sample, choice);
  std::vector<wire::Query> queries;
  for (const std::string& node : nodes) {
    for (const auto what : {wire::Query::STATUS, wire::Query::PEERS, wire::Query::JOBS}) {
      queries.push_back(query_of(what, address_of(sample, node)));
    }
  }
  for (const std::string& peer : echoes) {
    queries.push_back(query_of(wire::Query::JOBS, peer));
  }
  std::vector<Reply> replies = questions.ask(queries);

  Jobs jobs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Reply* const of_node = &replies[i * kQuestions];
    const auto fault = std::find_if(of_node, of_node + kQuestions,
                                    [](const Reply& reply) { return !reply.has_value(); });
    if (fault != of_node + kQuestions) {
      ++sample.silent;
      sample.problems.push_back(
          fmt::format("node {}: {}", printable(nodes[i]), printable(fault->error().message())));
      continue;
    }
    sample.nodes.push_back({nodes[i], std::move(*of_node[0]->mutable_status()),
                            std::move(*of_node[1]->mutable_peers())});
    for (const wire::JobSummary& job : of_node[2]->jobs().jobs()) {
      jobs.try_emplace(key_of(job), Listed{nodes[i], job});
    }
  }
  for (size_t i = 0; i < echoes.size(); ++i) {
    const Reply& echo = replies[nodes.size() * kQuestions + i];
    if (!echo || echo->returned_at() <= echo->forwarded_at()) continue;
    sample.rtt_ns[echoes[i]] = echo->returned_at() - echo->forwarded_at();
  }
  ask_for_jobs(questions, jobs, before, &sample);
  add_those_over(jobs, &sample);
  return sample;
}

}  // namespace gradring::tools::top
