#include "daemon/data/data_thread.h"

#include <poll.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "daemon/clock.h"
#include "daemon/data/seal.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// A job gets this many slices a turn, so that none waits long for another's. Eight slices of 256
// KiB are about half a millisecond of summing; longer ones, of a job that no other node is in, are
// fewer.
constexpr uint32_t kSlicesPerTurn = 8;

// Nobody reads metrics more often than that, and a little less keeps step with whoever reads them
// each second.
constexpr core::Time kFiguresPause = 900 * core::kMillisecond;

// Nanoseconds. By itself the kernel lets a sleep last 50 us longer, which is more than a GPU takes
// for a small op and for a piece of a sum.
constexpr unsigned long kTimerSlack = 1000;

}  // namespace

DataThread::DataThread(Lanes lanes, const Options& options, CommandBox* commands, EventBox* events)
    : options_(options),
      commands_(commands),
      events_(events),
      lanes_(std::move(lanes)),
      shared_(&lanes_, events, options.reduce_threads, options.bundle_bytes, options.gpus),
      under_mps_(options.gpus != nullptr && options.gpus->under_mps()) {
  const auto count = static_cast<uint8_t>(lanes_.size());
  for (uint8_t lane = 0; lane < count; ++lane) ears_.emplace_back(this, lane);
  shared_.flight = options.flight;
  shared_.remember_ends = options.remember_ends;
  shared_.time_sums = options.time_sums;
  shared_.time_sends = options.metrics;
  shared_.gpus_rest_within = options.gpus_rest_within;
}

DataThread::~DataThread() = default;

void DataThread::run() {
  owner_.adopt();
  const std::shared_ptr<const void> on_gpus = enter_gpus();
  prctl(PR_SET_TIMERSLACK, kTimerSlack);
  core::Time began = 0;  // the turn before, if it did something: it ends where this one begins
  while (running_) {
    const core::Time now = monotonic_now();
    if (began != 0) watch_.worked(now - began);
    const bool worked = do_work(now) > 0;
    began = worked ? now : 0;
    if (worked) {
      look_on_.worked(now);
    } else {
      rest(now);
    }
  }
  close_transports();
}

// Null where there is nothing to enter.
std::shared_ptr<const void> DataThread::enter_gpus() const {
  if (!options_.gpu_direct || options_.gpus == nullptr) return nullptr;
  auto entered = options_.gpus->enter();
  if (entered) return *entered;
  spdlog::warn("gpu-direct may not work: {}", entered.error().message());
  return nullptr;
}

int DataThread::do_work(core::Time now) {
  owner_.check();
  now_ = now;
  shared_.flight->turn(now);
  ++turns_;
  int work = take_commands();
  work += serve_rings();
  work += pass_gate();
  work += deliver_early_frames();
  for (size_t lane = 0; lane < lanes_.size(); ++lane) work += lanes_[lane]->progress(ears_[lane]);
  work += retry_sends();
  work += end_gpu_work();
  work += pump_jobs();
  work += prober_.pump(now);
  free_removed_jobs();
  if (now >= next_pulse_) pulse(now);
  shared_.outbox.flush();
  return work;
}

int DataThread::retry_sends() {
  std::vector<uint64_t> lost;
  const int sent = shared_.outbox.retry(&lost);
  give_back(lost);
  return sent;
}

// Staging memory that was to be sent and cannot be.
void DataThread::give_back(const std::vector<uint64_t>& loans) {
  for (const uint64_t number : loans) {
    if (Prober::is_number(number)) {
      prober_.on_sent();
      continue;
    }
    const Loan loan = shared_.ledger.take_back(number);
    loan.job->on_sent(loan.at);
  }
}

int DataThread::end_gpu_work() {
  const std::vector<GpuDesk::Ended>& ended = shared_.gpus.take_ended();
  for (const GpuDesk::Ended& one : ended) one.work.job->on_gpu_ended(one);
  return static_cast<int>(ended.size());
}

int DataThread::pump_jobs() {
  int work = 0;
  if (shared_.wires_to_share) share_wires();
  for (auto& [id, job] : jobs_) work += static_cast<int>(job->pump(kSlicesPerTurn));
  return work;
}

void DataThread::free_removed_jobs() {
  std::erase_if(removed_, [this](const auto& job) {
    if (!job->may_be_freed()) return false;
    let_go(job->take_memory_of_gpus());
    return true;
  });
}

void DataThread::rest(core::Time now) {
  // Yielding, since trainers share the processors.
  const bool awaits = slices_under_way() || !rings_.empty() || prober_.busy(now);
  const bool looks_on = awaits && look_on_.goes_on(now);
  // GPUs wake nobody.
  const bool looks_on_streams = !gate_.empty() && look_on_streams_.goes_on(now);
  const bool looks_on_gpus = shared_.gpus.looks_on(now);
  if (looks_on || looks_on_streams || looks_on_gpus) {
    sched_yield();
    return;
  }
  if (!early_.empty() || !strange_.empty()) return;
  fds_.clear();
  fds_.push_back({commands_->event_fd(), POLLIN, 0});
  for (const auto& lane : lanes_) {
    if (!lane->arm()) return;
    fds_.push_back({lane->event_fd(), POLLIN, 0});
  }
  const size_t bells = fds_.size();
  if (!rest_rings()) {
    if (events_->full()) sched_yield();  // nothing is taken before the control thread comes to it
    return rise_rings({});
  }
  core::Time due = std::min(next_pulse_, prober_.next_deadline());
  if (!gate_.empty()) due = std::min(due, gate_.next_look(now));
  if (shared_.gpus.busy()) due = std::min(due, shared_.gpus.next_look(now));
  for (const auto& [id, job] : jobs_) due = std::min(due, job->next_look(now));
  const core::Time left = std::max<core::Time>(due - now, 0);
  const timespec timeout{left / core::kSecond, left % core::kSecond};
  ppoll(fds_.data(), fds_.size(), &timeout, nullptr);
  rise_rings(std::span(fds_).subspan(bells));
}

bool DataThread::slices_under_way() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second->busy(); });
}

// Whoever broke them, and whether or not a job had something there. It ends nothing of its own
// accord: jobs that have nothing on a GPU go on.
void DataThread::tell_of_gpus() {
  if (gpus_given_up_ || options_.gpus == nullptr) return;
  const Status fault = options_.gpus->fault();
  if (fault.ok()) return;
  gpus_given_up_ = true;
  tell(
      Notice::kGpusGivenUp, spdlog::level::err, {},
      fmt::format("no GPU sums here: {}; jobs go by way of the host's memory until gradringd is "
                  "restarted{}",
                  fault.message(),
                  under_mps_ ? ", and the server of MPS may take no new trainer before that" : ""));
}

void DataThread::pulse(core::Time now) {
  next_pulse_ = now + options_.pulse;
  tell_of_gpus();
  look_at_awaited_memory(now);
  for (auto& [id, job] : jobs_) {
    job->tick(now);
    job->look_at_wire_use();
  }
  share_wires();
  for (auto& [id, job] : jobs_) job->look_at_gpus(now);
  for (auto& job : removed_) job->look_at_gpus(now);

  ++heartbeats_;
  std::vector<DataPeer>& peers = shared_.peers.all();
  for (PeerId id = 0; id < peers.size(); ++id) {
    if (!peers[id].connected) continue;
    Frame frame;
    frame.token = peers[id].token_to_send;
    frame.heartbeat = {heartbeats_, turns_};
    for (size_t lane = 0; lane < peers[id].lanes.size(); ++lane) {
      if (!peers[id].lanes[lane].connected) continue;
      (void)lanes_[lane]->send(id, sealed(frame), {}, 0);  // a broken one is told by on_lost
    }
  }

  if (events_->full()) return;  // the control thread is behind; the next pulse says the same
  Pulse pulse;
  pulse.at = monotonic_now();
  pulse.progress = turns_;
  for (DataPeer& peer : peers) {
    PeerTraffic& traffic = pulse.peers.emplace_back();
    traffic.link = peer.link;
    traffic.dropped_frames = peer.dropped_frames;
    traffic.damaged = peer.damaged;
    for (DataLane& lane : peer.lanes) {
      const bool heard = std::exchange(lane.heard, false) && peer.connected;
      traffic.lanes.push_back(
          {heard, lane.sent_bytes, lane.received_bytes, lane.sends, lane.send_time});
    }
  }
  for (const auto& [id, job] : jobs_) {
    pulse.jobs.push_back({id, job->engine().counters().ops_completed,
                          static_cast<uint32_t>(job->engine().open_ops()), job->moved()});
    pulse.staging_bytes_most = std::max(pulse.staging_bytes_most, job->staging_bytes());
    pulse.feedback_bytes_most = std::max(pulse.feedback_bytes_most, job->feedback_bytes());
  }
  for (const auto& [id, job] : jobs_) {
    if (OpsTimed timed = job->take_times(); !timed.times.empty()) events_->post(std::move(timed));
    for (const core::LateChange& change : job->take_late(now)) events_->post(RankLate{id, change});
  }
  for (const auto& job : removed_) {
    pulse.staging_bytes_most = std::max(pulse.staging_bytes_most, job->staging_bytes());
  }
  for (const auto& lane : lanes_) pulse.transport += lane->counters();
  pulse.gradients_sent = shared_.gradients_sent;
  pulse.gradients_received = shared_.gradients_received;
  pulse.bundles_sent = shared_.outbox.bundles();
  pulse.frames_bundled = shared_.outbox.frames_bundled();
  pulse.gpus = shared_.gpus.traffic();
  pulse.ring_submissions = ring_submissions_;
  pulse.frames_forged = frames_forged_;
  pulse.frames_malformed = frames_malformed_;
  pulse.frames_damaged = frames_damaged_;
  pulse.frames_stale = frames_stale_;
  pulse.figures = take_figures(now);
  events_->post(std::move(pulse));
}

std::shared_ptr<const DataFigures> DataThread::take_figures(core::Time now) {
  if (!options_.metrics || now < next_figures_) return nullptr;
  next_figures_ = now + kFiguresPause;
  auto figures = std::make_shared<DataFigures>();
  for (const auto& [id, job] : jobs_) figures->jobs.push_back(job->figures());
  figures->ended = std::exchange(ended_, {});
  figures->loop = watch_.take();
  return figures;
}

namespace {

// Of jobs with which a GPU that hangs is still at work: a driver that is asked to free their memory
// waits for it for ever. This process is about to end.
void leave_to_the_system(std::vector<std::unique_ptr<JobExecutor>> jobs) {
  static auto* const kKept = new std::vector<std::unique_ptr<JobExecutor>>();
  std::move(jobs.begin(), jobs.end(), std::back_inserter(*kKept));
}

}  // namespace

// Memory goes only when the transport has let go of it.
void DataThread::close_transports() {
  pins_.end();
  makes_staging_.end();
  staging_made_.clear();
  while (!pins_made_.empty()) have_memory(pins_made_.begin()->first);
  for (PeerId id = 0; id < shared_.peers.all().size(); ++id) apply(DisconnectPeer{id});
  for (auto& [id, job] : jobs_) removed_.push_back(std::move(job));
  jobs_.clear();
  constexpr int kTurns =
      1000;  // disconnect() completes what is under way at once or in the next turn
  const auto lends = [this] {
    return !shared_.ledger.empty() || shared_.outbox.lends() || bundles_.taken() > 0 ||
           prober_.lends();
  };
  for (int turn = 0; turn < kTurns && lends(); ++turn) {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane]->progress(ears_[lane]);
  }
  constexpr int kGpuTurns = 2000;
  for (int turn = 0; turn < kGpuTurns && shared_.gpus.busy(); ++turn) {
    if (end_gpu_work() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (shared_.gpus.busy()) leave_to_the_system(std::exchange(removed_, {}));
  removed_.clear();  // here, where a transport finds a GPU's context
}

JobExecutor* DataThread::find(const JobId& id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : it->second.get();
}

}  // namespace gradring::daemon
