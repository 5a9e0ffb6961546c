// What becomes of each op that a member of the next view reported: rule V8.

#include "daemon/core/op_fates.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "daemon/core/planted.h"

namespace gradring::core {
namespace {

using Reports = std::map<std::string, Report>;

// One member's state of one op, slice by slice.
struct OpWitness {
  uint32_t member = 0;
  const OpReport* op = nullptr;  // null: never heard of it, or ended and forgotten
  bool forgotten = false;
  size_t run = 0;      // cursor
  uint32_t taken = 0;  // of that run

  // The state of the next `count` slices; count is at most left().
  SliceState state() const {
    if (forgotten) return SliceState::kDropped;
    return op == nullptr || op->slices.empty() ? SliceState::kUntouched : op->slices[run].state;
  }
  bool endless() const { return forgotten || op == nullptr || op->slices.empty(); }
  uint32_t left() const { return op->slices[run].count - taken; }
  ValueId value() const { return endless() ? ValueId{} : op->slices[run].value; }
  bool at_end() const { return !endless() && run == op->slices.size(); }
  void advance(uint32_t count) {
    if (endless()) return;
    taken += count;
    if (taken < op->slices[run].count) return;
    taken = 0;
    ++run;
  }
};

uint32_t slices_of(const OpReport& op) {
  uint32_t count = 0;
  for (const SliceRun& run : op.slices) count += run.count;
  return count;
}

bool touched(const OpReport& op) {
  return std::any_of(op.slices.begin(), op.slices.end(),
                     [](const SliceRun& run) { return run.state != SliceState::kUntouched; });
}

// Some of its result, or all of it, is final at this member.
bool decided(const OpReport& op) {
  return op.completed || touched(op) || (op.slices.empty() && op.outcome.ranks != 0);
}

// Decides one op after another.
class Decider {
 public:
  Decider(const View& old, const View& next, const Reports& reports)
      : old_(old), next_(next), reports_(reports) {
    for (const auto& [node, report] : reports) {
      for (const OpReport& op : report.ops) ops_[op.key][&report] = &op;
    }
    std::unordered_set<uint32_t> alive;  // there may be thousands
    for (const Member& member : next.members) {
      for (const RankInfo& info : member.ranks) alive.insert(info.rank);
    }
    for (const Member& member : old.members) {
      for (const RankInfo& info : member.ranks) {
        if (alive.count(info.rank) > 0) continue;
        first_lost_ = std::min(first_lost_.value_or(info.rank), info.rank);
      }
    }
  }

  tl::expected<std::vector<OpFate>, std::string> all() {
    std::set<OpKey> keys;
    for (const Member& member : next_.members) {
      const auto report = reports_.find(member.node);
      if (report == reports_.end()) continue;  // joins
      for (const OpReport& op : report->second.ops) keys.insert(op.key);
      for (const auto& [key, failure] : report->second.failed) keys.insert(key);
    }
    std::vector<OpFate> fates;
    for (const OpKey& key : keys) {
      auto fate = one(key);
      if (!fate) return tl::unexpected(fate.error());
      fates.push_back(std::move(*fate));
    }
    return fates;
  }

 private:
  std::vector<OpWitness> witnesses_of(const OpKey& key) const {
    std::vector<OpWitness> list;
    const auto ops = ops_.find(key);
    for (uint32_t i = 0; i < next_.members.size(); ++i) {
      const auto report = reports_.find(next_.members[i].node);
      if (report == reports_.end()) continue;
      OpWitness witness;
      witness.member = i;
      if (ops != ops_.end()) {
        const auto op = ops->second.find(&report->second);
        if (op != ops->second.end()) witness.op = op->second;
      }
      witness.forgotten = witness.op == nullptr && report->second.ended.contains(key);
      list.push_back(witness);
    }
    return list;
  }

  tl::expected<OpFate, std::string> one(const OpKey& key) const {
    OpFate fate;
    fate.key = key;
    for (const Member& member : next_.members) {
      const auto report = reports_.find(member.node);
      if (report == reports_.end()) continue;
      const auto failed = report->second.failed.find(key);
      if (failed == report->second.failed.end()) continue;
      fate.kind = OpFate::Kind::kFail;
      fate.failure = failed->second;
      return fate;
    }
    std::vector<OpWitness> witnesses = witnesses_of(key);
    for (const OpWitness& w : witnesses) {
      if (w.op == nullptr) continue;
      fate.expected = std::max(fate.expected, w.op->expected);
      if (w.op->root_here) fate.root_node = next_.members[w.member].node;
    }
    bool ended = std::any_of(witnesses.begin(), witnesses.end(), [](const OpWitness& w) {
      return w.forgotten || (w.op != nullptr && w.op->completed);
    });
    if (planted(Bug::kCondemnedThoughComplete) && condemned_by_member(key)) ended = false;
    const Failure* condemned = ended ? nullptr : condemned_by_member(key);
    if (condemned != nullptr) {
      fate.kind = OpFate::Kind::kFail;
      fate.failure = *condemned;
      return fate;
    }
    // Nobody ends one of these before every slice of it is where it is wanted.
    const auto signature = signature_of(witnesses);
    if (ended && signature && goes_to_one(signature->collective) &&
        !planted(Bug::kEndedElsewhereIgnored)) {
      fate.kind = OpFate::Kind::kComplete;
      fate.outcome = {old_.epoch, signature->ranks};
      return fate;
    }
    const bool moved = std::any_of(witnesses.begin(), witnesses.end(), [](const OpWitness& w) {
      return w.op != nullptr && decided(*w.op);
    });
    if (!moved && !ended) return untouched(std::move(fate), witnesses);
    const auto sliced = std::find_if(witnesses.begin(), witnesses.end(), [](const OpWitness& w) {
      return w.op != nullptr && decided(*w.op);
    });
    // All have completed and forgotten it but for those that still wait: impossible, since nobody
    // forgets what another lacks.
    if (sliced == witnesses.end()) {
      return tl::unexpected(describe(key) + " is forgotten by one node and open on another");
    }
    if (sliced->op->slice_bytes == 0) {
      fate.kind = OpFate::Kind::kComplete;
      fate.outcome = sliced->op->outcome;
      return fate;
    }
    return by_slices(std::move(fate), witnesses, *sliced->op);
  }

  // Rule D9: the first member that cannot get a slice of it to another one in sound condition.
  const Failure* condemned_by_member(const OpKey& key) const {
    for (const Member& member : next_.members) {
      const auto report = reports_.find(member.node);
      if (report == reports_.end()) continue;
      const auto it = report->second.condemned.find(key);
      if (it == report->second.condemned.end() || !next_.index_of(it->second.receiver)) continue;
      return &it->second.failure;
    }
    return nullptr;
  }

  // No slice of it is final anywhere.
  OpFate untouched(OpFate fate, const std::vector<OpWitness>& witnesses) const {
    return begun_again(std::move(fate), witnesses);
  }

  // Slices of it are to be computed in the next view.
  OpFate begun_again(OpFate fate, const std::vector<OpWitness>& witnesses) const {
    const auto signature = signature_of(witnesses);
    const bool all_ranks = signature && needs_all_ranks(signature->collective);
    if (next_.closed || all_ranks) fate.spared = nothing_lost(witnesses);
    if (next_.closed && !fate.spared) return failed(std::move(fate));
    if (all_ranks && !fate.spared && next_.size != signature->ranks) {
      return without(lost_rank(*signature), std::move(fate));
    }
    if (root_lost(fate, witnesses)) return without(signature->root, std::move(fate));
    return fate;
  }

  tl::expected<OpFate, std::string> by_slices(OpFate fate, std::vector<OpWitness>& witnesses,
                                              const OpReport& model) const {
    fate.kind = OpFate::Kind::kRecover;
    fate.slice_bytes = model.slice_bytes;
    const uint32_t slices = slices_of(model);
    for (OpWitness& w : witnesses) {
      // Cut otherwise, and untouched: its cuts mean nothing.
      if (w.op != nullptr && !touched(*w.op) &&
          (w.op->slice_bytes != model.slice_bytes || slices_of(*w.op) != slices)) {
        w.op = nullptr;
      }
      if (w.op != nullptr && slices_of(*w.op) != slices) {
        return tl::unexpected(describe(fate.key) + " is cut into " + std::to_string(slices) +
                              " slices on one node and into " + std::to_string(slices_of(*w.op)) +
                              " on another");
      }
    }
    bool computes = false;
    for (uint32_t done = 0; done < slices;) {
      uint32_t count = slices - done;
      for (const OpWitness& w : witnesses) {
        if (!w.endless()) count = std::min(count, w.left());
      }
      auto slice = fate_of(fate.key, done, witnesses);
      if (!slice) return tl::unexpected(slice.error());
      slice->count = count;
      computes = computes || slice->route == Route::kCompute;
      append(&fate.slices, *slice);
      for (OpWitness& w : witnesses) w.advance(count);
      done += count;
    }
    if (!computes) {
      fate.spared = true;
      return fate;
    }
    return begun_again(std::move(fate), witnesses);
  }

  tl::expected<SliceFate, std::string> fate_of(const OpKey& key, uint32_t slice,
                                               const std::vector<OpWitness>& witnesses) const {
    const auto signature = signature_of(witnesses);
    const bool to_one = signature && goes_to_one(signature->collective);
    SliceFate fate;
    bool all = true;
    bool dropped = false;
    const OpWitness* holder = nullptr;
    for (const OpWitness& w : witnesses) {
      const SliceState state = w.state();
      all = all && state != SliceState::kUntouched;
      dropped = dropped || state == SliceState::kDropped;
      if (state == SliceState::kUntouched || w.endless()) continue;
      if (fate.value.ranks != 0 && fate.value != w.value()) {
        return tl::unexpected("slice " + std::to_string(slice) + " of " + describe(key) +
                              " has two final values");
      }
      fate.value = w.value();
      if (state == SliceState::kHeld && holder == nullptr) holder = &w;
    }
    if (planted(Bug::kHeldIgnored) && !all) return SliceFate{};
    if (all || (to_one && (dropped || holder != nullptr))) {
      fate.route = Route::kNone;
    } else if (holder != nullptr) {
      fate.route = Route::kHand;
      fate.holder = holder->member;
    } else if (dropped) {
      return tl::unexpected("slice " + std::to_string(slice) + " of " + describe(key) +
                            " was dropped although a member lacks it");
    }
    return fate;
  }

  static void append(std::vector<SliceFate>* list, const SliceFate& next) {
    if (!list->empty()) {
      SliceFate& last = list->back();
      if (last.route == next.route && last.holder == next.holder && last.value == next.value) {
        last.count += next.count;
        return;
      }
    }
    list->push_back(next);
  }

  // Everything that its sum needs is still there: all nodes, each with all of its contributions.
  bool nothing_lost(const std::vector<OpWitness>& witnesses) const {
    return next_.members.size() == old_.members.size() &&
           std::all_of(witnesses.begin(), witnesses.end(), [](const OpWitness& w) {
             return w.op != nullptr && w.op->contributions > 0;
           });
  }

  static std::optional<Signature> signature_of(const std::vector<OpWitness>& witnesses) {
    for (const OpWitness& w : witnesses) {
      if (w.op != nullptr && w.op->signature) return w.op->signature;
    }
    return std::nullopt;
  }

  bool root_lost(const OpFate& fate, const std::vector<OpWitness>& witnesses) const {
    const auto signature = signature_of(witnesses);
    return signature && signature->collective == Collective::kBroadcast && fate.root_node.empty() &&
           !next_.has(signature->root);
  }

  // The first one that the next view is without; the root, if it is none of these.
  uint32_t lost_rank(const Signature& signature) const {
    return first_lost_.value_or(signature.root);
  }

  OpFate without(uint32_t rank, OpFate fate) const {
    fate.kind = OpFate::Kind::kFail;
    fate.slices.clear();
    fate.failure = {Cause::kRootLost, {}};
    fate.failure.blame.rank = rank;
    if (old_.has(rank)) {
      fate.failure.blame.node = old_.members[old_.host_of(rank)].node;
      fate.failure.blame.pid = old_.info_of(rank).pid;
    }
    fate.failure.blame.evidence = "nobody has its input any more";
    return fate;
  }

  OpFate failed(OpFate fate) const {
    fate.kind = OpFate::Kind::kFail;
    fate.slices.clear();
    fate.failure = *next_.closed;
    return fate;
  }

  const View& old_;
  const View& next_;
  const Reports& reports_;
  std::optional<uint32_t> first_lost_;
  std::map<OpKey, std::unordered_map<const Report*, const OpReport*>> ops_;  // by who reported it
};

}  // namespace

tl::expected<std::vector<OpFate>, std::string> fates_of(const View& old, const View& next,
                                                        const Reports& reports) {
  return Decider(old, next, reports).all();
}

}  // namespace gradring::core
