#include "tests/sim/trainer.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/arithmetic.h"
#include "tests/sim/world.h"

namespace gradring::sim {

Trainer::Trainer(World* world, uint32_t job, uint32_t rank)
    : world_(world),
      spec_(world->scenario().jobs[job]),
      job_(job),
      rank_(rank),
      node_(spec_.node_of_rank[rank]) {
  uint64_t bytes = 0;
  for (const OpSpec& op : spec_.ops) {
    const uint64_t size =
        (op.signature.bytes() + 64 + 63) / 64 * 64;  // room for a mismatched count
    Buffers buffers{bytes, bytes};
    bytes += size;
    if (world->random().below(4) == 0) {
      buffers.output = bytes;
      bytes += size;
    }
    buffers_.push_back(buffers);
  }
  memory_.resize(bytes);
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

void Trainer::start() {
  SimNode& node = world_->node(node_);
  if (state_ == State::kDead || !node.alive()) {
    state_ = State::kDead;
    return;
  }
  ++life_;
  session_ = world_->new_session(this);
  step_ = 0;
  failed_ = false;
  state_ = State::kJoining;
  core::JoinRequest request;
  request.session = session_;
  request.job = spec_.name;
  request.rank = rank_;
  request.size = static_cast<uint32_t>(spec_.node_of_rank.size());
  request.local_rank = 0;
  request.policy = "fail";
  request.pid = static_cast<int64_t>(session_);
  const Status refused = node.membership().join(request, world_->events().now());
  if (!refused.ok()) on_refuse(refused);
}

void Trainer::kill() {
  if (over()) return;
  state_ = State::kDead;
  const core::SessionId session = session_;
  if (session == 0) return;
  world_->after(50 * core::kMillisecond, [this, session] {
    SimNode& node = world_->node(node_);
    if (node.alive()) node.membership().session_lost(session, "killed by signal 9");
  });
}

void Trainer::on_admit(const core::View& view) {
  if (state_ != State::kJoining) return;
  view_ = view;
  state_ = State::kTraining;
  world_->after(5 * core::kMillisecond, [this] { begin_step(); });
}

void Trainer::on_refuse(const Status& why) {
  if (state_ != State::kJoining) return;
  state_ = State::kRefused;
  world_->job_refused(*this, why);
}

void Trainer::on_close(const Failure& failure) {
  if (state_ != State::kTraining) return;
  world_->job_failed(*this, failure);
  failed_ = true;
  if (open_.empty() && unsubmitted_ == 0) leave();
}

Signature Trainer::signature_of(uint32_t op) const {
  Signature signature = spec_.ops[op].signature;
  if (life_ == 1 && op == 0 && spec_.mismatch_rank == rank_ && spec_.mismatch_step == step_) {
    ++signature.count;
  }
  return signature;
}

OpKey Trainer::key_of(uint32_t op, uint32_t step) const {
  if (spec_.ops[op].named) return {1000 + op, step};
  uint64_t before = 0;
  uint64_t unnamed = 0;
  for (uint32_t i = 0; i < spec_.ops.size(); ++i) {
    if (spec_.ops[i].named) continue;
    ++unnamed;
    if (i < op) ++before;
  }
  return {0, step * unnamed + before};
}

void Trainer::begin_step() {
  if (state_ != State::kTraining) return;
  const bool leaves = life_ == 1 && spec_.early_leaver == rank_ && step_ >= spec_.steps / 2;
  if (failed_ || leaves || step_ == spec_.steps) return leave();
  std::vector<uint32_t> order;
  for (uint32_t op = 0; op < spec_.ops.size(); ++op) order.push_back(op);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[world_->random().below(i)]);
  unsubmitted_ = static_cast<uint32_t>(order.size());
  Time when = 0;
  for (const uint32_t op : order) {
    const Signature signature = signature_of(op);
    fill(signature.dtype, world_->seed_of(view_.incarnation, op, step_), rank_, signature.count,
         memory_.data() + buffers_[op].input);
    if (buffers_[op].output != buffers_[op].input) {
      std::memset(memory_.data() + buffers_[op].output, 0, signature.bytes());
    }
    when += static_cast<Time>(world_->random().below(2 * core::kMillisecond));
    const uint32_t life = life_;
    world_->events().in(when, [this, op, life] {
      if (life == life_) submit(op);
    });
  }
}

void Trainer::submit(uint32_t op) {
  if (state_ != State::kTraining) return;
  --unsubmitted_;
  const uint64_t ticket = ++next_ticket_;
  open_[ticket] = {op, step_};
  core::Submission submission;
  submission.rank = rank_;
  submission.ticket = ticket;
  submission.key = key_of(op, step_);
  submission.name = spec_.ops[op].named ? "op" + std::to_string(op) : "";
  submission.signature = signature_of(op);
  if (submission.signature != spec_.ops[op].signature) {
    world_->note_mismatched(view_.incarnation, submission.key);
  }
  submission.input = {session_, buffers_[op].input};
  submission.output = {session_, buffers_[op].output};
  world_->node(node_).submit(view_.incarnation, submission);
}

void Trainer::on_complete(uint64_t ticket, const core::Outcome& outcome) {
  if (over()) return;
  const auto it = open_.find(ticket);
  if (it == open_.end())
    return world_->violation(name() + ": a submission ended twice or was never made");
  const Open open = it->second;
  open_.erase(it);
  ++world_->stats().completions;
  if (outcome.verdict == Verdict::kOk) {
    check_good(open);
  } else {
    check_failed(open);
    if (outcome.failure.cause == Cause::kMismatch) {
      if (!world_->was_mismatched(view_.incarnation, key_of(open.op, open.step))) {
        world_->violation(name() + ": mismatch that nobody made");
      }
      ++world_->stats().mismatches;
    } else {
      world_->job_failed(*this, outcome.failure);
      failed_ = true;
    }
  }
  if (open_.empty() && unsubmitted_ == 0) finish_step();
}

void Trainer::finish_step() {
  if (failed_) return leave();
  ++step_;
  world_->after(3 * core::kMillisecond, [this] { begin_step(); });
}

void Trainer::leave() {
  if (state_ != State::kTraining) return;
  state_ = State::kLeft;
  world_->node(node_).membership().leave(session_);
  const bool done = !failed_ && step_ == spec_.steps;
  if (done) ++world_->stats().trainers_done;
  if (failed_ && spec_.restart && life_ == 1) {
    restarting_ = true;
    world_->after(20 * core::kMillisecond, [this] {
      restarting_ = false;
      if (state_ != State::kDead) start();
    });
  }
}

void Trainer::check_good(const Open& open) {
  if (world_->was_mismatched(view_.incarnation, key_of(open.op, open.step))) {
    return world_->violation(name() + ": an op with two signatures ended well");
  }
  const Signature& signature = spec_.ops[open.op].signature;
  if (signature.bytes() == 0) return;
  const std::vector<std::byte>& expected =
      world_->expected(view_, key_of(open.op, open.step), signature,
                       world_->seed_of(view_.incarnation, open.op, open.step));
  if (std::memcmp(memory_.data() + buffers_[open.op].output, expected.data(), expected.size()) !=
      0) {
    world_->violation(name() + ": wrong bits in " + describe(key_of(open.op, open.step)));
  }
}

// After a failure every slice of a buffer that was input is either untouched or final.
void Trainer::check_failed(const Open& open) {
  const Signature signature = spec_.ops[open.op].signature;
  if (signature.collective != Collective::kAllreduce || signature.count == 0) return;
  if (spec_.mismatch_rank == rank_ && open.op == 0) return;
  std::vector<std::byte> original(signature.bytes());
  const uint64_t seed = world_->seed_of(view_.incarnation, open.op, open.step);
  fill(signature.dtype, seed, rank_, signature.count, original.data());
  const std::byte* now = memory_.data() + buffers_[open.op].input;
  if (buffers_[open.op].input != buffers_[open.op].output) {
    if (std::memcmp(now, original.data(), original.size()) != 0) {
      world_->violation(name() + ": an out-of-place input was written");
    }
    return;
  }
  const std::vector<std::byte>& expected =
      world_->expected(view_, key_of(open.op, open.step), signature, seed);
  const auto members = static_cast<uint32_t>(view_.members.size());
  const uint64_t slice = core::slice_bytes_for(signature, members, world_->scenario().engine.plan);
  for (uint64_t at = 0; at < original.size(); at += slice) {
    const size_t length = std::min<uint64_t>(slice, original.size() - at);
    if (std::memcmp(now + at, original.data() + at, length) != 0 &&
        std::memcmp(now + at, expected.data() + at, length) != 0) {
      world_->violation(name() + ": a slice of a failed op is neither untouched nor final");
    }
  }
}

}  // namespace gradring::sim
