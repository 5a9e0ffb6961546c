#include "daemon/control/control_thread.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "daemon/clock.h"
#include "daemon/control/door/doorkeeper.h"
#include "daemon/control/door/listener.h"
#include "daemon/host_limits.h"
#include "daemon/notice.h"
#include "proto/version.h"

namespace gradring::daemon {
namespace {

// Trainers' connections and peers' connections, so that neither keep the others waiting.
constexpr int kIoThreads = 2;

constexpr int kSocketsMax = kSocketsOfLink * int{kPeersMax} + 64;  // few others

// Peers and trainers that are here wait meanwhile.
constexpr int kMessagesPerTurn = 256;
constexpr core::Time kReadTime = 20 * core::kMillisecond;

// Where nothing wakes us: the data thread catches up; a trainer reads again.
constexpr core::Time kFullPause = 1 * core::kMillisecond;
constexpr core::Time kUnreadPause = 5 * core::kMillisecond;

// Nobody notices it in a job that forms, and peers have at most as many messages to read in a
// second as they can.
constexpr core::Time kClaimsPause = 5 * core::kMillisecond;

core::MembershipOptions membership_options_of(const Config& config) {
  core::MembershipOptions options;
  options.form_deadline = config.form_deadline;
  options.form_deadline_most = config.op_deadline;
  options.change.quorum_wait = config.quorum_wait;
  options.jobs_max = static_cast<uint32_t>(config.max_jobs);
  options.claims_pause = kClaimsPause;
  return options;
}

Tunings::Setup tuning_setup_of(const ControlThread::Setup& setup) {
  return {setup.config.node, setup.config.tuning, setup.config.tuning_file,
          fmt::format("gradring {}, {}", kProductVersion, setup.identity.transport), setup.plan};
}

}  // namespace

SessionLimits session_limits_of(const Config& config) {
  return {config.max_sessions, config.sessions_per_uid, config.segments_per_session,
          config.segment_limit, mappings_limit()};
}

ControlThread::ControlThread(const Setup& setup)
    : setup_(setup),
      tick_interval_(setup.config.pulse()),
      context_(kIoThreads, kSocketsMax),
      gpu_opener_(setup.gpus, setup.events),
      sessions_(session_limits_of(setup.config)),
      router_(&context_, setup.config.runtime_dir + "/control.sock"),
      clients_(&router_, &sessions_),
      rings_(setup.commands),
      peers_(&context_, setup.config, setup.identity, setup.commands, this),
      ports_(setup.facts.device_names(), setup.port_watch),
      gpu_health_(setup.gpu_watch),
      tunings_(tuning_setup_of(setup), [this] { return peers_.lanes(); }),
      jobs_(setup.config.node, {&sessions_, &clients_, &peers_, setup.commands, &tunings_},
            setup.flight, {&node_log_, setup.store, setup.job_sizes}),
      membership_(setup.config.node, membership_options_of(setup.config), random_u64(), &jobs_),
      attach_(setup.config.runtime_dir + "/attach.sock",
              {setup.config.node, setup.identity.boot_id, 0, setup.gpus != nullptr,
               setup.facts.gpu_direct.on},
              &sessions_, &rings_, &epoll_, this),
      queries_(setup.config, setup.facts),
      requests_(setup.config,
                {&sessions_, &clients_, &membership_, &jobs_, setup.commands, setup.events, &rings_,
                 &queries_, this, setup.flight, &gpu_opener_, &gpu_health_}),
      vitals_(setup.config, setup.facts, setup.metrics) {
  const Queries::Parts parts{&sessions_, &clients_,      &membership_,   &jobs_,
                             &peers_,    &ports_,        &gpu_health_,   &requests_,
                             &tunings_,  setup.commands, setup.recorder, setup.look,
                             this,       setup.happened, setup.gpus};
  queries_.connect(parts);
  vitals_.connect(parts);
}

Status ControlThread::open() {
  owner_.adopt();
  const OwnIdentity& self = setup_.identity;
  const auto memory = node_log_.open(setup_.store, setup_.config.node, self.boot_id,
                                     {self.slots, self.slice_bytes});
  const core::Time grace = node_log_.on() ? setup_.config.restart_grace : 0;
  // Without a grace a restart ends what this daemon holds, so none of that is written down: only
  // what it promises to other daemons is.
  jobs_.outlive_restarts(grace > 0);
  const bool knows_of_some = memory && !memory->sessions.empty();
  if (grace > 0 || knows_of_some) sessions_.remember_in(&node_log_, setup_.store);
  if (grace != setup_.config.restart_grace) {
    spdlog::warn(
        "restart-grace has no effect: nobody keeps what is under way while gradringd restarts; run "
        "it under systemd or as gradringd --keep");
  }
  attach_.set_restart_grace(grace);
  peers_.set_life(node_log_.life(), grace);
  if (Status status = peers_.open(); !status.ok()) return status;
  if (Status status = router_.open(setup_.store); !status.ok()) return status;
  if (Status status = attach_.open(setup_.store); !status.ok()) return status;
  for (const std::string& path : {router_.path(), attach_.path()}) {
    const Config& config = setup_.config;
    if (Status status = set_access(path, config.socket_mode, config.socket_group); !status.ok()) {
      return status;
    }
  }
  if (memory) restore(*memory);
  if (memory) node_log_.restored();
  setup_.store->forget_rest();  // of another version, or of a life that is over
  epoll_.add(setup_.events->event_fd(), tag_of(Source::kMailbox));
  return open_hardware();
}

void ControlThread::run() {
  owner_.adopt();
  tell_systemd("READY=1");
  int work = 1;
  while (phase_ != Phase::kStopped) {
    wait(work > 0 ? 0 : next_deadline(monotonic_now()));
    const core::Time began = monotonic_now();
    work = do_work(began);
    if (work > 0) vitals_.loop()->worked(monotonic_now() - began);
  }
  constexpr int kLinger = 300;  // ms, for the last words to trainers and peers
  peers_.linger(kLinger);
  router_.linger(kLinger);
  for (const std::string& path : {router_.path(), attach_.path()}) {
    remove_listener(path, setup_.store);
  }
  setup_.store->forget_all();
}

int ControlThread::do_work(core::Time now) {
  owner_.check();
  int work = take_events(now);
  work += peers_.do_work(std::span(items_).subspan(2), now);
  // Before descriptors: what a trainer has said before it went still counts.
  work += read_clients(now);
  work += read_descriptors(now);
  work += tick_if_due(now);
  work += requests_.submit_early();
  work += flush_answers();
  return work;
}

void ControlThread::wait(core::Time until) {
  items_.clear();
  items_.push_back({nullptr, epoll_.fd(), ZMQ_POLLIN, 0});
  // Not reading is how a full data thread slows trainers down.
  const bool full = setup_.commands->full();
  items_.push_back({router_.socket(), 0, static_cast<short>(full ? 0 : ZMQ_POLLIN), 0});
  peers_.add_poll_items(&items_);
  const core::Time left = std::max<core::Time>(until - monotonic_now(), 0);
  const auto milliseconds = (left + core::kMillisecond - 1) / core::kMillisecond;
  zmq_poll(items_.data(), static_cast<int>(items_.size()), static_cast<long>(milliseconds));
}

core::Time ControlThread::next_deadline(core::Time now) const {
  core::Time next = std::min(
      {next_tick_, peers_.next_deadline(), attach_.next_deadline(), queries_.next_deadline()});
  if (setup_.commands->full()) next = std::min(next, now + kFullPause);
  if (clients_.waiting()) next = std::min(next, now + kUnreadPause);
  if (const core::Time due = membership_.next_deadline(); due != 0) next = std::min(next, due);
  return next;
}

// ---- from the data thread ----

int ControlThread::take_events(core::Time now) {
  setup_.events->take(&taken_);
  for (Event& event : taken_) {
    std::visit([&](auto& e) { apply(e, now); }, event);
  }
  return static_cast<int>(taken_.size());
}

void ControlThread::apply(const Completed& completed, core::Time) {
  Session* session = sessions_.find(completed.session);
  if (session == nullptr) return;
  const auto ticket = session->open.find(completed.ticket);
  if (completed.by_ring || ticket == session->open.end()) {
    return clients_.complete(*session, completed.ticket, completed.outcome);
  }
  for (const uint64_t segment : {ticket->second.input_segment, ticket->second.output_segment}) {
    if (segment != 0) --session->segments.at(segment).uses;
  }
  session->open_counts -= ticket->second.counts;
  session->open.erase(ticket);
  clients_.complete(*session, completed.ticket, completed.outcome);
  erase_if_free(*session);
}

void ControlThread::apply(const SegmentTakenBack& back, core::Time) {
  Session* session = sessions_.find(back.session);
  if (session != nullptr && !session->gone) requests_.taken_back(*session, back);
}

void ControlThread::apply(const RingClosed& closed, core::Time) {
  Session* session = sessions_.find(closed.session);
  if (session == nullptr) return;
  session->ring = false;
  erase_if_free(*session);
}

void ControlThread::apply(const RingBroken& broken, core::Time) {
  session_ended(broken.session, broken.why);
}

// Of a trainer that is gone, once the data thread has let go of its buffers.
void ControlThread::erase_if_free(const Session& session) {
  if (session.gone && session.open.empty() && !session.ring) sessions_.erase(session.id);
}

void ControlThread::apply(const EngineFailed& failed, core::Time) {
  membership_.engine_failed(failed.job, failed.failure);
}

void ControlThread::apply(const EngineDrained& drained, core::Time) {
  membership_.engine_drained(drained.job);
}

void ControlThread::apply(const JobFrozen& frozen, core::Time) {
  membership_.engine_frozen(frozen.job, frozen.epoch, std::move(*frozen.report));
}

void ControlThread::apply(const EngineAbsent& absent, core::Time) {
  membership_.engine_absent(absent.job, absent.absence);
}

void ControlThread::apply(const EngineAtJoinPoint& at, core::Time) {
  membership_.engine_at_join_point(at.job);
}

void ControlThread::apply(const EngineAsksToStandIn& asks, core::Time) {
  Session* session = sessions_.find(asks.session);
  if (session == nullptr || session->part != JobPart::kJoined || session->job != asks.job) return;
  wire::DaemonMessage message;
  wire::StandIn& stand_in = *message.mutable_stand_in();
  stand_in.set_job(session->handle);
  to_wire(asks.key, stand_in.mutable_key());
  if (asks.signature) to_wire(*asks.signature, stand_in.mutable_signature());
  clients_.tell(*session, std::move(message));
}

void ControlThread::apply(const EngineCondemned& condemned, core::Time) {
  membership_.engine_condemned(condemned.job, condemned.epoch);
}

void ControlThread::apply(const EpochDiffers& differs, core::Time) {
  if (differs.later) {
    membership_.engine_behind(differs.job, differs.node);
  } else {
    membership_.engine_ahead(differs.job, differs.node, differs.its_epoch);
  }
}

void ControlThread::apply(const PeerDataLost& lost, core::Time now) {
  peers_.on_data_lost(lost, now);
}

void ControlThread::apply(const PeersFound& peers, core::Time) { peers_.found(peers.addresses); }

void ControlThread::apply(const NonfiniteFound& found, core::Time) { jobs_.mark_nonfinite(found); }

void ControlThread::apply(const RankLate& late, core::Time) { jobs_.tell_late(late); }

void ControlThread::apply(const OpsTimed& timed, core::Time) { tunings_.measured(timed); }

void ControlThread::apply(const Pulse& pulse, core::Time now) {
  progress_ = pulse.progress;
  peers_.on_pulse(pulse, now);
  queries_.on_pulse(pulse);
  vitals_.on_pulse(pulse, now);
}

void ControlThread::apply(const JobDescription& description, core::Time) {
  queries_.on_description(description);
}

void ControlThread::apply(const ProbeEnded& ended, core::Time) { queries_.on_probe_ended(ended); }

// ---- from trainers and tools ----

int ControlThread::read_clients(core::Time now) {
  if ((items_[1].revents & ZMQ_POLLIN) == 0) return 0;
  ClientRouter::Received received;
  const core::Time until = monotonic_now() + kReadTime;
  for (int count = 0;; ++count) {
    const bool goes_on = count < kMessagesPerTurn && monotonic_now() < until;
    if (!goes_on || setup_.commands->full() || !router_.receive(&received)) return count;
    requests_.handle(received, now);
  }
}

int ControlThread::read_descriptors(core::Time now) {
  if (items_[0].revents == 0) return 0;
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    switch (source_of(tag)) {
      case Source::kAttachListener:
        attach_.on_listener(now);
        break;
      case Source::kAttachSocket:
        attach_.on_socket(id_of(tag), now);
        break;
      case Source::kPidfd:
        attach_.on_pidfd(id_of(tag), now);
        break;
      case Source::kSignals:
        read_signals(now);
        break;
      case Source::kPorts:
        read_ports(now);
        break;
      case Source::kGpus:
        read_gpus(now);
        break;
      case Source::kMailbox:
        break;  // emptied at the start of every turn
    }
  }
  return std::max(count, 0);
}

void ControlThread::session_opened(const Session& session) {
  FlightEvent attached{.kind = FlightKind::kTrainerAttached, .index = session.who.uid};
  attached.value = static_cast<uint64_t>(session.who.pid);
  setup_.flight->record(attached, session.program);
}

// ---- time ----

int ControlThread::tick_if_due(core::Time now) {
  queries_.tick(now);
  if (now >= attach_.next_deadline()) attach_.tick(now);
  if (phase_ != Phase::kServing) advance_phase(now);
  const core::Time change_due = membership_.next_deadline();
  if (change_due != 0 && now >= change_due) membership_.tick(now);
  if (now < next_tick_) return 0;
  next_tick_ = now + tick_interval_;
  peers_.tick(now);
  membership_.tick(now);
  attach_.tick(now);
  setup_.recorder->follow_wall_clock();
  tell_turned_away();
  free_memory_.tick(now);
  for (const auto& [job, table] : tunings_.wanted()) membership_.tune(job, table);
  feed_watchdog(now);
  return 1;
}

int ControlThread::flush_answers() {
  std::set<SessionId> hopeless;
  const int sent = clients_.flush(&hopeless);
  for (const SessionId id : hopeless) session_ended(id, "does not read the daemon's answers");
  return sent;
}

}  // namespace gradring::daemon
