// A node says READY for an op when all of its own ranks have submitted it, and moves no slice of it
// before all others have said so too. See docs/architecture.md, rule D1.

#include <algorithm>
#include <limits>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"

namespace gradring::core {

namespace {

uint32_t microseconds(Time time) {
  constexpr Time kMicrosecond = kMillisecond / 1000;
  return static_cast<uint32_t>(
      std::clamp<Time>(time / kMicrosecond, 0, std::numeric_limits<uint32_t>::max()));
}

uint32_t milliseconds(Time time) {
  return static_cast<uint32_t>(
      std::clamp<Time>(time / kMillisecond, 0, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

// Nobody has said READY for it in this epoch.
void JobEngine::begin_ready(Op& op) const {
  op.contributed = op.contributed_all = op.ready_count = 0;
  op.contributions.assign(tree_ ? 0 : members(), 0);
  op.contributed_before.clear();
  op.tree = {};
  op.grows = false;
  op.arrivals = {};
}

// `index`: of a rank of ours; none: READY of another member, whose latest was `late_us` behind. A
// tree's READY is said when the latest below has come, and nobody else tells of the first.
void JobEngine::arrived(Op& op, std::optional<uint32_t> index, uint32_t late_us) const {
  Arrivals& arrivals = op.arrivals;
  if (!arrivals.first) arrivals.first = now_;
  if (tree_) arrivals.first = std::min(*arrivals.first, now_ - late_us * (kMillisecond / 1000));
  if (index) {
    arrivals.locals.resize(op.locals.size());
    arrivals.locals[*index] = now_;
  }
  if (index || tree_) late_us = microseconds(now_ - *arrivals.first);
  arrivals.latest_us = std::max(arrivals.latest_us, late_us);
}

// The one to name where signatures differ.
uint32_t JobEngine::speaker_of(const Op& op) const {
  uint32_t speaker = kNoRank;
  for (size_t i = 0; i < op.locals.size(); ++i) {
    if (op.locals[i] && locals_[i].member) speaker = std::min(speaker, op.locals[i]->rank);
  }
  return speaker;
}

void JobEngine::say_ready(Op& op) {
  // Whoever has joined must hear of the others' ops, so they must hear of that.
  if (tree_ && op.key.space == OpKey::kNoMoreSpace) want(op, speaker_of(op));
  if (waits_for_others(op)) return;
  if (planted(Bug::kSlotsPerGrant)) {
    size_t granted = 0;
    for (const auto& [key, other] : ops_) granted += other->open() && other->ready_here() ? 1 : 0;
    if (granted >= options_.slots) return;
  }
  plan(op);
  // None where this node has only what is final to give.
  op.contributed = std::max(contributions_here(op), 1u);
  op.grows = op.grows || (op.key.space == OpKey::kJoinSpace && grows_);
  if (tree_) {
    if (anybody_joined()) want(op, speaker_of(op));
    return check_ready(op);
  }
  op.contributions[me_] = op.contributed;
  ++op.ready_count;
  Frame ready = frame(FrameType::kReady, op.key);
  ready.ready.rank = speaker_of(op);
  ready.ready.contributions = op.contributed;
  ready.ready.signature = *op.signature;
  ready.ready.late_us = op.arrivals.latest_us;
  ready.ready.waited_ms = milliseconds(now_ - op.since.value_or(now_));
  ready.ready.grows = op.key.space == OpKey::kJoinSpace && grows_;
  if (may_be_eager(op)) {
    send_eager(op, ready);
  } else {
    for (uint32_t i = 0; i < members(); ++i) {
      if (i == me_) continue;
      ready.ready.done = eager_received_[i].tell();
      actions_->send(i, ready);
    }
  }
  check_ready(op);
}

void JobEngine::check_ready(Op& op) {
  if (op.state != OpState::kGathering) return;
  if (tree_) {
    pass_ready(op);
  } else if (op.ready_count == members() || (planted(Bug::kOnlySuccessorReady) && op.ready_here() &&
                                             op.contributions[successor()] > 0)) {
    op.contributed_before.assign(1, 0);
    for (const uint32_t ranks : op.contributions) {
      op.contributed_before.push_back(op.contributed_before.back() + ranks);
    }
    op.contributed_all = op.contributed_before.back();
  }
  if (!op.all_ready()) return;
  set_state(op, OpState::kMoving);
  actions_->moves(op);
  if (op.eager.ready == members()) {
    start_direct(op);
  } else if (rises(op)) {
    start_rising(op);
  } else {
    let_go(op, true);
    if (op.next_start < op.plan.slices) line_up(op);
  }
  if (op.grows) return actions_->at_join_point();
  complete_if_final(op);
}

// `unit`: where its data lies, if there is any.
void JobEngine::on_ready(uint32_t from, const Frame& f, std::optional<uint32_t> unit) {
  const ReadyBody& ready = f.ready;
  if (tree_ && (ready.eager || !tree_.is_child(from))) {
    return protocol_fault(from, "READY in a way that large jobs do not have");
  }
  on_done(from, ready.done);
  if (ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return done_with(from, f, unit);
  }
  const auto refuse = [&](const std::string& why) {
    done_with(from, f, unit);
    protocol_fault(from, "READY " + why);
  };
  // Looked for where it should be: in a large job there are as many of these as nodes.
  const bool speaks_for_itself =
      std::ranges::count(view_.members[from].ranks, ready.rank, &RankInfo::rank) > 0;
  if (!speaks_for_itself && (!view_.closed || view_.has(ready.rank))) {
    return refuse("in the name of rank " + std::to_string(ready.rank) +
                  ", which is not on that node");
  }
  // So that all of them can be added up.
  if (ready.contributions > kRanksMax) return refuse("of more ranks than any job has");
  Op& op = op_of(f.key);
  const bool known = tree_ ? (op.tree.below & tree_.bit_of(from)) != 0 : op.contributions[from] > 0;
  if (known || op.state == OpState::kFailed) {
    ++counters_.frames_repeated;
    return done_with(from, f, unit);
  }
  if (ready.signature.collective == Collective::kBroadcast && op.root_node.empty() &&
      !view_.has(ready.signature.root)) {
    return refuse("for a broadcast from a rank outside the job");
  }
  // What was known of it by READY alone ended with the last epoch, or life. Of what our ranks have
  // submitted the journal has the time.
  if (ready.waited_ms > 0 && locals_here(op) == 0) {
    const Time first = std::max<Time>(now_ - ready.waited_ms * kMillisecond, 0);
    op.since = std::min(op.since.value_or(first), first);
  }
  arrived(op, std::nullopt, ready.late_us);
  if (tree_) {
    op.tree.below |= tree_.bit_of(from);
    op.tree.contributions += ready.contributions;
    op.tree.rises = op.tree.rises && ready.rises;
  } else {
    op.contributions[from] = ready.contributions;
    ++op.ready_count;
  }
  op.grows = op.grows || ready.grows;
  take_parcel(op, from, f, unit);
  meet(op, ready.rank, ready.signature);
  if (const auto it = ops_.find(f.key); it != ops_.end()) ask_joined(*it->second);
}

}  // namespace gradring::core
