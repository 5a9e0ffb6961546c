#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/data/data_thread.h"

namespace gradring::daemon {

uint64_t kept_bytes(const core::EngineOptions& engine, uint64_t staging_limit) {
  const uint64_t staging =
      StagingMemory::bytes_for(engine.slots, engine.start_buffers, engine.plan.slice_bytes_max);
  if (staging >= staging_limit) return 0;
  return std::min(uint64_t{2} * engine.slots * engine.plan.slice_bytes_max,
                  staging_limit - staging);
}

int DataThread::take_commands() {
  commands_->take(&taken_);
  for (Command& command : taken_) {
    std::visit([this](auto& c) { apply(c); }, command);
  }
  const int count = static_cast<int>(taken_.size());
  taken_.clear();
  return count;
}

void DataThread::apply(InstallJob& install) {
  const JobId id = install.view.incarnation;
  const auto failed = [&](Cause cause, const std::string& node, const std::string& evidence) {
    Failure failure{cause, {}};
    failure.blame.node = node;
    failure.blame.evidence = evidence;
    events_->post(EngineFailed{id, failure});
  };
  const std::string node = install.view.members[install.me].node;
  core::EngineOptions engine = options_.engine;
  std::optional<transport::Segment> outliving;
  if (install.memory) {
    outliving = std::move(install.memory->staging);
    engine.plan.slice_bytes_alone = 0;  // each slice is written down before it is copied
  }
  // Of what final slices may take after completion, half is for those that stay where they lie.
  uint64_t kept = kept_bytes(engine, options_.staging_limit);
  uint32_t spares = 0;
  if (!outliving) {
    const uint64_t slice_bytes = engine.plan.slice_bytes_max;
    spares = static_cast<uint32_t>(std::min<uint64_t>(engine.slots, kept / 2 / slice_bytes));
    kept -= spares * slice_bytes;
  }
  auto staging =
      StagingMemory::create(engine.slots, engine.start_buffers, spares, engine.plan.slice_bytes_max,
                            options_.staging_limit, std::move(outliving));
  if (!staging) return failed(Cause::kRefused, node, staging.error().message());
  const bool pins = options_.gpu_direct && options_.gpus != nullptr;
  if (!pins) {
    const Status ready = staging->make_ready(lanes_);
    if (!ready.ok()) return failed(Cause::kRefused, node, ready.message());
  }
  for (const core::Member& member : install.view.members) {
    // After a restart nobody is; the next epoch begins when all are.
    if (install.before || member.node == node || shared_.peers.by_node(member.node)) continue;
    failed(Cause::kPeerLost, member.node, "is not connected on the data network");
    break;
  }
  engine.eager =
      staging->bytes() + kept + core::eager_bytes_max(engine.plan) <= options_.staging_limit;
  jobs_[id] = std::make_unique<JobExecutor>(std::move(install), engine, std::move(*staging), kept,
                                            options_.feedback_limit, &shared_);
  if (pins) pin_memory(*jobs_[id]);
  prepare_ride(*jobs_[id], engine);
  share_wires();
}

bool DataThread::has_room(const core::JobEngine& job) const {
  if (job.places_taken() < options_.places_per_user / 512) return true;
  uint64_t taken = 0;
  for (const auto& [id, other] : jobs_) {
    const core::JobEngine& engine = other->engine();
    if (engine.view().uid == job.view().uid) taken += engine.places_taken();
  }
  return taken < options_.places_per_user;
}

void DataThread::apply(const Submit& submit) {
  JobExecutor* const job = find(submit.job);
  if (job == nullptr) return refuse(submit, "the job has ended on this node");
  const core::JobEngine& engine = job->engine();
  if (!has_room(engine) && engine.find(submit.submission.key) == nullptr) {
    return refuse(submit, fmt::format("the jobs of uid {} have too many ops open on this node that "
                                      "not all of their ranks have submitted; wait for some first",
                                      engine.view().uid));
  }
  if (job->may_begin(submit)) return job->submit(submit, now_);
  look_on_streams_.worked(now_);
  if (gate_.hold(submit, now_)) return;
  refuse(submit, fmt::format("{} ops wait for a GPU to come to them already; wait for some first",
                             StreamGate::kHeldMax));
}

void DataThread::refuse(const Submit& submit, const std::string& why) {
  end(submit, core::refused(submit.submission.rank, why));
}

void DataThread::end(const Submit& submit, const core::Outcome& outcome) {
  if (submit.ring != nullptr) {
    submit.ring->end(submit.submission.ticket, segments_of(submit.submission), outcome);
  }
  if (submit.ended) submit.ended.set();
  events_->post(
      Completed{submit.session, submit.submission.ticket, outcome, submit.ring != nullptr});
}

int DataThread::pass_gate() {
  if (gate_.empty()) return 0;
  const std::vector<Submit> reached = gate_.take([this](const Submit& submit) {
    const JobExecutor* const job = find(submit.job);
    return job == nullptr || job->may_begin(submit);
  });
  if (!reached.empty()) look_on_streams_.worked(now_);
  for (const Submit& submit : reached) apply(submit);
  return static_cast<int>(reached.size());
}

// A GPU that is lost comes to nothing any more: that is what there is to say.
void DataThread::end_held(const Failure& why, const std::function<bool(const Submit&)>& wanted) {
  if (why.blame.device.empty()) let_ride_now(wanted);
  core::Outcome lost;
  lost.verdict = Verdict::kFailed;
  lost.failure = why;
  for (const Submit& submit : gate_.take(wanted)) {
    if (why.blame.device.empty()) {
      refuse(submit, "its GPU had not come to it when the trainer left");
    } else {
      end(submit, lost);
    }
  }
}

void DataThread::apply(const LeaveRank& leave) {
  JobExecutor* const job = find(leave.job);
  if (job == nullptr) return;
  // What a GPU has come to counts, as what a trainer without one had submitted.
  pass_gate();
  end_held(leave.why, [&leave](const Submit& submit) {
    return submit.job == leave.job && submit.submission.rank == leave.rank;
  });
  job->leave(leave.rank, leave.why);
}

void DataThread::apply(const FailJob& fail) {
  JobExecutor* const job = find(fail.job);
  if (job == nullptr) return;
  job->fail(fail.failure);
  submit_held(fail.job, *job);
}

// To a job that is over, which tells them why.
void DataThread::submit_held(const JobId& id, JobExecutor& job) {
  const auto of_it = [&id](const Submit& submit) { return submit.job == id; };
  for (const Submit& held : gate_.take(of_it)) job.submit(held, now_);
}

void DataThread::apply(const MemberGone& gone) {
  if (JobExecutor* job = find(gone.job)) job->member_gone(gone.member, gone.failure);
}

void DataThread::apply(const FreezeJob& freeze) {
  if (JobExecutor* job = find(freeze.job)) job->freeze(freeze.epoch);
}

void DataThread::apply(const AdoptView& adopt) {
  JobExecutor* const job = find(adopt.job);
  if (job == nullptr) return;
  job->adopt(*adopt.proposal, now_);
  if (adopt.proposal->view.closed) submit_held(adopt.job, *job);
}

void DataThread::apply(const SetGrows& set) {
  if (JobExecutor* job = find(set.job)) job->set_grows(set.grows);
}

void DataThread::apply(const SetWeight& set) {
  if (JobExecutor* job = find(set.job)) job->weigh(set.weight);
  share_wires();
}

void DataThread::share_wires() {
  shared_.wires_to_share = false;
  uint32_t most = core::kWeightLeast;
  for (const auto& [id, job] : jobs_) most = std::max(most, job->weight());
  for (const auto& [id, job] : jobs_) job->share_wires(most);
}

void DataThread::apply(const RemoveJob& remove) {
  const auto it = jobs_.find(remove.job);
  if (it == jobs_.end()) return;
  // Whatever is still open ends now: each submission is completed, once, before its job goes.
  Failure ended{Cause::kTrainerLeft, {}};
  ended.blame.evidence = "the job has ended";
  it->second->fail(ended);
  submit_held(remove.job, *it->second);
  constexpr size_t kEndedMost = 1024;  // between two looks
  if (options_.metrics && ended_.size() < kEndedMost) ended_.push_back(it->second->figures());
  removed_.push_back(std::move(it->second));
  jobs_.erase(it);
  share_wires();
}

void DataThread::apply(const ExpectPeer& expect) {
  shared_.peers.expect(expect.peer, expect.token);
}

void DataThread::apply(const ConnectPeer& connect_peer) {
  ConnectPeer known = connect_peer;
  if (known.addresses.size() > lanes_.size()) known.addresses.resize(lanes_.size());
  shared_.peers.connected(known);
  shared_.outbox.takes_bundles(known.peer, known.bundle_bytes);
  const auto lanes = static_cast<uint8_t>(known.addresses.size());
  for (uint8_t lane = 0; lane < lanes; ++lane) {
    connect(known.peer, lane);
    DataLane& made = shared_.peers.at(known.peer).lanes[lane];
    made.carries = made.connected;
  }
}

void DataThread::connect(PeerId peer, uint8_t lane) {
  DataPeer& of = shared_.peers.at(peer);
  const Status status = lanes_[lane]->connect(peer, of.lanes[lane].address);
  of.lanes[lane].connected = status.ok();
  if (!status.ok()) events_->post(PeerDataLost{peer, of.link, lane, status.message()});
}

void DataThread::close(PeerId peer, uint8_t lane) {
  std::vector<uint64_t> loans;
  shared_.outbox.drop(lane, peer, &loans);
  give_back(loans);
  lanes_[lane]->disconnect(peer);
}

void DataThread::apply(const DisconnectPeer& disconnect) {
  DataPeer& peer = shared_.peers.at(disconnect.peer);
  peer.connected = false;
  const auto lanes = static_cast<uint8_t>(peer.lanes.size());
  for (uint8_t lane = 0; lane < lanes; ++lane) {
    peer.lanes[lane].connected = peer.lanes[lane].carries = false;
    prober_.on_lost(disconnect.peer, lane, "the connection was ended");
    close(disconnect.peer, lane);
  }
}

void DataThread::apply(const SetLane& set) {
  DataPeer& peer = shared_.peers.at(set.peer);
  if (!peer.connected || peer.link != set.link || set.lane >= peer.lanes.size()) return;
  DataLane& lane = peer.lanes[set.lane];
  switch (set.to) {
    case SetLane::To::kClosed:
      lane.connected = lane.carries = false;
      prober_.on_lost(set.peer, set.lane, "the lane was given up");
      return close(set.peer, set.lane);
    case SetLane::To::kTried:
      return connect(set.peer, set.lane);
    case SetLane::To::kCarries:
      lane.carries = lane.connected;
      return;
  }
}

void DataThread::apply(const DescribeJob& describe) {
  JobExecutor* job = find(describe.job);
  if (job != nullptr) {
    JobDescription description = job->describe(describe.query);
    for (RankActivity& rank : description.ranks) {
      rank.held += gate_.held_by(describe.job, rank.rank);
    }
    events_->post(std::move(description));
  } else {
    JobDescription nothing;
    nothing.query = describe.query;
    events_->post(std::move(nothing));
  }
}

}  // namespace gradring::daemon
