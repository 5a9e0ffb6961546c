// How a trainer comes into its job, dies, and finds the daemon again that has its records.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {

void Trainer::start() {
  SimNode& node = world_->node(node_);
  if (state_ == State::kWaiting && !node.alive() && node.comes_back()) {
    return world_->after(100 * core::kMillisecond, [this] { start(); });
  }
  if (state_ == State::kDead || !node.alive()) {
    state_ = State::kDead;
    return;
  }
  ++life_;
  attached_ = true;
  for (Trainer* group : groups_) group->attached_ = true;  // what it owed was that process's
  forgotten_.reset();
  session_ = world_->new_session(this);
  memory_ = std::make_shared<std::vector<std::byte>>(memory_bytes_);
  step_ = first_step_ = 0;
  grown_ = 1;
  grouped_ = 0;
  failed_ = joined_ = going_back_ = all_joined_ = false;
  joins_ = points_ = 0;
  stood_in_.clear();
  refused_.clear();
  open_.clear();
  submissions_.clear();
  unsubmitted_ = 0;
  state_ = State::kJoining;
  join();
}

void Trainer::join() {
  SimNode& node = world_->node(node_);
  core::JoinRequest request;
  request.session = session_;
  request.job = spec_.name;
  request.rank = rank_;
  request.size = static_cast<uint32_t>(spec_.node_of_rank.size());
  request.local_rank = 0;
  request.policy = spec_.policy;
  request.pid = static_cast<int64_t>(session_);
  if (within_) {
    for (const uint8_t byte : within_->job) request.token += std::to_string(byte) + ".";
    request.token += std::to_string(within_->grown);
    request.timeout = spec_.within->timeout;
    request.within = within_;
  }
  node.run([this, &node, request] {
    if (state_ != State::kJoining || session_ != request.session) return;
    const Status refused = node.membership().join(request, world_->events().now());
    if (!refused.ok()) on_refuse(refused);
  });
}

void Trainer::kill() {
  for (Trainer* group : groups_) group->kill();
  if (over()) return;
  state_ = State::kDead;
  restarting_ = false;
  const core::SessionId session = session_;
  if (session == 0) return;
  world_->after(50 * core::kMillisecond, [this, session] {
    SimNode* node = &world_->node(node_);
    node->run([node, session] {
      if (session != 0) node->membership().session_lost(session, "killed by signal 9");
    });
    if (session_ == session && node->alive()) come_back();
  });
}

void Trainer::reborn() {
  if (state_ != State::kDead || life_ >= spec_.lives) return;
  state_ = State::kWaiting;
  start();
}

void Trainer::reattach() {
  attached_ = true;
  SimNode& node = world_->node(node_);
  const core::View* known = node.membership().view_of(session_);
  switch (state_) {
    case State::kWaiting:
    case State::kRefused:
      return;
    case State::kJoining:
      if (known == nullptr) return join();
      on_admit(core::View(*known));
      return;
    case State::kLeft:
      return node.run([&node, session = session_] { node.membership().leave(session); });
    case State::kDead:
      return node.run([&node, session = session_] {
        node.membership().session_lost(session, "ended while its daemon restarted");
      });
    case State::kTraining:
      break;
  }
  const std::map<uint64_t, core::Submission> open = submissions_;
  if (known == nullptr) {  // the job had failed there, or that would be told as an error
    core::Outcome outcome;
    outcome.verdict = Verdict::kFailed;
    outcome.failure = {Cause::kPeerLost, {}};
    if (!world_->has_left(view_.incarnation, node_)) {
      return world_->violation(name() + ": its job is forgotten after a restart");
    }
    forgotten_ = outcome;
    if (!failed_) on_close(outcome.failure);
    for (const auto& [ticket, submission] : open) on_complete(ticket, outcome);
    return;
  }
  view_ = *known;
  if (view_.closed && !failed_) on_close(Failure(*view_.closed));
  for (const auto& [ticket, submission] : open) {
    hand_in(submission);
  }
}

// It finds that there is nothing for it to do, and its launcher starts it once more.
void Trainer::visit() {
  if (state_ != State::kTraining || !open_.empty() || unsubmitted_ != 0) return;
  leave();
  if (!restarting_) come_back();
}

void Trainer::take_part_in(Trainer* group) {
  groups_.push_back(group);
  group->outer_ = this;
  group->state_ = State::kLeft;
}

// As soon as it has come in, and anew where the job has grown.
void Trainer::make_groups() {
  grouped_ = grown_;
  for (Trainer* group : groups_) {
    group->made_ = 0;
    world_->after(group->spec_.within->begins, [this, group, life = life_, grown = grown_] {
      if (life == life_ && grown == grown_) make(group);
    });
  }
}

void Trainer::make(Trainer* group) {
  if (state_ != State::kTraining || failed_ || view_.grown != grown_) return;
  if (group->made_ >= group->spec_.within->times) return;
  // That of an earlier life, or no daemon to ask, or one that has not heard how the last ended.
  if (!group->over() || !group->attached_ || !world_->node(node_).alive()) {
    return world_->after(5 * core::kMillisecond, [this, group, life = life_, grown = grown_] {
      if (life == life_ && grown == grown_) make(group);
    });
  }
  const std::vector<uint32_t>& ranks = group->spec_.within->ranks;
  if (!std::ranges::all_of(ranks, [this](uint32_t rank) { return view_.has(rank); })) return;
  ++group->made_;
  group->within_ = core::Within{view_.incarnation, view_.grown, ranks};
  group->state_ = State::kWaiting;
  group->start();
}

// Where it is made again it has the same name and token.
void Trainer::end_group() {
  if (outer_ == nullptr) return;
  const auto pause = static_cast<Time>(world_->random().below(30 * core::kMillisecond));
  world_->after(pause, [this, life = outer_->life_, grown = outer_->grown_] {
    if (life == outer_->life_ && grown == outer_->grown_) outer_->make(this);
  });
}

bool Trainer::in_groups() const {
  return std::ranges::any_of(groups_, [](const Trainer* group) { return !group->over(); });
}

// Its process has left the job that this one was to be within.
void Trainer::give_up() {
  if (state_ != State::kJoining) return;
  state_ = State::kLeft;
  SimNode* node = &world_->node(node_);
  node->run([node, session = session_] { node->membership().leave(session); });
}

void Trainer::come_back() {
  if (life_ >= spec_.lives) return;
  restarting_ = true;
  world_->after(200 * core::kMillisecond, [this] {
    if (!std::exchange(restarting_, false) || !world_->node(node_).alive()) return;
    state_ = State::kWaiting;
    start();
  });
}

}  // namespace gradring::sim
