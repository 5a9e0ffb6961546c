// READY in large views goes along a tree of the members, not from each to all: a member tells
// whoever is above that it and all below are ready, and the first member tells all, down the same
// way, that all are. Nobody needs to know more than how many contributions there are. What only
// READY to all would tell, that somebody waits for an op, WANTED tells, where that may matter.
//
// Nothing here depends on the order in which frames come, and each may come twice.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"

namespace gradring::core {
namespace {

// The node of a rank that is missing knows who it is, and needs no longer than this to say so.
constexpr Time kTimeToSpeak = 1 * kSecond;

}  // namespace

void JobEngine::send_to_neighbours(const Frame& f, std::optional<uint32_t> except) {
  if (!tree_.is_root() && tree_.parent() != except) actions_->send(tree_.parent(), f);
  for (uint32_t i = 0; i < tree_.children(); ++i) {
    const uint32_t child = tree_.first_child() + i;
    if (child != except) actions_->send(child, f);
  }
}

bool JobEngine::subtree_is_ready(const Op& op) const {
  return op.ready_here() && op.tree.below == tree_.all_children();
}

void JobEngine::pass_ready(Op& op) {
  if (op.tree.said || !subtree_is_ready(op)) return;
  op.tree.said = true;
  op.tree.rises = op.tree.rises && may_be_direct(op);
  const uint32_t contributions = op.contributed + op.tree.contributions;
  if (!tree_.is_root()) {
    Frame ready = frame(FrameType::kReady, op.key);
    ready.ready.rank = speaker_of(op);
    ready.ready.contributions = contributions;
    ready.ready.signature = *op.signature;
    ready.ready.grows = op.grows;
    ready.ready.rises = op.tree.rises;
    ready.ready.late_us = op.arrivals.latest_us;
    actions_->send(tree_.parent(), ready);
  }
  if (!tree_.is_root() && !planted(Bug::kSubtreeIsEnough)) return;
  if (op.tree.rises) return let_rise(op, contributions);
  tell_all_ready(op, contributions);
}

void JobEngine::tell_all_ready(Op& op, uint32_t contributions) {
  op.contributed_all = contributions;
  Frame f = frame(FrameType::kAllReady, op.key);
  f.all_ready.contributions = contributions;
  f.all_ready.grows = op.grows;
  f.all_ready.rises = op.tree.rises;
  f.all_ready.late_us = op.arrivals.latest_us;
  for (uint32_t i = 0; i < tree_.children(); ++i) actions_->send(tree_.first_child() + i, f);
}

void JobEngine::on_all_ready(uint32_t from, const Frame& f) {
  const auto refuse = [&](const std::string& why) {
    protocol_fault(from, "ALL READY for " + describe(f.key) + " " + why);
  };
  if (!tree_ || !tree_.is_parent(from)) return refuse("from a node that has no word in that");
  const auto it = ops_.find(f.key);
  const bool over =
      it == ops_.end() ? ended_keys_.contains(f.key) : it->second->state == OpState::kFailed;
  if (over) {
    ++counters_.frames_repeated;
    return;
  }
  if (it == ops_.end() || !it->second->tree.said) return refuse("although this node is not");
  Op& op = *it->second;
  if (op.all_ready()) {
    ++counters_.frames_repeated;
    return;
  }
  if (f.all_ready.contributions < op.contributed + op.tree.contributions) {
    return refuse("without some contributions");
  }
  if (f.all_ready.rises && !op.tree.rises) return refuse("along the tree, which it cannot go");
  op.tree.rises = f.all_ready.rises;
  Arrivals& arrivals = op.arrivals;
  // For how long this was on its way is not known: a rank counts as less late by that.
  if (arrivals.first) {
    const Time told = f.all_ready.late_us * (kMillisecond / 1000);
    arrivals.first = std::min(*arrivals.first, now_ - told);
  }
  arrivals.latest_us = std::max(arrivals.latest_us, f.all_ready.late_us);
  op.grows = op.grows || f.all_ready.grows;
  tell_all_ready(op, f.all_ready.contributions);
  check_ready(op);
}

// Tells everybody that `rank` waits for the op: each member passes that on once. It finds ranks
// that have left, or have joined, or have submitted something else under this key.
void JobEngine::want(Op& op, uint32_t rank, std::optional<uint32_t> from) {
  if (op.tree.wanted || op.all_ready() || !op.open() || !op.signature) return;
  op.tree.wanted = true;
  if (planted(Bug::kNobodyIsAsked)) return;
  Frame f = frame(FrameType::kWanted, op.key);
  f.wanted.rank = rank;
  f.wanted.signature = *op.signature;
  f.wanted.waited = static_cast<uint64_t>(std::max<Time>(0, now_ - op.since.value_or(now_)));
  send_to_neighbours(f, from);
}

// What this node is ready for and others are not.
void JobEngine::want_all() {
  for (const auto& [key, op] : ops_) {
    if (op->ready_here()) want(*op, speaker_of(*op));
  }
}

void JobEngine::on_wanted(uint32_t from, const Frame& f) {
  const WantedBody& wanted = f.wanted;
  if (!tree_ || (!tree_.is_parent(from) && !tree_.is_child(from))) {
    return protocol_fault(from, "WANTED from a node that has no word in that");
  }
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return;
  }
  if (!view_.has(wanted.rank) && !view_.closed) {
    return protocol_fault(from, "WANTED in the name of rank " + std::to_string(wanted.rank) +
                                    ", which is not in the job");
  }
  Op& op = op_of(f.key);
  if (!op.open() || op.all_ready() || op.tree.wanted) {
    ++counters_.frames_repeated;
    return;
  }
  if (wanted.signature.collective == Collective::kBroadcast && op.root_node.empty() &&
      !view_.has(wanted.signature.root)) {
    return protocol_fault(from, "WANTED for a broadcast from a rank outside the job");
  }
  const auto waited = static_cast<Time>(std::min(wanted.waited, static_cast<uint64_t>(now_)));
  if (!op.since) op.since = now_ - waited;
  meet(op, wanted.rank, wanted.signature);
  const auto it = ops_.find(f.key);
  if (it == ops_.end()) return;
  want(*it->second, wanted.rank, from);
  if (f.key.space == OpKey::kNoMoreSpace) want_all();
  ask_joined(*it->second);
}

// Some rank has no more data, as far as is known here, and must be asked for each op.
bool JobEngine::anybody_joined() const {
  for (auto it = ops_.lower_bound({OpKey::kNoMoreSpace, 0});
       it != ops_.end() && it->first.space == OpKey::kNoMoreSpace; ++it) {
    const Op& join = *it->second;
    if (join.open() && !join.all_ready() && !moved(join)) return true;
  }
  return false;
}

// How much longer than its deadline an op may take before this node says whose fault that is. Who
// knows the rank speaks at once, then who knows its node: from below upwards, since whoever is
// above knows less; and then, from above downwards, who has heard nothing from the first member.
Time JobEngine::patience(const Op& op) const {
  if (!all_local(op) || !input_is_here(op)) return 0;
  if (!tree_ || op.all_ready()) return kTimeToSpeak;
  if (!subtree_is_ready(op)) return (1 + tree_.levels() - tree_.depth()) * kTimeToSpeak;
  return (1 + tree_.levels() + tree_.depth()) * kTimeToSpeak;
}

}  // namespace gradring::core
