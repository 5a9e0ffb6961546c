#include "tests/sim/trainer.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/arithmetic.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// The job goes on.
bool ends_alone(Cause cause) {
  return cause == Cause::kMismatch || cause == Cause::kRootLost || cause == Cause::kRefused ||
         cause == Cause::kCorrupted;
}

}  // namespace

Trainer::Trainer(World* world, uint32_t job, uint32_t rank)
    : world_(world),
      spec_(world->scenario().jobs[job]),
      rank_(rank),
      node_(spec_.node_of_rank[rank]) {
  for (const OpSpec& op : spec_.ops) {
    Signature largest = op.signature;
    ++largest.count;  // room for a mismatched one
    largest.ranks = static_cast<uint32_t>(spec_.node_of_rank.size());
    const Extent extent = extent_of(largest, largest.root, 0);
    const uint64_t size = (std::max(extent.input, extent.output) + 63) / 64 * 64 + 64;
    Buffers buffers;
    buffers.first = memory_bytes_;
    memory_bytes_ += size;
    if (world->random().below(4) == 0 || op.signature.collective == Collective::kAlltoall) {
      buffers.second = memory_bytes_;
      memory_bytes_ += size;
    }
    buffers_.push_back(buffers);
  }
  join_value_ = memory_bytes_;
  memory_bytes_ += 64;
}

std::string Trainer::name() const {
  return spec_.name + " rank " + std::to_string(rank_) + " life " + std::to_string(life_);
}

std::string Trainer::doing() const {
  static constexpr const char* kNames[] = {"waiting to start", "joining", "training", "left",
                                           "refused",          "dead"};
  return std::string(kNames[static_cast<size_t>(state_)]) + ", step " + std::to_string(step_) +
         ", " + std::to_string(open_.size()) + " ops open";
}

std::optional<uint64_t> Trainer::output_of(uint64_t ticket, const OpKey& key) const {
  const auto [op, step] = tickets_.at(ticket);
  if (!is_data(op) || open_.count(ticket) == 0 || key_of(op, step) != key) return std::nullopt;
  return buffers_[op].output;
}

void Trainer::on_admit(const core::View& view) {
  if (state_ != State::kJoining) return;
  view_ = view;
  grown_ = view.grown;
  // As a real one takes the state of the model from whoever is there longest.
  step_ = first_step_ = view.epoch == 1 ? 0 : world_->step_of(view);
  state_ = State::kTraining;
  world_->stats().in_groups += within_ ? 1 : 0;
  if (life_ > 1 && spec_.visitors.count(rank_) > 0 && world_->random().below(3) > 0) {
    return world_->after(core::kMillisecond, [this, life = life_] {
      if (life == life_) visit();
    });
  }
  if (grown_ == 1) make_groups();  // else at the join point, with all others
  world_->after(5 * core::kMillisecond, [this, life = life_] {
    if (life == life_) begin_step();
  });
}

void Trainer::on_refuse(const Status& why) {
  if (state_ != State::kJoining) return;
  state_ = State::kRefused;
  world_->job_refused(*this, why);
  end_group();
}

void Trainer::on_view(const core::View& view) { view_ = view; }

void Trainer::on_close(const Failure& failure) {
  if (state_ != State::kTraining) return;
  world_->job_failed(*this, failure);
  failed_ = true;
  if (open_.empty() && unsubmitted_ == 0) leave();
}

Signature Trainer::signature_of(uint32_t op) const {
  if (op == kJoinPoint) return {Collective::kJoinPoint, Dtype::kUint8, ReduceOp::kNone, 0, 0};
  if (op == kNoMore) return {Collective::kJoin, Dtype::kInt32, ReduceOp::kMax, 0, 1};
  Signature signature = spec_.ops[op].signature;
  if (needs_all_ranks(signature.collective)) signature.ranks = view_.size;
  if (spec_.ops[op].uneven) signature.blocks = draw_blocks(spec_.ops[op], view_.size);
  const bool odd_step =
      spec_.mismatch_step == step_ || (spec_.mismatch_lasts && spec_.mismatch_step < step_);
  if (life_ == 1 && op == 0 && spec_.mismatch_rank == rank_ && odd_step) {
    ++signature.count;
  }
  return signature;
}

OpKey Trainer::key_of(uint32_t op, uint32_t step) const {
  if (op == kJoinPoint) return {};
  if (op == kNoMore) return {OpKey::kNoMoreSpace, joins_};
  const uint64_t since = step - first_step_;
  if (spec_.ops[op].named) return {1000 + op, since};
  uint64_t before = 0;
  uint64_t unnamed = 0;
  for (uint32_t i = 0; i < spec_.ops.size(); ++i) {
    if (spec_.ops[i].named) continue;
    ++unnamed;
    if (i < op) ++before;
  }
  return {0, since * unnamed + before};
}

uint32_t Trainer::own_steps() const {
  return spec_.own_steps.empty() ? spec_.steps : spec_.own_steps[rank_];
}

void Trainer::begin_step() {
  if (state_ != State::kTraining) return;
  const bool leaves =
      life_ == 1 && spec_.early_leavers.contains(rank_) && step_ >= spec_.leave_after;
  if (!failed_ && !leaves && !spec_.own_steps.empty() && step_ >= own_steps()) {
    joined_ = true;
    unsubmitted_ = 1;
    return submit(kNoMore);
  }
  // Who comes in where all others end finds nothing to do.
  const bool last = spec_.joins_last && first_step_ < spec_.steps && step_ == spec_.steps;
  if (failed_ || leaves || (step_ >= spec_.steps && !last)) return leave();
  world_->note_step(view_.incarnation, step_);
  if (!spec_.join_points) return submit_all();
  if (in_groups()) {
    return world_->after(5 * core::kMillisecond, [this, life = life_] {
      if (life == life_) begin_step();
    });
  }
  if (turns_back_at(kJoinPoint)) return go_back();
  unsubmitted_ = 1;
  submit(kJoinPoint);
}

void Trainer::submit_all() {
  std::vector<uint32_t> order;
  done_.clear();
  for (uint32_t op = 0; op < spec_.ops.size(); ++op) order.push_back(op);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[world_->random().below(i)]);
  unsubmitted_ = static_cast<uint32_t>(order.size());
  for (const uint32_t op : order) prepare(op);
  for (const uint32_t op : order) {
    if (!spec_.ops[op].after) submit_later(op);
  }
}

// As a real one it makes its buffers for the ranks that it knows of, which may be out of date when
// it submits.
void Trainer::prepare(uint32_t op) {
  Buffers& b = buffers_[op];
  b.signature = signature_of(op);
  b.ranks.clear();
  for (const core::Member& member : view_.members) {
    for (const core::RankInfo& info : member.ranks) b.ranks.push_back(info.rank);
  }
  std::sort(b.ranks.begin(), b.ranks.end());
  const Signature& s = b.signature;
  const uint32_t position = position_in(b);
  const Extent extent = extent_of(s, rank_, position);
  const bool pairs = s.collective == Collective::kAlltoall;
  uint64_t own = in_blocks(s.collective) ? position * s.bytes() : 0;
  if (s.blocks.uneven() && !pairs) own = s.blocks.before(position) * size_of(s.dtype);
  b.input = b.first;
  b.output = b.second;
  if (b.second == 0) {
    b.input += extent.input < extent.output ? own : 0;
    b.output = b.first + (extent.output < extent.input ? own : 0);
  }
  std::memset(memory_->data() + b.output, 0, extent.output);
  fill(s.dtype, world_->seed_of(view_.incarnation, op, step_), rank_,
       extent.input / size_of(s.dtype), memory_->data() + b.input);
}

uint32_t Trainer::position_in(const Buffers& b) const {
  return static_cast<uint32_t>(std::lower_bound(b.ranks.begin(), b.ranks.end(), rank_) -
                               b.ranks.begin());
}

void Trainer::submit_later(uint32_t op) {
  auto when = static_cast<Time>(world_->random().below(8 * core::kMillisecond));
  for (const Dawdle& dawdle : spec_.dawdles) {
    const bool now = dawdle.rank == rank_ && dawdle.step == step_ && dawdle.op == op;
    if (now && life_ == 1) when += dawdle.lasts;
  }
  const bool back = turns_back_at(op);
  world_->events().in(when, [this, op, back, life = life_, step = step_] {
    if (life != life_ || step != step_ || going_back_) return;
    if (back) return go_back();
    submit(op);
  });
}

void Trainer::submit(uint32_t op) {
  if (state_ != State::kTraining) return;
  --unsubmitted_;
  const uint64_t ticket = tickets_.size() + 1;
  tickets_[ticket] = {op, number_of(op)};
  open_.insert(ticket);
  core::Submission submission;
  submission.rank = rank_;
  submission.ticket = ticket;
  submission.key = key_of(op, step_);
  submission.signature = is_data(op) ? buffers_[op].signature : signature_of(op);
  if (op == kNoMore) {
    submission.input = submission.output = {session_, join_value_};
    fill(submission.signature.dtype, world_->seed_of(view_.incarnation, op, number_of(op)), rank_,
         1, memory_->data() + join_value_);
    ++joins_;
  }
  if (op == kJoinPoint) ++points_;
  if (is_data(op)) {
    submission.name = spec_.ops[op].named ? "op" + std::to_string(op) : "";
    submission.position = position_in(buffers_[op]);
    if (spec_.ops[op].prescaled) submission.prescale = prescale_of(rank_);
    const int32_t priority = spec_.ops[op].priority;
    if (priority != 0) submission.priority = priority + static_cast<int32_t>(rank_ % 3);
    if (submission.signature.count != spec_.ops[op].signature.count) {
      world_->note_mismatched({view_.incarnation, op, step_}, rank_);
    }
    submission.input = {session_, buffers_[op].input};
    submission.output = {session_, buffers_[op].output};
    const bool comes = spec_.ops[op].comes && !world_->scenario().keeps_records();
    if (comes) hold_back(&submission);
  }
  send(submission);
}

void Trainer::send(const core::Submission& submission) {
  const uint64_t ticket = submission.ticket;
  submissions_[ticket] = submission;
  if (!attached_) return;
  if (forgotten_) {
    return world_->after(core::kMillisecond, [this, ticket, life = life_] {
      if (life == life_ && waits_for(ticket)) on_complete(ticket, *forgotten_);
    });
  }
  hand_in(submission);
}

std::optional<Time> Trainer::waits_since() const {
  std::optional<Time> since;
  if (state_ != State::kTraining || joined_) return since;
  for (const auto& [ticket, submission] : submissions_) {
    if (!is_data(what(ticket).first)) continue;
    const auto at = world_->submitted({view_.incarnation, grown_, submission.key}, rank_);
    if (at && (!since || *at < *since)) since = at;
  }
  return since;
}

void Trainer::hand_in(const core::Submission& submission) {
  if (submission.key.space < OpKey::kNoMoreSpace && is_data(what(submission.ticket).first)) {
    world_->note_submitted({view_.incarnation, grown_, submission.key}, rank_);
  }
  world_->node(node_).submit(view_.incarnation, this, submission);
}

void Trainer::on_complete(uint64_t ticket, const core::Outcome& outcome) {
  if (state_ != State::kTraining) return;
  const auto [op, step] = tickets_.at(ticket);
  submissions_.erase(ticket);
  if (open_.erase(ticket) == 0)
    return world_->violation(name() + ": a submission ended twice or was never made");
  ++world_->stats().completions;
  if (op == kAnswer) return check_met();
  const OpId id{view_.incarnation, op, step};
  std::vector<std::byte> result;
  const bool good = outcome.verdict != Verdict::kFailed;
  const bool alone = ends_alone(outcome.failure.cause);
  // What goes to one rank alone is not compared with what others got.
  if (good && is_data(op) && !goes_to_one(buffers_[op].signature.collective)) {
    const std::byte* from = memory_->data() + buffers_[op].output;
    const uint32_t position = position_in(buffers_[op]);
    result.assign(from, from + extent_of(buffers_[op].signature, rank_, position).output);
  }
  if (refused_.count({op, step}) == 0) {
    world_->oracle().note_end(id, rank_, static_cast<int64_t>(session_), outcome,
                              std::move(result));
  }
  if (outcome.failure.cause == Cause::kRefused) refused_.insert({op, step});
  if (outcome.verdict == Verdict::kOkShrunk) ++world_->stats().shrunk;
  if (good) {
    if (op == kJoinPoint) {
      if (going_back_ || view_.grown != grown_) {
        step_ = world_->step_after(view_, grown_, points_);
        world_->note_step(view_.incarnation, step_);
      }
      going_back_ = false;
      if (view_.grown != grown_) {
        grown_ = view_.grown;
        first_step_ = step_;
        joins_ = 0;
        points_ = 1;
        ++world_->stats().grown;
      }
      if (grouped_ != grown_) make_groups();
      if (step_ >= spec_.steps) return leave();
      return submit_all();
    }
    if (op == kNoMore) return going_back_ ? end_going_back(op, good) : end_op(op);
    world_->check_written(*this, id, buffers_[op].signature, buffers_[op].ranks,
                          memory_->data() + buffers_[op].output);
  } else if (alone && !is_data(op)) {
    return end_going_back(op, good);
  } else if (outcome.failure.cause == Cause::kMismatch) {
    world_->op_mismatched(*this, id, buffers_[op].signature);
    ++world_->stats().mismatches;
  } else if (outcome.failure.cause == Cause::kCorrupted) {
    world_->op_corrupted(*this, outcome.failure);
  } else if (alone) {
    world_->op_failed(*this, buffers_[op].signature, outcome.failure);
  } else {
    world_->job_failed(*this, outcome.failure);
    failed_ = true;
  }
  const bool turns_back = !good && !failed_ && !spec_.goes_back.empty();
  if (going_back_ || turns_back) return end_going_back(op, good);
  end_op(op);
}

void Trainer::end_op(uint32_t op) {
  done_.insert(op);
  if (joined_) {
    const bool ends = failed_ || done_.count(kNoMore) > 0;
    if (!ends || !open_.empty()) return;
    return leave();
  }
  if (op != kJoinPoint) {
    for (uint32_t next = 0; next < spec_.ops.size(); ++next) {
      if (spec_.ops[next].after == op) submit_later(next);
    }
  }
  if (open_.empty() && unsubmitted_ == 0) finish_step();
}

void Trainer::finish_step() {
  if (failed_) return leave();
  ++step_;
  world_->after(3 * core::kMillisecond, [this, life = life_] {
    if (life == life_) begin_step();
  });
}

void Trainer::leave() {
  if (state_ != State::kTraining) return;
  state_ = State::kLeft;
  for (Trainer* group : groups_) group->give_up();
  SimNode* node = &world_->node(node_);
  node->run([node, session = session_] { node->membership().leave(session); });
  if (!failed_ && step_ >= own_steps()) ++world_->stats().trainers_done;
  if (failed_) come_back();
  end_group();
}

}  // namespace gradring::sim
