#include "daemon/wire/report_wire.h"

#include <algorithm>
#include <utility>

#include "daemon/core/plan.h"
#include "daemon/wire/view_wire.h"

namespace gradring::daemon {
namespace {

constexpr uint32_t kStateLast = static_cast<uint32_t>(core::SliceState::kDropped);
constexpr uint32_t kRouteLast = static_cast<uint32_t>(core::Route::kNone);
constexpr uint32_t kKindLast = static_cast<uint32_t>(core::OpFate::Kind::kFail);

void fill(const core::ValueId& from, wire::ValueId* to) {
  to->set_epoch(from.epoch);
  to->set_ranks(from.ranks);
}

core::ValueId value_of(const wire::ValueId& from) { return {from.epoch(), from.ranks()}; }

// Whether they come in the order of their keys, none twice.
template <typename List>
bool ascending_keys(const List& list) {
  return std::adjacent_find(list.begin(), list.end(), [](const auto& a, const auto& b) {
           return gradring::from_wire(a.key()) >= gradring::from_wire(b.key());
         }) == list.end();
}

// How many slices all runs together have; none when they are malformed.
template <typename Runs>
uint64_t slices_in(const Runs& runs) {
  uint64_t slices = 0;
  for (const auto& run : runs) {
    slices += run.count();
    if (run.count() == 0 || slices > kSlicesMax) return 0;
  }
  return slices;
}

// ---- reports ----

void fill(const core::OpReport& from, wire::ReportedOp* to) {
  gradring::to_wire(from.key, to->mutable_key());
  to->set_name(from.name);
  if (from.signature) gradring::to_wire(*from.signature, to->mutable_signature());
  to->set_completed(from.completed);
  to->set_contributions(from.contributions);
  to->set_root_here(from.root_here);
  to->set_expected(from.expected);
  to->set_slice_bytes(from.slice_bytes);
  for (const core::SliceRun& run : from.slices) {
    wire::SliceRun* r = to->add_slices();
    r->set_count(run.count);
    r->set_state(static_cast<uint32_t>(run.state));
    fill(run.value, r->mutable_value());
  }
  fill(from.outcome, to->mutable_outcome());
}

// As many as its signature is cut into, or none of an op that has none. Of blocks that differ
// nobody here need know how many elements each has but the longest.
bool fit_slices(const wire::ReportedOp& op, const std::optional<Signature>& signature) {
  if (op.slices().empty()) return op.slice_bytes() == 0;
  if (op.slice_bytes() == 0 || !signature) return false;
  Signature equal = *signature;
  equal.blocks = {};
  const uint64_t most = core::slices_for(equal, op.slice_bytes()), told = slices_in(op.slices());
  if (!signature->blocks.uneven()) return told != 0 && told == most;
  return told != 0 && told >= most / blocks_of(equal) && told <= most;
}

bool op_of(const wire::ReportedOp& from, core::OpReport* to) {
  if (from.name().size() > kTextMax) return false;
  if (from.has_signature() && !gradring::from_wire(from.signature(), &to->signature.emplace())) {
    return false;
  }
  if (!fit_slices(from, to->signature)) return false;
  to->key = gradring::from_wire(from.key());
  to->name = from.name();
  to->completed = from.completed();
  to->contributions = from.contributions();
  to->root_here = from.root_here();
  to->expected = from.expected();
  to->slice_bytes = from.slice_bytes();
  for (const wire::SliceRun& run : from.slices()) {
    if (run.state() > kStateLast) return false;
    to->slices.push_back(
        {run.count(), static_cast<core::SliceState>(run.state()), value_of(run.value())});
  }
  to->outcome = value_of(from.outcome());
  return true;
}

bool ended_of(const wire::Report& from, core::KeySet* to) {
  const wire::KeyInterval* before = nullptr;
  for (const wire::KeyInterval& interval : from.ended()) {
    if (interval.first() > interval.last()) return false;
    if (before != nullptr && std::pair(interval.space(), interval.first()) <=
                                 std::pair(before->space(), before->last())) {
      return false;
    }
    to->insert_interval(interval.space(), interval.first(), interval.last());
    before = &interval;
  }
  return true;
}

bool ranks_of(const wire::Report& from, uint64_t epoch, core::Report* to) {
  for (const wire::RankInfo& rank : from.ranks()) {
    if (!to->ranks.empty() && rank.rank() <= to->ranks.back().rank) return false;
    core::RankInfo& info = to->ranks.emplace_back();
    if (!from_wire(rank, &info) || info.since > epoch) return false;
  }
  for (const wire::LostRank& lost : from.lost()) {
    core::LostRank& rank = to->lost.emplace_back();
    rank.rank = lost.rank();
    if (!bounded_from_wire(lost.failure(), &rank.failure)) return false;
  }
  return true;
}

// ---- proposals ----

void fill(const core::OpFate& from, wire::OpFate* to) {
  gradring::to_wire(from.key, to->mutable_key());
  to->set_kind(static_cast<uint32_t>(from.kind));
  to->set_expected(from.expected);
  to->set_slice_bytes(from.slice_bytes);
  to->set_root_node(from.root_node);
  to->set_spared(from.spared);
  for (const core::SliceFate& run : from.slices) {
    wire::SliceFate* r = to->add_slices();
    r->set_count(run.count);
    r->set_route(static_cast<uint32_t>(run.route));
    r->set_holder(run.holder);
    fill(run.value, r->mutable_value());
  }
  fill(from.outcome, to->mutable_outcome());
  if (from.failure != Failure{}) bounded_to_wire(from.failure, to->mutable_failure());
}

bool fate_of(const wire::OpFate& from, const core::View& view, core::OpFate* to) {
  if (from.kind() > kKindLast || !bounded_from_wire(from.failure(), &to->failure)) return false;
  if (!from.root_node().empty() && !view.index_of(from.root_node())) return false;
  to->key = gradring::from_wire(from.key());
  to->kind = static_cast<core::OpFate::Kind>(from.kind());
  const bool by_slices = to->kind == core::OpFate::Kind::kRecover;
  if (by_slices ? from.slice_bytes() == 0 || slices_in(from.slices()) == 0
                : !from.slices().empty()) {
    return false;
  }
  to->expected = from.expected();
  to->slice_bytes = from.slice_bytes();
  to->root_node = from.root_node();
  to->spared = from.spared();
  for (const wire::SliceFate& run : from.slices()) {
    if (run.route() > kRouteLast || run.holder() >= view.members.size()) return false;
    to->slices.push_back(
        {run.count(), static_cast<core::Route>(run.route()), run.holder(), value_of(run.value())});
  }
  to->outcome = value_of(from.outcome());
  return true;
}

// Unlike one that forms a job, which is refused in words, this view is taken as it is.
bool sound(const core::View& view, const JobId& job, uint64_t ended) {
  if (view.incarnation != job || view.epoch <= 1 || view.epoch - 1 != ended) return false;
  return core::fault_of(view).empty();
}

}  // namespace

void to_wire(const core::Report& from, wire::Report* to) {
  to->set_node(from.node);
  for (const core::OpReport& op : from.ops) fill(op, to->add_ops());
  from.ended.for_each([to](uint64_t space, uint64_t first, uint64_t last) {
    wire::KeyInterval* interval = to->add_ended();
    interval->set_space(space);
    interval->set_first(first);
    interval->set_last(last);
  });
  for (const auto& [key, failure] : from.failed) {
    wire::FailedOp* failed = to->add_failed();
    gradring::to_wire(key, failed->mutable_key());
    bounded_to_wire(failure, failed->mutable_failure());
  }
  for (const auto& [key, condemned] : from.condemned) {
    wire::CondemnedOp* op = to->add_condemned();
    gradring::to_wire(key, op->mutable_key());
    bounded_to_wire(condemned.failure, op->mutable_failure());
    op->set_receiver(condemned.receiver);
  }
  for (const core::RankInfo& rank : from.ranks) to_wire(rank, to->add_ranks());
  for (const core::LostRank& lost : from.lost) {
    wire::LostRank* l = to->add_lost();
    l->set_rank(lost.rank);
    bounded_to_wire(lost.failure, l->mutable_failure());
  }
  for (const std::string& node : from.reachable) to->add_reachable(node);
  to->set_wants_out(from.wants_out);
}

bool from_wire(const wire::Report& from, uint64_t epoch, core::Report* to) {
  if (!names_node(from.node()) || !ascending_keys(from.ops()) || !ascending_keys(from.failed()) ||
      !ascending_keys(from.condemned()) ||
      !std::all_of(from.reachable().begin(), from.reachable().end(), names_node)) {
    return false;
  }
  *to = {};
  to->node = from.node();
  for (const wire::ReportedOp& op : from.ops()) {
    if (!op_of(op, &to->ops.emplace_back())) return false;
  }
  for (const wire::FailedOp& failed : from.failed()) {
    Failure& failure = to->failed[gradring::from_wire(failed.key())];
    if (!bounded_from_wire(failed.failure(), &failure)) return false;
  }
  for (const wire::CondemnedOp& op : from.condemned()) {
    core::Condemned& condemned = to->condemned[gradring::from_wire(op.key())];
    if (!names_node(op.receiver()) || !bounded_from_wire(op.failure(), &condemned.failure)) {
      return false;
    }
    condemned.receiver = op.receiver();
  }
  to->reachable.assign(from.reachable().begin(), from.reachable().end());
  to->wants_out = from.wants_out();
  return ended_of(from, &to->ended) && ranks_of(from, epoch, to);
}

void to_wire(const core::Proposal& from, wire::Proposal* to) {
  to_wire(from.view, to->mutable_view());
  for (const core::OpFate& fate : from.ops.all()) fill(fate, to->add_ops());
}

bool from_wire(const wire::Proposal& from, const JobId& job, uint64_t ended, core::Proposal* to) {
  *to = {};
  if (!from_wire(from.view(), &to->view) || !sound(to->view, job, ended) ||
      !ascending_keys(from.ops())) {
    return false;
  }
  std::vector<core::OpFate> fates;
  for (const wire::OpFate& fate : from.ops()) {
    if (!fate_of(fate, to->view, &fates.emplace_back())) return false;
  }
  to->ops = std::move(fates);
  return true;
}

}  // namespace gradring::daemon
