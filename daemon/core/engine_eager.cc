// Small ops without the ring: contributions go with READY, straight to who sums them. Rule D10: of
// a slice, whoever sums it adds all contributions in the order in which the ring would, first has
// the final value, and hands it to all who do not sum it themselves. A member says that it is done
// with the op when it has all of its slices; the copies go when all others have said so.

#include <algorithm>
#include <utility>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "proto/check.h"

namespace gradring::core {
namespace {

bool prescaled(const Op& op) {
  return std::any_of(op.locals.begin(), op.locals.end(),
                     [](const auto& local) { return local && local->prescale != 1; });
}

uint32_t unit_bytes_of(const PlanOptions& plan) {
  uint32_t bytes = plan.tree_max;
  if (plan.direct_members_max > 0) {
    bytes = std::max({bytes, plan.direct_whole_max, plan.direct_part_max});
  }
  return std::min(bytes, plan.slice_bytes_max);
}

}  // namespace

// Our own parts of each op under way, and of each other member's a contribution and a final value.
// Of one that goes along a tree our own sum, those of all below and the final one; what is on its
// way may be twice as many as the root lets go at a time.
uint64_t eager_bytes_max(const PlanOptions& plan) {
  const uint64_t members = plan.direct_members_max;
  const uint64_t parts = std::min(plan.direct_members_max, plan.parts_members_max);
  const uint64_t straight =
      members == 0 ? 0 : kEagerWindow * std::max(members, parts + 2 * (parts - 1));
  const uint64_t rising = plan.tree_max == 0 ? 0 : 2 * kRisingMost * (ReadyTree::kArity + 2);
  return std::max(straight, rising) * unit_bytes_of(plan);
}

uint32_t JobEngine::unit_bytes() const { return unit_bytes_of(options_.plan); }

// Whether this node can have it otherwise than along the ring. Nobody else must agree: where one
// member cannot, all others see that, and the op goes along the ring.
bool JobEngine::may_be_direct(const Op& op) const {
  if (op.plan.direct == Direct::kNo || op.keeps_to_ring || !options_.eager) return false;
  if (!input_is_here(op)) return false;  // all of it is to be sent at once
  // Those confirm each slice, wait for the last member, or write down where each value lies.
  if (options_.checksum || options_.stable_completion) return false;
  if (journal_ != EngineJournal::none()) return false;
  // What goes along the ring is not rounded between the factor and the sum.
  return !is_half(op.signature->dtype) || !prescaled(op);
}

bool JobEngine::may_be_eager(const Op& op) const {
  if (!may_be_direct(op) || !eager_sent_.room()) return false;
  for (uint32_t i = 0; i < members(); ++i) {
    if (i != me_ && !heard_[i] && !planted(Bug::kDataToTheUnheard)) return false;
  }
  return true;
}

void JobEngine::send_eager(Op& op, Frame ready) {
  op.eager.mine = true;
  ++op.eager.ready;
  ready.ready.eager = true;
  ready.ready.serial = eager_sent_.add(op.key);
  for (uint32_t slice = 0; slice < op.plan.slices; ++slice) {
    op.eager.own.push_back(units_.take());
    FoldOrder order;
    order.op = &op;
    order.slice = slice;
    order.at = unit_at(op.eager.own.back());
    order.leaves = true;
    order.again = op.eager.looked_at;
    actions_->fold(order);
  }
  op.eager.looked_at = true;
  // Each begins with who comes behind it, so that nobody is sent to by all at once.
  for (uint32_t away = 1; away < members(); ++away) {
    const uint32_t i = (me_ + away) % members();
    ready.ready.done = eager_received_[i].tell();
    const uint32_t slice = op.plan.direct == Direct::kWhole ? 0 : i;
    if (slice >= op.plan.slices) {  // there are fewer slices than members
      ready.ready.length = 0;
      actions_->send(i, ready);
      continue;
    }
    ready.ready.length = op.plan.length_of(slice);
    counters_.payload_bytes_sent += ready.ready.length;
    units_.hold(op.eager.own[slice]);
    actions_->send_direct(i, ready, unit_at(op.eager.own[slice]));
  }
}

std::optional<uint32_t> JobEngine::on_parcel(uint32_t from, const Frame& f) {
  if (stale(f)) return std::nullopt;
  heard_[from] = true;
  if (f.type == FrameType::kReady) return on_eager(from, f);
  return f.slice.phase == Phase::kRising ? on_rising(from, f) : on_direct(from, f);
}

// False: it came before, or must not have come at all.
bool JobEngine::eager_begins(uint32_t from, const Frame& f) {
  const auto fault = [&](const std::string& what) {
    protocol_fault(from, what);
    return false;
  };
  if (tree_) return fault("READY with its data, which large jobs do not have");
  // Whoever sends a READY with its data sends as much as its op has for us.
  const DirectLayout layout =
      direct_layout(f.ready.signature, members(), plan_options(f.key, f.ready.signature));
  const uint64_t first = layout.direct == Direct::kParts ? uint64_t{me_} * layout.slice_bytes : 0;
  const uint64_t bytes = f.ready.signature.bytes();
  const uint64_t expected =
      first < bytes ? std::min<uint64_t>(bytes - first, layout.slice_bytes) : 0;
  if (f.ready.length != expected) {
    return fault("READY for " + describe(f.key) + " with " + std::to_string(f.ready.length) +
                 " bytes instead of " + std::to_string(expected));
  }
  switch (eager_received_[from].begin(f.ready.serial)) {
    case EagerReceived::Serial::kNew:
      return true;
    case EagerReceived::Serial::kKnown:
      ++counters_.frames_repeated;
      return false;
    case EagerReceived::Serial::kTooFar:
      break;
  }
  return fault("data with READY for more ops than may be under way");
}

std::optional<uint32_t> JobEngine::on_eager(uint32_t from, const Frame& f) {
  if (!eager_begins(from, f)) return std::nullopt;
  const uint32_t unit = units_.take();
  units_.parcel(unit) = {from, f, false};
  counters_.payload_bytes_received += f.ready.length;
  return unit;
}

std::optional<uint32_t> JobEngine::on_direct(uint32_t from, const Frame& f) {
  const auto it = ops_.find(f.key);
  if (it == ops_.end() && ended_keys_.contains(f.key)) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  const auto refuse = [&] {
    protocol_fault(from, "slice " + std::to_string(f.slice.slice) + " of " + describe(f.key) +
                             ", which does not come straight from there");
    return std::nullopt;
  };
  if (it == ops_.end()) return refuse();
  Op& op = *it->second;
  const uint32_t slice = f.slice.slice;
  const bool sent = tree_ ? rises(op) && op.tree.passed_on && tree_.is_parent(from) && slice == 0
                          : op.plan.direct == Direct::kParts && slice == from;
  const bool fits = slice < op.plan.slices && f.slice.length == op.plan.length_of(slice);
  if (!sent || !fits) return refuse();
  SliceProgress& progress = op.slices[slice];
  if (progress.arriving || progress.state != SliceState::kUntouched) {
    ++counters_.frames_repeated;
    return std::nullopt;
  }
  if (!tree_ && !op.eager.mine) return refuse();
  progress.arriving = true;
  progress.route = Route::kDirect;
  op.eager.direct = true;  // whoever has summed it has all READYs; perhaps we have not
  const uint32_t unit = units_.take();
  units_.parcel(unit) = {from, f, false};
  ++counters_.slices_received;
  counters_.payload_bytes_received += f.slice.length;
  return unit;
}

void JobEngine::on_parcel_landed(uint32_t unit, Time now) {
  now_ = now;
  const EagerUnits::Parcel parcel = units_.parcel(unit);
  if (parcel.stale) return units_.release(unit);
  if (parcel.frame.type == FrameType::kReady) return on_ready(parcel.from, parcel.frame, unit);
  if (parcel.frame.slice.phase == Phase::kRising) return take_rising(unit);
  parcels_.push_back(unit);
}

void JobEngine::on_parcel_aborted(uint32_t unit) { units_.release(unit); }

// A READY that nobody needs.
void JobEngine::done_with(uint32_t from, const Frame& f, std::optional<uint32_t> unit) {
  if (unit) units_.release(*unit);
  if (f.ready.eager) eager_received_[from].end(f.ready.serial);
}

void JobEngine::take_parcel(Op& op, uint32_t from, const Frame& f, std::optional<uint32_t> unit) {
  if (!f.ready.eager) return;
  ++op.eager.ready;
  op.eager.parcels.resize(members());
  op.eager.serials.resize(members());
  op.eager.parcels[from] = unit;
  op.eager.serials[from] = f.ready.serial;
}

void JobEngine::start_direct(Op& op) {
  op.eager.direct = true;
  if (planted(Bug::kDoneBeforeFinal)) {
    for (uint32_t i = 0; i < members(); ++i) {
      const uint64_t serial = std::exchange(op.eager.serials[i], 0);
      if (serial != 0) eager_received_[i].end(serial);
    }
  }
  bool sums = false;
  for (uint32_t slice = 0; slice < op.plan.slices; ++slice) {
    op.slices[slice].route = Route::kDirect;
    if (op.plan.sums(me_, slice)) {
      sums = true;
    } else if (!op.eager.own.empty()) {
      units_.release(op.eager.own[slice]);  // it is on its way
    }
  }
  const uint32_t mine = op.plan.direct == Direct::kWhole ? 0 : me_;
  if (sums) {
    op.eager.own = {op.eager.own[mine]};
    summing_.push_back(&op);
  } else {
    op.eager.own.clear();
  }
}

bool JobEngine::work_parcel() {
  if (parcels_.empty()) return false;
  const uint32_t unit = parcels_.front();
  parcels_.pop_front();
  const Frame& f = units_.parcel(unit).frame;
  const auto it = ops_.find(f.key);
  if (it != ops_.end() && it->second->open()) {
    Op& op = *it->second;
    actions_->deliver(op, f.slice.slice, unit_at(unit));
    hold_final(op, f.slice.slice, {f.slice.value_epoch, f.slice.ranks});
    if (tree_) hand_down(op, unit);
    units_.release(unit);
    complete_if_final(op);
  } else {
    units_.release(unit);
  }
  return true;
}

bool JobEngine::work_sum() {
  if (summing_.empty()) return false;
  Op& op = *summing_.front();
  summing_.pop_front();
  if (tree_) {
    sum_subtree(op);
  } else {
    sum_direct(op, op.plan.direct == Direct::kWhole ? 0 : me_);
  }
  complete_if_final(op);
  return true;
}

void JobEngine::sum_direct(Op& op, uint32_t slice) {
  const Staging own = unit_at(op.eager.own[0]);
  std::vector<Staging> parts;
  for (uint32_t i = 0; i < members(); ++i) {
    const uint32_t first = planted(Bug::kOwnOrderOfSum) ? me_ : op.plan.start_of(slice);
    const uint32_t member = (first + i) % members();
    parts.push_back(member == me_ ? own : unit_at(*op.eager.parcels[member]));
  }
  const ValueId value{view_.epoch, op.contributed_all};
  const bool hands = op.plan.direct == Direct::kParts;
  SumOrder order;
  order.op = &op;
  order.slice = slice;
  order.parts = parts;
  if (op.signature->op == ReduceOp::kAverage) order.divisor = value.ranks;
  order.factor = op.signature->postscale;
  if (hands) order.at = own;
  actions_->sum(order);
  hold_final(op, slice, value);
  if (!hands) return;
  Frame f = frame(FrameType::kSlice, op.key);
  f.slice.slice = slice;
  f.slice.phase = Phase::kDirect;
  f.slice.ranks = value.ranks;
  f.slice.length = op.plan.length_of(slice);
  f.slice.value_epoch = value.epoch;
  for (uint32_t away = 1; away < members(); ++away) {
    const uint32_t i = (me_ + away) % members();
    f.slice.lane = static_cast<uint8_t>(op.key.sequence + i);
    ++counters_.slices_sent;
    counters_.payload_bytes_sent += f.slice.length;
    units_.hold(own.index);
    actions_->send_direct(i, f, own);
  }
}

void JobEngine::hold_final(Op& op, uint32_t slice, ValueId value) {
  SliceProgress& progress = op.slices[slice];
  GRADRING_CHECK(progress.state == SliceState::kUntouched, "a slice becomes final once");
  progress.arriving = false;
  progress.state = SliceState::kHeld;
  progress.value = value;
  ++op.slices_held;
}

void JobEngine::on_done(uint32_t from, const DoneBody& done) {
  std::vector<OpKey> everywhere;
  if (!eager_sent_.on_done(from, done, &everywhere)) {
    return protocol_fault(from, "it is done with an op that was never sent to it");
  }
  for (const OpKey& key : everywhere) {
    const auto it = ops_.find(key);
    if (it == ops_.end()) continue;
    Op& op = *it->second;
    op.eager.everywhere = true;
    drop_if_everywhere(op);
    if (op.open()) {
      complete_if_final(op);  // it may have waited for room to keep its slices
    } else {
      forget_if_dropped(key);
    }
  }
}

void JobEngine::drop_if_everywhere(Op& op) {
  if (!op.eager.direct || !op.eager.everywhere || op.slices_held < op.plan.slices) return;
  for (uint32_t slice = 0; slice < op.plan.slices; ++slice) set_dropped(op, slice);
}

// Most often the next READY says it.
void JobEngine::tell_done(bool all) {
  if (frozen_ || failure_ || tree_) return;
  for (uint32_t i = 0; i < members(); ++i) {
    EagerReceived& received = eager_received_[i];
    if (received.untold() == 0 || (!all && received.untold() < kEagerWindow / 2)) continue;
    Frame f = frame(FrameType::kDone, {});
    f.done = received.tell();
    actions_->send(i, f);
  }
}

bool JobEngine::all_left() const {
  return std::all_of(locals_.begin(), locals_.end(),
                     [](const Local& local) { return local.left || !local.member; });
}

// What went with READY is of no use any more. `tell`: whoever sent it may know.
void JobEngine::let_go(Op& op, bool tell) {
  Eager& eager = op.eager;
  for (const uint32_t unit : eager.own) units_.release(unit);
  for (const auto& unit : eager.parcels) {
    if (unit) units_.release(*unit);
  }
  for (uint32_t i = 0; tell && i < eager.serials.size(); ++i) {
    if (eager.serials[i] != 0) eager_received_[i].end(eager.serials[i]);
  }
  std::erase(summing_, &op);
  eager.own.clear();
  eager.parcels.clear();
  eager.serials.clear();
  eager.mine = false;
  eager.ready = 0;
}

// With its epoch, all of that is over.
void JobEngine::end_eager() {
  for (const auto& [key, op] : ops_) let_go(*op, false);
  for (const uint32_t unit : parcels_) units_.release(unit);
  parcels_.clear();
  rising_ = 0;
  to_rise_.clear();
  for (uint32_t unit = 0; unit < units_.count(); ++unit) units_.parcel(unit).stale = true;
  eager_sent_.begin_epoch(members(), me_);
  eager_received_.assign(members(), {});
  heard_.assign(members(), false);
}

}  // namespace gradring::core
