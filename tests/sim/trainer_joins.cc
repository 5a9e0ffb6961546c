// Ranks that wait for all others: without more data they stand in for themselves in the ops of
// those, and where they go back to an earlier step they end them.

#include <algorithm>

#include "proto/gone_back.h"
#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {

// The op and the step that the others mean.
std::pair<uint32_t, uint32_t> Trainer::op_of(const OpKey& key) const {
  if (key.space != 0) return {static_cast<uint32_t>(key.space - 1000), first_step_ + key.sequence};
  std::vector<uint32_t> unnamed;
  for (uint32_t op = 0; op < spec_.ops.size(); ++op) {
    if (!spec_.ops[op].named) unnamed.push_back(op);
  }
  return {unnamed[key.sequence % unnamed.size()], first_step_ + key.sequence / unnamed.size()};
}

void Trainer::stand_in(const OpKey& key) {
  if (state_ != State::kTraining || !joined_) return;
  if (going_back_) return answer(key);
  if (stood_in_.count(key) > 0) return;
  const auto [op, step] = op_of(key);
  const auto same = [this, op = op](uint64_t ticket) { return tickets_.at(ticket).first == op; };
  if (std::any_of(open_.begin(), open_.end(), same)) {  // that of the step before has its memory
    return world_->after(core::kMillisecond, [this, key, life = life_] {
      if (life == life_) stand_in(key);
    });
  }
  stood_in_.insert(key);
  ++world_->stats().stood_in;
  step_ = step;
  prepare(op);
  ++unsubmitted_;
  submit(op);
}

// Of a join point or a join, as all who were there count them.
uint32_t Trainer::number_of(uint32_t op) const {
  const auto since = static_cast<uint32_t>(grown_) * 1000;
  if (op == kNoMore) return since + joins_;
  return op == kJoinPoint && !spec_.goes_back.empty() ? since + points_ : step_;
}

// Who comes into a running job has to come to a join point first.
bool Trainer::turns_back_at(uint32_t op) const {
  const bool newcomer = grown_ > 1 && points_ == 0;
  return life_ == 1 && !newcomer && std::ranges::any_of(spec_.goes_back, [&](const GoBack& back) {
           return back.rank == rank_ && back.step == step_ && back.op == op;
         });
}

// As gradring.elastic.run does it: whoever sees an op fail does so too, and then all meet at a join
// point. What else it would have submitted of this step it does not.
void Trainer::go_back() {
  if (state_ != State::kTraining) return;
  unsubmitted_ = 0;
  if (failed_) return check_met();
  ++world_->stats().gone_back;
  going_back_ = true;
  meet();
}

void Trainer::meet() {
  if (state_ != State::kTraining || failed_) return;
  joined_ = true;
  all_joined_ = false;
  unsubmitted_ = 1;
  submit(kNoMore);
}

// An op that it never submits fails by this for all.
void Trainer::answer(const OpKey& key) {
  const bool point = key.space == OpKey::kJoinSpace;
  const bool on_its_way = std::ranges::any_of(submissions_, [&](const auto& entry) {
    const bool numbered = what(entry.first).first != kJoinPoint;
    return numbered && entry.second.key == key;
  });
  if (on_its_way) return;
  if (!point) {
    const auto [op, step] = op_of(key);
    world_->note_mismatched({view_.incarnation, op, step}, rank_);
  }
  core::Submission submission;
  submission.rank = rank_;
  submission.ticket = tickets_.size() + 1;
  submission.key = key;
  submission.signature = gone_back();
  if (point) submission.signature = {Collective::kJoinPoint, Dtype::kUint8, ReduceOp::kNone, 0, 0};
  points_ += point ? 1 : 0;
  tickets_[submission.ticket] = {kAnswer, step_};
  open_.insert(submission.ticket);
  send(submission);
}

// One of its own has ended: the op that it goes back for, or one that it had submitted before.
void Trainer::end_going_back(uint32_t op, bool good) {
  if (failed_) return check_met();
  if (!spec_.join_points) {  // there is nowhere to go back to
    return world_->after(10 * core::kMillisecond, [this, life = life_] {
      if (life == life_) begin_step();
    });
  }
  if (!going_back_) return go_back();
  if (op == kNoMore) {
    joined_ = false;
    all_joined_ = good;
  }
  if (!good && !is_data(op)) {
    return world_->after(10 * core::kMillisecond, [this, life = life_] {
      if (life == life_ && going_back_) meet();
    });
  }
  check_met();
}

void Trainer::check_met() {
  if (failed_) {
    if (open_.empty()) leave();
    return;
  }
  if (!all_joined_ || !open_.empty()) return;
  all_joined_ = false;
  unsubmitted_ = 1;
  submit(kJoinPoint);
}

}  // namespace gradring::sim
