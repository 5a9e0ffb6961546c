#include "tests/sim/node.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/core/planted.h"
#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

constexpr Time kMailDelay = 200'000;  // between the planes of one daemon

core::MembershipOptions membership_options(const Scenario& scenario) {
  core::MembershipOptions options;
  options.claims_pause = static_cast<Time>(scenario.seed % 3) * 10 * core::kMillisecond;
  return options;
}

// To the next life.
core::JobRecord told_by(core::JobRecord record) {
  if (core::planted(core::Bug::kRestartWithoutRecord)) {
    core::AcceptorRecord forgot;
    forgot.epoch = record.acceptor.epoch;
    forgot.last_commit = record.acceptor.last_commit;
    record.acceptor = std::move(forgot);
  }
  return record;
}

}  // namespace

SimNode::SimNode(World* world, uint32_t index, uint64_t life)
    : world_(world),
      index_(index),
      name_("n" + std::to_string(index)),
      membership_(name_, membership_options(world->scenario()),
                  world->scenario().seed * 131 + index + life * 7919, this) {
  if (world->has_overlay()) peers_.emplace(world, this, 1 + index + life * 1000);
}

void SimNode::remember(const SimNode& before) {
  if (peers_) peers_->go_on_from(*before.peers_);
  woken_ = world_->events().now();
  for (const auto& [id, record] : before.records_) {
    if (!before.has_engine(id)) continue;
    jobs_[id] = std::make_shared<SimJob>(world_, this, *before.jobs_.at(id));
  }
  for (const auto& [id, record] : before.records_) {
    if (!has_engine(id)) {
      testify(record);
      continue;
    }
    const core::JobRecord known = told_by(record);
    records_[id] = known;
    membership_.restore(known, jobs_.at(id)->engine().view().epoch, world_->events().now());
  }
  schedule_tick();
}

void SimNode::testify(const SimNode& before) {
  for (const auto& [id, record] : before.records_) testify(record);
}

void SimNode::testify(const core::JobRecord& record) {
  Failure failure{Cause::kPeerLost, {}};
  failure.blame.evidence = "ended with its daemon";
  membership_.bear_witness(told_by(record), failure, world_->events().now());
}

std::vector<core::SessionId> SimNode::known_sessions() const {
  std::vector<core::SessionId> list;
  for (const auto& [id, record] : records_) {
    for (const core::LocalPlace& place : record.local) {
      if (place.present) list.push_back(place.session);
    }
  }
  return list;
}

bool SimNode::expects(const std::string& node) const {
  return std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
    const auto& [id, record] = entry;
    return has_engine(id) && record.view.index_of(node);
  });
}

void SimNode::run(const std::function<void()>& what) {
  if (!alive_) return;
  if (paused_) return backlog_.push_back(what);
  what();
  schedule_tick();
  tick_peers();
}

void SimNode::resume() {
  if (!std::exchange(paused_, false)) return;
  woken_ = world_->events().now();
  auto backlog = std::exchange(backlog_, {});
  for (const auto& what : backlog) run(what);
}

void SimNode::schedule_tick() {
  const Time due = membership_.next_deadline();
  if (due == 0 || (tick_at_ != 0 && tick_at_ <= due)) return;
  tick_at_ = std::max(due, world_->events().now() + 1);
  world_->events().at(tick_at_, [this] {
    run([this] {
      tick_at_ = 0;
      membership_.tick(world_->events().now());
    });
  });
}

void SimNode::tick_peers() {
  if (!peers_ || world_->is_quiet()) return;
  const Time due = peers_->next_deadline();
  if (due == std::numeric_limits<Time>::max() || (peers_at_ != 0 && peers_at_ <= due)) return;
  const Time at = peers_at_ = std::max(due, world_->events().now() + 1);
  world_->events().at(at, [this, at] {
    run([this, at] {
      if (peers_at_ != at) return;  // something was due sooner
      peers_at_ = 0;
      peers_->tick();
    });
  });
}

void SimNode::need_members(const core::View& view) {
  for (const core::Member& member : view.members) {
    const uint32_t peer = world_->index_of(member.node);
    if (world_->is_relayed(index_, peer)) peers_->need(peer);
  }
}

void SimNode::to_control(std::function<void()> what) {
  control_mail_.send(&world_->events(), world_->delay(kMailDelay),
                     [this, what = std::move(what)] { run(what); });
}

void SimNode::to_data(std::function<void()> what) {
  data_mail_.send(&world_->events(), world_->delay(kMailDelay),
                  [this, what = std::move(what)] { run(what); });
}

// Jobs come and go here at once, and through the mailbox in a real daemon. So what is posted is for
// the one that is there now, although another life of this node may have taken its place by then.
void SimNode::with_job(const JobId& job, std::function<void(SimJob&)> what) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  to_data([sim = it->second, what = std::move(what)] {
    what(*sim);
    sim->wake();
  });
}

void SimNode::to_trainer(core::SessionId session, std::function<void(Trainer&)> what) {
  to_control([this, session, what = std::move(what)] {
    Trainer* trainer = world_->trainer_of(session);
    if (trainer->session() == session) what(*trainer);
  });
}

std::vector<Trainer*> SimNode::trainers_of(const std::vector<core::SessionId>& sessions) const {
  std::vector<Trainer*> trainers;
  for (const core::SessionId session : sessions) {
    trainers.push_back(session == 0 ? nullptr : world_->trainer_of(session));
  }
  return trainers;
}

void SimNode::submit(const JobId& job, Trainer* trainer, const core::Submission& submission) {
  if (jobs_.count(job) == 0) {
    return world_->violation(name_ + ": a submission for a job that is gone, by " +
                             trainer->name() + ", " + trainer->doing());
  }
  with_job(job, [trainer, submission, session = trainer->session()](SimJob& sim) {
    if (trainer->session() == session) sim.submit(trainer, submission);  // else dead by then
  });
}

void SimNode::input_came(const JobId& job, Trainer* trainer, const core::Submission& submission) {
  if (jobs_.count(job) == 0) return;
  with_job(job, [trainer, submission, session = trainer->session()](SimJob& sim) {
    if (trainer->session() != session) return;
    sim.engine().input_came(submission.rank, submission.key, submission.input_here);
    sim.wake();
  });
}

void SimNode::on_data(uint32_t from, const Frame& frame, const Payload& payload) {
  const auto it = jobs_.find(frame.job);
  if (it != jobs_.end()) it->second->on_data(from, frame, payload);
}

void SimNode::tick() {
  run([this] {
    membership_.tick(world_->events().now());
    for (const auto& [id, job] : jobs_) {
      job->engine().tick(world_->events().now());
      job->wake();
    }
  });
}

core::Tuning SimNode::tuning_for(const core::View&, bool) {
  return world_->scenario().first_tuning;
}

void SimNode::retune(const core::Tuning& tuning) {
  run([this, tuning] {
    std::vector<JobId> jobs;
    for (const auto& [id, job] : jobs_) jobs.push_back(id);
    for (const JobId& id : jobs) {
      if (membership_.tune(id, tuning)) ++world_->stats().retunes_asked;
    }
  });
}

std::string SimNode::doing() const {
  std::string text = name_ + (alive_ ? paused_ ? " paused" : "" : " dead");
  for (const core::JobInfo& job : membership_.jobs()) {
    text += "; " + job.name + " " + core::name_of(job.state) + ": " + job.explanation;
  }
  for (const auto& [id, job] : jobs_) {
    text += "; engine epoch " + std::to_string(job->engine().view().epoch) +
            (job->engine().frozen() ? " frozen" : "") + ", " +
            std::to_string(job->engine().open_ops()) + " open, " +
            std::to_string(job->engine().kept_ops()) + " kept, " +
            std::to_string(job->engine().slots_in_use()) + " slots in use" +
            (job->engine().drained() ? ", drained" : "");
    for (const core::OpProgress& op : job->engine().progress(4)) {
      text += " [" + describe(op.key) + " " + describe(op.signature) + " " +
              std::to_string(op.slices_final) + "/" + std::to_string(op.slices) +
              " missing ranks " + std::to_string(op.missing_ranks.size()) + " members " +
              std::to_string(op.missing_nodes.size()) + "]";
    }
  }
  return text;
}

void SimNode::send(const std::string& node, const core::JobMessage& message) {
  world_->send_control(index_, world_->index_of(node), message);
}

void SimNode::install(const core::View& view, const std::vector<core::SessionId>& sessions) {
  if (!alive_) return;
  if (view.epoch > 0) world_->oracle().note_view(view);
  world_->note_known(view.incarnation, index_, view.epoch);
  need_members(view);
  // Made at once, so that frames which come right after the acceptance find it.
  jobs_[view.incarnation] = std::make_shared<SimJob>(world_, this, view, trainers_of(sessions));
}

void SimNode::admit(core::SessionId session, const core::View& view) {
  to_trainer(session, [view](Trainer& trainer) { trainer.on_admit(view); });
}

void SimNode::refuse(core::SessionId session, const Status& why) {
  to_trainer(session, [why](Trainer& trainer) { trainer.on_refuse(why); });
}

void SimNode::view_changed(core::SessionId session, const core::View& view) {
  to_trainer(session, [view](Trainer& trainer) { trainer.on_view(view); });
}

void SimNode::close(core::SessionId session, const JobId&, const Failure& failure) {
  to_trainer(session, [failure](Trainer& trainer) { trainer.on_close(failure); });
}

void SimNode::leave_engine(const JobId& job, uint32_t rank, const Failure& why) {
  with_job(job, [rank, why](SimJob& sim) { sim.engine().leave(rank, why); });
}

void SimNode::fail_engine(const JobId& job, const Failure& failure) {
  if (!alive_) return;
  world_->note_failed(*this, job, failure);
  // Who stays although it gave up is held to what the others say.
  const bool stays = core::planted(core::Bug::kGaveUpButStays);
  records_.erase(job);
  if (!stays) world_->note_left(job, index_);
  if (failure.cause == Cause::kExcluded) {
    world_->note_known(job, index_, world_->known(job, index_) + 1);
  }
  with_job(job, [failure](SimJob& sim) { sim.engine().fail(failure); });
}

void SimNode::member_gone(const JobId& job, uint32_t member, const Failure& failure) {
  with_job(job, [member, failure](SimJob& sim) { sim.engine().member_gone(member, failure); });
}

void SimNode::freeze_engine(const JobId& job, uint64_t epoch) {
  with_job(job, [this, job, epoch](SimJob& sim) {
    const Scenario& scenario = world_->scenario();
    const bool may_be_slow = scenario.slow_node.value_or(index_) == index_;
    const uint32_t percent = may_be_slow ? scenario.slow_reports_percent : 0;
    if (percent == 0 || world_->random().below(100) >= percent) return report(&sim, job, epoch);
    ++world_->stats().slow_reports;
    world_->after(scenario.slow_report_max, [this, job, epoch, late = sim.shared_from_this()] {
      run([this, job, epoch, late] { report(late.get(), job, epoch); });
    });
  });
}

void SimNode::report(SimJob* sim, const JobId& job, uint64_t epoch) {
  if (sim->engine().view().epoch != epoch || sim->engine().failed()) return;
  const core::Report report = sim->engine().freeze();
  world_->trace([&] {
    return name_ + " reports of epoch " + std::to_string(epoch) + ": " + describe(report);
  });
  to_control([this, job, epoch, report] { membership_.engine_frozen(job, epoch, report); });
}

void SimNode::adopt_engine(const JobId& job, const core::Proposal& proposal,
                           const std::vector<core::SessionId>& sessions) {
  if (!alive_) return;
  ++world_->stats().views;
  world_->note_known(job, index_, proposal.view.epoch);
  need_members(proposal.view);
  with_job(job,
           [this, proposal, sessions](SimJob& sim) { sim.adopt(proposal, trainers_of(sessions)); });
}

void SimNode::set_grows(const JobId& job, bool grows) {
  with_job(job, [grows](SimJob& sim) { sim.engine().set_grows(grows); });
}

void SimNode::remove(const JobId& job) {
  if (!alive_) return;
  if (jobs_.count(job) == 0) return world_->violation(name_ + ": a job was removed twice");
  with_job(job, [](SimJob& sim) {
    sim.engine().fail({Cause::kTrainerLeft, {}});
    sim.check_nothing_kept();
  });
  jobs_.erase(job);
  records_.erase(job);
}

}  // namespace gradring::sim
