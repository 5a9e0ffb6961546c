// Small sums in large views (rule D10): when all members are ready each sends the sum of itself and
// all below it up the tree, the first member has the final value, and that goes down the same way.
// The first member says ALL READY for a few of them at a time, and so nobody below has more of them
// under way: no other bound is needed, and none depends on an order in which frames come.
//
// Who has the final value is found out as for an op without slices: a confirmation goes round.

#include <algorithm>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "proto/check.h"

namespace gradring::core {

bool JobEngine::rises(const Op& op) const {
  return tree_ && op.plan.direct == Direct::kTree && op.tree.rises && op.all_ready();
}

// At the first member: now, or when one of those under way has come up.
void JobEngine::let_rise(Op& op, uint32_t contributions) {
  if (rising_ >= options_.rising_most) return to_rise_.push_back(op.key);
  ++rising_;
  tell_all_ready(op, contributions);
}

void JobEngine::rise_next() {
  --rising_;
  while (!to_rise_.empty() && rising_ < options_.rising_most) {
    const auto it = ops_.find(to_rise_.front());
    to_rise_.pop_front();
    if (it == ops_.end() || it->second->state != OpState::kGathering) continue;
    Op& op = *it->second;
    let_rise(op, op.contributed + op.tree.contributions);
    check_ready(op);
  }
}

void JobEngine::start_rising(Op& op) {
  op.eager.direct = true;
  const uint32_t below = planted(Bug::kRisesInHaste) ? 0 : tree_.children();
  op.eager.parcels.assign(below, std::nullopt);
  op.eager.own = {units_.take()};
  op.slices[0].route = Route::kDirect;
  FoldOrder order;
  order.op = &op;
  order.at = unit_at(op.eager.own[0]);
  order.leaves = true;
  order.again = op.eager.looked_at;
  actions_->fold(order);
  op.eager.looked_at = true;
  rise_if_whole(op);
}

void JobEngine::rise_if_whole(Op& op) {
  const auto& parcels = op.eager.parcels;
  const bool whole = std::all_of(parcels.begin(), parcels.end(),
                                 [](const auto& unit) { return unit.has_value(); });
  if (whole) summing_.push_back(&op);
}

std::optional<uint32_t> JobEngine::on_rising(uint32_t from, const Frame& f) {
  const auto it = ops_.find(f.key);
  if (it == ops_.end() && ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  const bool known = it != ops_.end() && rises(*it->second) && tree_.is_child(from);
  const bool fits = known && f.slice.slice == 0 && it->second->plan.slices == 1 &&
                    f.slice.length == it->second->plan.length_of(0);
  if (!fits) {
    protocol_fault(from, "a sum for " + describe(f.key) + " that is not to come from there");
    return std::nullopt;
  }
  Op& op = *it->second;
  const uint8_t bit = tree_.bit_of(from);
  if ((op.tree.risen & bit) != 0) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  op.tree.risen |= bit;
  const uint32_t unit = units_.take();
  units_.parcel(unit) = {from, f, false};
  ++counters_.slices_received;
  counters_.payload_bytes_received += f.slice.length;
  return unit;
}

void JobEngine::take_rising(uint32_t unit) {
  const EagerUnits::Parcel& parcel = units_.parcel(unit);
  const auto it = ops_.find(parcel.frame.key);
  if (it == ops_.end() || it->second->eager.parcels.empty()) return units_.release(unit);
  Op& op = *it->second;
  op.eager.parcels[parcel.from - tree_.first_child()] = unit;
  rise_if_whole(op);
}

// Our own contributions, and then those from below in the order of the members.
void JobEngine::sum_subtree(Op& op) {
  const uint32_t own = op.eager.own[0];
  std::vector<Staging> parts = {unit_at(own)};
  for (const auto& unit : op.eager.parcels) {
    if (unit) parts.push_back(unit_at(*unit));
  }
  const ValueId value{view_.epoch, op.contributed_all};
  SumOrder order;
  order.op = &op;
  order.parts = parts;
  order.at = unit_at(own);
  order.partial = !tree_.is_root();
  if (!order.partial) {
    if (op.signature->op == ReduceOp::kAverage) order.divisor = value.ranks;
    order.factor = op.signature->postscale;
  }
  if (parts.size() > 1) actions_->sum(order);
  if (!order.partial) {
    hold_final(op, 0, value);
    hand_down(op, own);
    return rise_next();
  }
  op.tree.passed_on = true;
  Frame f = frame(FrameType::kSlice, op.key);
  f.slice.phase = Phase::kRising;
  f.slice.ranks = op.contributed + op.tree.contributions;
  f.slice.length = op.plan.length_of(0);
  f.slice.value_epoch = value.epoch;
  f.slice.lane = static_cast<uint8_t>(op.key.sequence);
  ++counters_.slices_sent;
  counters_.payload_bytes_sent += f.slice.length;
  units_.hold(own);
  actions_->send_direct(tree_.parent(), f, unit_at(own));
  let_go(op, false);
}

void JobEngine::hand_down(const Op& op, uint32_t unit) {
  Frame f = frame(FrameType::kSlice, op.key);
  f.slice.phase = Phase::kDirect;
  f.slice.ranks = op.slices[0].value.ranks;
  f.slice.length = op.plan.length_of(0);
  f.slice.value_epoch = op.slices[0].value.epoch;
  for (uint32_t i = 0; i < tree_.children(); ++i) {
    f.slice.lane = static_cast<uint8_t>(op.key.sequence + i);
    ++counters_.slices_sent;
    counters_.payload_bytes_sent += f.slice.length;
    units_.hold(unit);
    actions_->send_direct(tree_.first_child() + i, f, unit_at(unit));
  }
}

}  // namespace gradring::core
