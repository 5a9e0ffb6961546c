#include "daemon/control/vitals.h"

#include <sys/resource.h>

#include <memory>
#include <utility>

#include "daemon/control/door/process.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

constexpr std::array<const char*, 3> kHows = {"killed", "exited", "other"};

// As core::JobState has them, for those who count.
const char* state_of(const core::JobInfo& info) {
  return info.state == core::JobState::kProposed ? "forming" : name_of(info.state);
}

}  // namespace

// By the words of how_it_ended(); a trainer that was sent away, or closed its connection, is other.
void Vitals::client_died(const std::string& evidence) {
  const bool killed = evidence.rfind("killed by signal", 0) == 0;
  const bool exited = evidence.rfind("exited with status", 0) == 0;
  ++deaths_[killed ? 0 : exited ? 1 : 2];
}

void Vitals::on_pulse(const Pulse& pulse, core::Time now) {
  if (board_ == nullptr || pulse.figures == nullptr) return;
  jobs_.update(*pulse.figures, now);
  auto snapshot = std::make_shared<metrics::Snapshot>();
  fill_process(snapshot.get(), now);
  const LoopFigures& data = pulse.figures->loop;
  snapshot->data_loop = {data.busy, longest_there_.add(data.longest, now)};
  fill_limits(snapshot.get());
  fill_jobs(snapshot.get());
  snapshot->job_series = jobs_.series(now);
  fill_peers(snapshot.get(), now);
  fill_traffic(snapshot.get(), pulse);
  board_->show(std::move(snapshot));
}

void Vitals::fill_process(metrics::Snapshot* to, core::Time now) {
  to->taken = now;
  to->node = config_.node;
  to->version = kProductVersion;
  to->transport = facts_.transport;
  to->uptime = now - facts_.started;
  to->draining = draining_;
  to->cpu_seconds = own_cpu_seconds();
  to->rss_bytes = own_rss_bytes();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  to->open_files = {own_open_files_lately(), files.rlim_cur};
  const LoopFigures here = loop_.take();
  to->control_loop = {here.busy, longest_here_.add(here.longest, now)};
}

void Vitals::fill_limits(metrics::Snapshot* to) const {
  const SessionLimits& limits = parts_.sessions->limits();
  to->sessions = {parts_.sessions->count(), limits.sessions};
  to->segment_bytes = {parts_.sessions->most_segment_bytes_of_a_uid(),
                       limits.segment_bytes_per_uid};
  to->staging_limit = config_.staging_limit;
  to->feedback_limit = config_.feedback_limit;
}

void Vitals::fill_jobs(metrics::Snapshot* to) const {
  to->jobs_by_state = {{"forming", 0}, {"running", 0}, {"failed", 0}};
  to->jobs.limit = config_.max_jobs;
  for (const core::JobInfo& info : parts_.membership->jobs()) {
    const auto it = to->jobs_by_state.find(state_of(info));
    if (info.over || it == to->jobs_by_state.end()) continue;
    ++it->second;
    ++to->jobs.used;
  }
  to->job_failures = parts_.jobs->failures();
  for (size_t how = 0; how < kHows.size(); ++how) to->client_deaths[kHows[how]] = deaths_[how];
}

void Vitals::fill_peers(metrics::Snapshot* to, core::Time now) {
  std::vector<metrics::PeerSeries> peers;
  const wire::PeersReport report = parts_.peers->report(now);
  const auto traffic = parts_.peers->traffic();  // in the same order
  for (const wire::PeerReport& peer : report.peers()) {
    metrics::PeerSeries& series = peers.emplace_back();
    series.label = peer.node().empty() ? peer.address() : peer.node();
    series.state = peer.state();
    ++to->peers_by_state[peer.state()];
    if (peer.silent_ms() != 0 || peer.connected_ms() != 0) {
      series.silent = static_cast<core::Time>(peer.silent_ms()) * core::kMillisecond;
    }
    for (const LaneTraffic& lane : traffic[peers.size() - 1]->lanes) {
      series.lanes.push_back(
          {"", lane.sent_bytes, lane.received_bytes, lane.sends, lane.send_time, 0});
    }
    for (int lane = 0; lane < peer.lanes_size(); ++lane) {
      const auto number = static_cast<size_t>(lane);
      if (number >= series.lanes.size()) continue;
      series.lanes[number].state = peer.lanes(lane).state();
      series.lanes[number].path_rate = peer.lanes(lane).path_bytes_per_second();
    }
    series.dropped_frames = peer.dropped_frames();
    series.damaged = peer.damaged();
  }
  to->peer_series = peers_.series(std::move(peers));
  to->ports = parts_.ports->series();
  to->gpu_series = parts_.gpu_health->series();
  to->gpus_given_up = parts_.gpus != nullptr && !parts_.gpus->fault().ok();
}

void Vitals::fill_traffic(metrics::Snapshot* to, const Pulse& pulse) const {
  to->messages_sent = pulse.transport.messages_sent;
  to->messages_received = pulse.transport.messages_received;
  to->payload_bytes_sent = pulse.gradients_sent;
  to->payload_bytes_received = pulse.gradients_received;
  to->registrations = pulse.transport.registrations;
  to->registered_bytes = pulse.transport.registered_bytes;
  to->bundles_sent = pulse.bundles_sent;
  to->frames_bundled = pulse.frames_bundled;
  to->gpus = pulse.gpus;
  to->frames_dropped = {{"forged", pulse.frames_forged},
                        {"malformed", pulse.frames_malformed},
                        {"damaged", pulse.frames_damaged},
                        {"stale", pulse.frames_stale}};
  to->malformed_messages = {{"client", parts_.requests->malformed()},
                            {"peer", parts_.peers->malformed()}};
}

}  // namespace gradring::daemon
