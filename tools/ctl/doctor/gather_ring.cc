#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/ctl/ask.h"
#include "tools/ctl/doctor/gather.h"

namespace gradring::tools::doctor {
namespace {

constexpr int kRoundTrips = 5;

struct Moment {  // of this daemon's two clocks
  int64_t monotonic = 0;
  int64_t wall = 0;
};

// Keeps the quickest answer, in which the clocks are compared best.
void add_round_trip(const wire::QueryReply& reply, const Moment& here, NodeFacts* node) {
  if (reply.returned_at() <= reply.forwarded_at() || reply.status().wall_clock() == 0) return;
  const int64_t took = reply.returned_at() - reply.forwarded_at();
  if (node->round_trip_ns && *node->round_trip_ns <= took) return;
  node->round_trip_ns = took;
  const int64_t middle = reply.forwarded_at() + took / 2;
  node->clock_ahead_ns = reply.status().wall_clock() - (here.wall + middle - here.monotonic);
}

NodeFacts* find(Facts* facts, const std::string& node) {
  const auto it = std::ranges::find(facts->nodes, node, &NodeFacts::node);
  return it == facts->nodes.end() ? nullptr : &*it;
}

void set_fault(const Status& why, Facts* facts) {
  facts->daemon_fault = why.message();
  facts->daemon_fault_code = why.code();
}

// False: this daemon itself does not answer.
bool ask_status(Questions& questions, Facts* facts) {
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  auto nodes = all_nodes(questions);
  if (!nodes) {
    set_fault(nodes.error(), facts);
    return false;
  }
  for (int i = 0; i < kRoundTrips; ++i) {
    const auto replies = ask_nodes(questions, *nodes, query);
    if (!replies.front().reply) {
      set_fault(replies.front().reply.error(), facts);
      return !facts->nodes.empty();
    }
    const wire::QueryReply& own = *replies.front().reply;
    const Moment here{own.answered_at(), own.status().wall_clock()};
    nodes->clear();
    for (const NodeReply& one : replies) {
      NodeFacts* node = find(facts, one.node);
      if (node == nullptr)
        node = &facts->nodes.emplace_back(
            NodeFacts{.node = one.node, .fault{}, .status{}, .peers{}, .round_trip_ns{}});
      if (!one.reply) {
        node->fault = one.reply.error().message();
        continue;  // nobody is waited for again
      }
      nodes->push_back(one.node);
      node->status = one.reply->status();
      if (&one != &replies.front()) add_round_trip(*one.reply, here, node);
    }
  }
  return true;
}

std::vector<SentSample> sample(Questions& questions, Facts* facts) {
  wire::Query query;
  query.set_what(wire::Query::PEERS);
  std::vector<SentSample> samples;
  const auto replies = ask_all_nodes(questions, query);
  if (!replies) return samples;
  for (const NodeReply& one : *replies) {
    if (!one.reply) continue;
    samples.push_back({one.node, one.reply->peers()});
    if (NodeFacts* node = find(facts, one.node)) node->peers = one.reply->peers();
  }
  return samples;
}

}  // namespace

void gather_ring(const std::string& runtime_dir, double seconds, Facts* facts) {
  auto questions = Questions::open(runtime_dir);
  if (!questions) {
    set_fault(questions.error(), facts);
    return;
  }
  const std::vector<SentSample> before = sample(*questions, facts);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  if (!ask_status(*questions, facts)) return;
  wire::Query query;
  query.set_what(wire::Query::TOPOLOGY);
  if (const Reply reply = questions->ask(query)) facts->topology = reply->topology();
  if (!facts->nodes.front().status.peers_configured()) return;
  std::this_thread::sleep_until(end);
  facts->rates = rates_between(before, sample(*questions, facts));
}

}  // namespace gradring::tools::doctor
