#include "tests/sim/node.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/arithmetic.h"
#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

constexpr Time kMailDelay = 200'000;  // between the planes of one daemon

}  // namespace

SimJob::SimJob(World* world, SimNode* node, const core::View& view, std::vector<Trainer*> locals)
    : world_(world),
      node_(node),
      locals_(std::move(locals)),
      engine_(view, *view.index_of(node->name()), world->scenario().engine, this) {
  slots_.assign(engine_.slots(), std::vector<std::byte>(engine_.staging_bytes()));
  starts_.assign(engine_.start_buffers(), std::vector<std::byte>(engine_.staging_bytes()));
}

std::byte* SimJob::staging(core::Staging at) {
  auto& buffers = at.kind == core::Staging::Kind::kSlot ? slots_ : starts_;
  return buffers.at(at.index).data();
}

Trainer* SimJob::local(uint32_t rank) const {
  const auto& ranks = engine_.view().members[engine_.me()].ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].rank == rank) return locals_[i];
  }
  return nullptr;
}

void SimJob::fold(const core::FoldOrder& order) {
  const core::Op& op = *order.op;
  const uint64_t offset = op.plan.offset_of(order.slice);
  const size_t length = op.plan.length_of(order.slice);
  std::vector<const std::byte*> inputs;
  for (const auto& submission : op.locals) {
    if (order.source == core::Fold::kRoot && submission->rank != op.signature->root) continue;
    inputs.push_back(local(submission->rank)->at(submission->input) + offset);
  }
  sim::fold(op.signature->dtype, op.signature->op, !order.onto_arrived, inputs,
            length / size_of(op.signature->dtype), order.divisor, staging(order.at));
}

void SimJob::deliver(const core::Op& op, uint32_t slice, core::Staging from) {
  if (world_->sabotaged(Sabotage::kForgetDelivery)) return;
  const uint64_t offset = op.plan.offset_of(slice);
  for (const auto& submission : op.locals) {
    std::memcpy(local(submission->rank)->at(submission->output) + offset, staging(from),
                op.plan.length_of(slice));
  }
}

void SimJob::send(uint32_t member, const Frame& frame) {
  if (frame.type == FrameType::kReady && world_->sabotaged(Sabotage::kLoseReady)) return;
  if (frame.type == FrameType::kCredit && world_->sabotaged(Sabotage::kLoseCredit)) return;
  world_->send_data(node_->index(), world_->index_of(engine_.view().members[member].node), frame,
                    {});
}

void SimJob::send_slice(uint32_t member, const Frame& frame, core::Staging from) {
  if (!world_->all_submitted(engine_.view(), frame.key)) {
    world_->violation("a slice of " + describe(frame.key) + " moved before all ranks submitted");
  }
  // The bytes are read when the network gets to it, so a buffer that is used again too early shows.
  const auto self = shared_from_this();
  if (world_->sabotaged(Sabotage::kReuseLentBuffer)) {
    engine_.on_sent(from);
    world_->after(3 * core::kMillisecond, [self, member, frame, from] {
      const std::byte* at = self->staging(from);
      self->world_->send_data(self->node_->index(),
                              self->world_->index_of(self->engine_.view().members[member].node),
                              frame, {at, at + frame.slice.length});
    });
    return;
  }
  world_->after(core::kMillisecond,
                [self, member, frame, from] { self->wire(member, frame, from); });
}

void SimJob::wire(uint32_t member, const Frame& frame, core::Staging from) {
  if (!node_->alive()) return;
  std::vector<std::byte> payload(staging(from), staging(from) + frame.slice.length);
  if (world_->sabotaged(Sabotage::kCorruptPayload)) payload[0] ^= std::byte{0x40};
  world_->send_data(node_->index(), world_->index_of(engine_.view().members[member].node), frame,
                    payload);
  engine_.on_sent(from);
  wake();
}

void SimJob::complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  Trainer* trainer = local(rank);
  const core::SessionId session = trainer->session();
  node_->to_control([trainer, session, ticket, outcome] {
    if (trainer->session() == session) trainer->on_complete(ticket, outcome);
  });
}

void SimJob::fail_job(const Failure& failure) {
  const JobId id = engine_.view().incarnation;
  node_->to_control([node = node_, id, failure] { node->membership().engine_failed(id, failure); });
}

void SimJob::on_data(uint32_t from_node, const Frame& frame,
                     const std::vector<std::byte>& payload) {
  const auto member = engine_.view().index_of(world_->node(from_node).name());
  if (!member) return;
  if (frame.type != FrameType::kSlice) {
    engine_.on_frame(*member, frame, world_->events().now());
    return wake();
  }
  const std::optional<uint32_t> slot = engine_.on_slice(*member, frame);
  if (!slot) return wake();
  const auto self = shared_from_this();
  world_->after(core::kMillisecond / 2, [self, slot, payload] {
    if (!self->node_->alive()) return;
    std::copy(payload.begin(), payload.end(), self->slots_[*slot].begin());
    self->engine_.on_slice_landed(*slot);
    self->wake();
  });
}

void SimJob::wake() {
  if (pump_due_) return;
  pump_due_ = true;
  const auto self = shared_from_this();
  world_->after(50'000, [self] {
    self->pump_due_ = false;
    if (self->node_->alive()) self->pump();
  });
}

void SimJob::pump() {
  const auto budget = static_cast<uint32_t>(1 + world_->random().below(4));
  const uint32_t done = engine_.pump(budget);
  world_->stats().slices += done;
  if (engine_.slots_in_use() > world_->scenario().engine.slots) {
    world_->violation("more slots in use than there are");
  }
  if (done > 0) wake();
  if (engine_.drained() && !told_drained_) {
    told_drained_ = true;
    const JobId id = engine_.view().incarnation;
    node_->to_control([node = node_, id] { node->membership().engine_drained(id); });
  }
}

SimNode::SimNode(World* world, uint32_t index)
    : world_(world),
      index_(index),
      name_("n" + std::to_string(index)),
      membership_(name_, {}, world->scenario().seed * 131 + index, this) {}

void SimNode::to_control(std::function<void()> what) {
  control_mail_.send(&world_->events(), world_->delay(kMailDelay), [this, what = std::move(what)] {
    if (alive_) what();
  });
}

void SimNode::to_data(std::function<void()> what) {
  data_mail_.send(&world_->events(), world_->delay(kMailDelay), [this, what = std::move(what)] {
    if (alive_) what();
  });
}

void SimNode::submit(const JobId& job, const core::Submission& submission) {
  to_data([this, job, submission] {
    const auto it = jobs_.find(job);
    if (it == jobs_.end())
      return world_->violation(name_ + ": a submission for a job that is gone");
    world_->note_submitted(it->second->engine().view(), submission.key);
    const Status refused = it->second->engine().submit(submission, world_->events().now());
    if (!refused.ok()) world_->violation(name_ + ": refused: " + refused.message());
    it->second->wake();
  });
}

void SimNode::on_data(uint32_t from, const Frame& frame, const std::vector<std::byte>& payload) {
  const auto it = jobs_.find(frame.job);
  if (it != jobs_.end()) it->second->on_data(from, frame, payload);
}

void SimNode::tick() {
  membership_.tick(world_->events().now());
  for (const auto& [id, job] : jobs_) {
    job->engine().tick(world_->events().now());
    job->wake();
  }
}

void SimNode::send(const std::string& node, const core::JobMessage& message) {
  world_->send_control(index_, world_->index_of(node), message);
}

void SimNode::install(const core::View& view, const std::vector<core::SessionId>& sessions) {
  std::vector<Trainer*> locals;
  for (const core::SessionId session : sessions) locals.push_back(world_->trainer_of(session));
  // Made at once, so that frames which come right after the acceptance find it.
  jobs_[view.incarnation] = std::make_shared<SimJob>(world_, this, view, std::move(locals));
}

void SimNode::admit(core::SessionId session, const core::View& view) {
  to_control([this, session, view] {
    Trainer* trainer = world_->trainer_of(session);
    if (trainer->session() == session) trainer->on_admit(view);
  });
}

void SimNode::refuse(core::SessionId session, const Status& why) {
  to_control([this, session, why] {
    Trainer* trainer = world_->trainer_of(session);
    if (trainer->session() == session) trainer->on_refuse(why);
  });
}

void SimNode::close(core::SessionId session, const JobId&, const Failure& failure) {
  to_control([this, session, failure] {
    Trainer* trainer = world_->trainer_of(session);
    if (trainer->session() == session) trainer->on_close(failure);
  });
}

void SimNode::leave_engine(const JobId& job, uint32_t rank) {
  to_data([this, job, rank] {
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) return;
    it->second->engine().leave(rank);
    it->second->wake();
  });
}

void SimNode::fail_engine(const JobId& job, const Failure& failure) {
  to_data([this, job, failure] {
    const auto it = jobs_.find(job);
    if (it != jobs_.end()) it->second->engine().fail(failure);
  });
}

void SimNode::member_gone(const JobId& job, uint32_t member, const Failure& failure) {
  to_data([this, job, member, failure] {
    const auto it = jobs_.find(job);
    if (it != jobs_.end()) it->second->engine().member_gone(member, failure);
  });
}

void SimNode::remove(const JobId& job) {
  to_data([this, job] {
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) return world_->violation(name_ + ": a job was removed twice");
    it->second->close();
    jobs_.erase(it);
  });
}

}  // namespace gradring::sim
