#include <algorithm>
#include <cstring>

#include "daemon/core/planted.h"
#include "tests/sim/arithmetic.h"
#include "tests/sim/node.h"
#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {

SimJob::SimJob(World* world, SimNode* node, const core::View& view, std::vector<Trainer*> locals)
    : world_(world),
      node_(node),
      engine_(view, *view.index_of(node->name()), world->options_of(view.job), this),
      entered_(world->events().now()) {
  const Value empty{std::vector<std::byte>(engine_.staging_bytes()), {}};
  slots_.assign(engine_.slots(), empty);
  starts_.assign(engine_.start_buffers(), empty);
  const auto& ranks = view.members[engine_.me()].ranks;
  for (size_t i = 0; i < ranks.size() && i < locals.size(); ++i) locals_[ranks[i].rank] = locals[i];
  if (!world->scenario().keeps_records()) return;
  engine_.write_to(&journal_);
  journal_ = engine_.record();
}

SimJob::SimJob(World* world, SimNode* node, const SimJob& before)
    : SimJob(world, node, before.journal_.view, {}) {
  core::EngineRecord record = before.engine_.record();
  record.carried = before.journal_.carried;  // what only a READY made it forget may come once more
  if (record != before.journal_) {
    world_->violation(node_->name() + ": R1: the journal is not what the engine knows");
  }
  if (core::planted(core::Bug::kRestartWithoutRecord)) {
    for (auto& [key, op] : record.ops) {
      if (op.state == core::OpState::kGathering) op.slices.clear();
    }
  }
  locals_ = before.locals_;
  kept_ = before.kept_;
  next_kept_ = before.next_kept_;
  lent_ = before.lent_;
  passes_ = before.passes_;
  told_ = before.told_;
  engine_.restore(record);
  journal_ = engine_.record();
}

void SimJob::submit(Trainer* trainer, const core::Submission& submission) {
  if (engine_.view().closed == std::nullopt && !engine_.failed() &&
      !locals_.count(submission.rank)) {
    return world_->violation(node_->name() + ": a submission of a rank that is not here");
  }
  const auto told = told_.find(key_of(submission));
  if (told != told_.end()) {
    return node_->to_control([trainer, session = trainer->session(), entry = *told] {
      const auto& [of, outcome] = entry;
      const bool waits = trainer->session() == session && trainer->waits_for(of.second);
      if (waits) trainer->on_complete(of.second, outcome);
    });
  }
  lent_[key_of(submission)] = {trainer, trainer->session(), trainer->memory()};
  const Status refused = engine_.submit(submission, world_->events().now());
  if (!refused.ok()) {
    core::Outcome outcome;
    outcome.verdict = Verdict::kFailed;
    outcome.failure = {Cause::kRefused, {}};
    outcome.failure.blame.evidence = refused.message();
    complete(submission.rank, submission.ticket, outcome);
  }
  wake();
}

void SimJob::adopt(const core::Proposal& proposal, std::vector<Trainer*> locals) {
  world_->oracle().note_view(proposal.view);
  const auto& ranks = proposal.view.members[*proposal.view.index_of(node_->name())].ranks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (locals[i] != nullptr) locals_[ranks[i].rank] = locals[i];
  }
  told_drained_ = false;
  entered_ = world_->events().now();
  if (proposal.view.tuning != engine_.view().tuning) ++world_->stats().retuned;
  world_->trace([&] { return node_->name() + " adopts " + describe(proposal); });
  engine_.tick(world_->events().now());
  engine_.adopt(proposal);
  for (const auto& [from, frame] : gate_.take_waiting()) on_data(from, frame, {});
  wake();
}

void SimJob::send(uint32_t member, const Frame& frame) {
  if (frame.type == FrameType::kReady && world_->sabotaged(Sabotage::kLoseReady)) return;
  if (frame.type == FrameType::kCredit && world_->sabotaged(Sabotage::kLoseCredit)) return;
  world_->send_data(node_->index(), world_->index_of(engine_.view().members[member].node), frame,
                    {});
}

void SimJob::send_slice(uint32_t member, const Frame& frame, core::Staging from) {
  // The bytes are read when the network gets to it, so a buffer that is used again too early shows.
  const auto self = shared_from_this();
  const std::string to = engine_.view().members[member].node;
  const bool reuse = world_->sabotaged(Sabotage::kReuseLentBuffer);
  if (reuse) engine_.on_sent(from);
  world_->after(reuse ? 3 * core::kMillisecond : core::kMillisecond,
                [self, to, frame, from, reuse] {
                  self->node_->run([self, to, frame, from, reuse] {
                    if (!reuse) return self->wire(to, frame, from);
                    self->world_->send_data(self->node_->index(), self->world_->index_of(to), frame,
                                            std::make_shared<Value>(self->staging(from)));
                  });
                });
}

void SimJob::send_direct(uint32_t member, const Frame& frame, core::Staging from) {
  if (frame.type == FrameType::kReady && world_->sabotaged(Sabotage::kLoseReady)) {
    return engine_.on_sent(from);
  }
  const auto self = shared_from_this();
  const std::string to = engine_.view().members[member].node;
  world_->after(core::kMillisecond, [self, to, frame, from] {
    self->node_->run([self, to, frame, from] { self->wire(to, frame, from); });
  });
}

void SimJob::wire(const std::string& to, Frame frame, core::Staging from) {
  const auto payload = std::make_shared<Value>(staging(from));
  payload->bytes.resize(payload_of(frame));
  if (world_->sabotaged(Sabotage::kCorruptPayload)) {  // before anybody looked at it
    payload->bytes[0] ^= std::byte{0x40};
    made(payload.get(), payload->bytes.size());
  }
  if (frame.slice.checked) frame.slice.crc32c = payload->checksum;
  world_->damage(node_->index(), world_->index_of(to), &payload->bytes);
  world_->send_data(node_->index(), world_->index_of(to), frame, payload);
  engine_.on_sent(from);
  wake();
}

void SimJob::complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  const auto it = lent_.find({rank, ticket});
  if (it == lent_.end()) return world_->violation(node_->name() + ": completed what was not lent");
  const Lent ended = it->second;
  lent_.erase(it);
  told_[{rank, ticket}] = outcome;
  world_->trace([&] {
    const auto [op, step] = ended.trainer->what(ticket);
    return node_->name() + " ends op " + std::to_string(op) + " of step " + std::to_string(step) +
           " of rank " + std::to_string(rank) + ": " +
           std::string(gradring::name_of(outcome.verdict)) + " " + describe(outcome.failure);
  });
  node_->to_control([ended, ticket, outcome] {
    if (ended.trainer->session() == ended.session) ended.trainer->on_complete(ticket, outcome);
  });
}

void SimJob::tell_control(std::function<void(core::Membership&)> what) {
  node_->to_control([node = node_, what = std::move(what)] { what(node->membership()); });
}

void SimJob::fail_job(const Failure& failure) {
  if (failure.cause == Cause::kDeadline) world_->op_expired(*node_, *this, failure);
  tell_control([id = engine_.view().incarnation, failure](core::Membership& m) {
    m.engine_failed(id, failure);
  });
}

void SimJob::absent(const core::Absence& absence) {
  tell_control([id = engine_.view().incarnation, absence](core::Membership& m) {
    m.engine_absent(id, absence);
  });
}

void SimJob::condemned(const Failure&) {
  ++world_->stats().condemned;
  const core::View& view = engine_.view();
  tell_control([id = view.incarnation, epoch = view.epoch](core::Membership& m) {
    m.engine_condemned(id, epoch);
  });
}

void SimJob::at_join_point() {
  tell_control(
      [id = engine_.view().incarnation](core::Membership& m) { m.engine_at_join_point(id); });
}

void SimJob::stand_in(uint32_t rank, const OpKey& key, const std::optional<Signature>&) {
  if (world_->sabotaged(Sabotage::kLoseStandIn)) return;
  Trainer* const trainer = locals_.at(rank);
  node_->to_control([trainer, session = trainer->session(), key] {
    if (trainer->session() == session) trainer->stand_in(key);
  });
}

void SimJob::on_data(uint32_t from_node, const Frame& frame, const Payload& payload) {
  using Gate = core::EpochGate<uint32_t>;
  const uint64_t epoch = engine_.view().epoch;
  const bool past_is_taken = core::planted(core::Bug::kOldEpochData) && frame.epoch < epoch;
  const std::string& name = world_->node(from_node).name();
  if (frame.epoch != epoch && !past_is_taken) {
    if (payload && frame.epoch > epoch) return;
    const Gate::Verdict verdict = gate_.sort(from_node, frame, epoch);
    const JobId id = engine_.view().incarnation;
    if (verdict == Gate::Verdict::kTooMuch) {
      fail_job(core::too_far_ahead(name, frame.epoch, epoch));
    } else if (verdict == Gate::Verdict::kLater) {
      tell_control([id, name](core::Membership& m) { m.engine_behind(id, name); });
    } else if (gate_.tell(from_node, frame.epoch)) {
      tell_control(
          [id, name, its = frame.epoch](core::Membership& m) { m.engine_ahead(id, name, its); });
    }
    return;
  }
  const auto member = engine_.view().index_of(name);
  if (!member) return;
  if (payload && is_direct(frame)) return on_parcel(*member, frame, payload);
  if (frame.type != FrameType::kSlice) {
    engine_.on_frame(*member, frame, world_->events().now());
    return wake();
  }
  const std::optional<uint32_t> slot = engine_.on_slice(*member, frame);
  if (!slot) return wake();
  world_->note_arrived(engine_.view().incarnation);
  tear(frame, *payload);
  const auto self = shared_from_this();
  world_->after(core::kMillisecond / 2, [self, slot, payload, body = frame.slice] {
    self->node_->run([self, slot, payload, body] {
      Value& landed = self->slots_[*slot];
      std::copy(payload->bytes.begin(), payload->bytes.end(), landed.bytes.begin());
      landed.passes = payload->passes;
      landed.checksum = body.crc32c;
      const bool good = !body.checked || checksum(landed.bytes.data(), body.length) == body.crc32c;
      if (good) {
        self->engine_.on_slice_landed(*slot);
      } else {
        self->engine_.on_slice_damaged(*slot);
      }
      self->wake();
    });
  });
}

void SimJob::on_parcel(uint32_t member, const Frame& frame, const Payload& payload) {
  const std::optional<uint32_t> unit = engine_.on_parcel(member, frame);
  if (!unit) return wake();
  const auto self = shared_from_this();
  world_->after(core::kMillisecond / 2, [self, unit, payload] {
    self->node_->run([self, unit, payload] {
      Value& landed = self->staging({core::Staging::Kind::kUnit, *unit});
      std::copy(payload->bytes.begin(), payload->bytes.end(), landed.bytes.begin());
      landed.passes = payload->passes;
      self->engine_.on_parcel_landed(*unit, self->world_->events().now());
      self->wake();
    });
  });
}

// The bug of rule D4: a final value is received straight into the outputs, half of it at once.
void SimJob::tear(const Frame& frame, const Value& payload) {
  if (!core::planted(core::Bug::kStraightIntoInput) || frame.slice.phase != Phase::kFinal) return;
  for (const auto& [key, lent] : lent_) {
    const auto place = lent.trainer->output_of(key.second, frame.key);
    if (!place) continue;
    const uint64_t slice_bytes = payload.bytes.size();  // good enough: all slices but the last
    std::byte* to = lent.memory->data() + *place + frame.slice.slice * slice_bytes;
    if (frame.slice.slice == 0) std::memcpy(to, payload.bytes.data(), payload.bytes.size() / 2);
  }
}

void SimJob::wake() {
  if (pump_due_) return;
  pump_due_ = true;
  const auto self = shared_from_this();
  world_->after(50'000, [self] {
    self->node_->run([self] {
      self->pump_due_ = false;
      self->pump();
    });
  });
}

void SimJob::check_nothing_kept() const {
  if (!kept_.empty()) world_->violation("P5: " + node_->name() + " has copies that nobody wants");
}

void SimJob::pump() {
  const auto budget = static_cast<uint32_t>(1 + world_->random().below(4));
  const uint32_t done = engine_.pump(budget);
  world_->stats().slices += done;
  if (engine_.slots_in_use() > world_->scenario().engine.slots) {
    world_->violation("P5: more slots in use than there are");
  }
  if (done > 0) wake();
  if (engine_.drained() && !told_drained_) {
    told_drained_ = true;
    check_nothing_kept();
    tell_control([id = engine_.view().incarnation](core::Membership& m) { m.engine_drained(id); });
  }
}

}  // namespace gradring::sim
