#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>
#include <zmq.hpp>

#include "daemon/config.h"
#include "daemon/control/door/client_router.h"
#include "daemon/control/events.h"
#include "daemon/control/free_memory.h"
#include "daemon/control/hardware/gpu_health.h"
#include "daemon/control/hardware/ports.h"
#include "daemon/control/jobs.h"
#include "daemon/control/peers/peers.h"
#include "daemon/control/queries/queries.h"
#include "daemon/control/sessions/attach.h"
#include "daemon/control/sessions/clients.h"
#include "daemon/control/sessions/requests.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/control/tunings.h"
#include "daemon/control/vitals.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"
#include "daemon/fd_store.h"
#include "daemon/flight/recorder.h"
#include "daemon/notice.h"
#include "daemon/records/node_log.h"
#include "daemon/thread_owner.h"

namespace gradring::daemon {

// Owns sessions, membership, peers and all talking with people; hands the moving of slices to the
// data thread. Everything is for the thread that is in run().
class ControlThread final : private SessionEvents, private PeerEvents, private Drainable {
 public:
  struct Setup {
    Config config;
    OwnIdentity identity;
    StandingFacts facts;
    CommandBox* commands = nullptr;
    EventBox* events = nullptr;
    FlightRing* flight = FlightRing::off();
    FlightRecorder* recorder = nullptr;  // whose ring that is
    FdStore* store = nullptr;
    machine::LookApart* look = nullptr;  // started
    JobMemory::Sizes job_sizes;
    const EventRing* happened = nullptr;
    machine::PortWatch* port_watch = nullptr;
    machine::GpuWatch* gpu_watch = nullptr;  // started
    metrics::Board* metrics = nullptr;       // where somebody watches
    core::PlanOptions plan;
    transport::Gpus* gpus = nullptr;  // null: they sum for nobody
    // Reads the configuration anew, for SIGHUP; an error is one line.
    std::function<tl::expected<Config, std::string>()> reload;
  };
  // Expects SIGTERM, SIGINT, SIGHUP and SIGUSR1 to be blocked in every thread.
  explicit ControlThread(const Setup& setup);
  ~ControlThread() override;

  // Binds everything. The caller holds the lock of the runtime directory.
  Status open();
  // Until the daemon has drained, after a signal or because somebody asked for it.
  void run();
  // After that: whether what was opened of GPUs for trainers is closed in time, as far as they have
  // let go of it.
  bool gpus_rest_within(std::chrono::milliseconds time) { return gpu_opener_.rests_within(time); }

 private:
  enum class Phase : uint8_t { kServing, kDraining, kStopping, kLastWords, kStopped };

  int do_work(core::Time now);
  void wait(core::Time until);
  core::Time next_deadline(core::Time now) const;

  int take_events(core::Time now);
  void apply(const Completed& completed, core::Time now);
  void apply(const SegmentTakenBack& back, core::Time now);
  void apply(const RingClosed& closed, core::Time now);
  void apply(const RingBroken& broken, core::Time now);
  void apply(const EngineFailed& failed, core::Time now);
  void apply(const EngineDrained& drained, core::Time now);
  void apply(const PeersFound& peers, core::Time now);
  void apply(GpuMemoryOpened& opened, core::Time) { requests_.gpu_opened(opened); }
  void apply(const GpuMemoryLetGo& let_go, core::Time) { requests_.gpu_let_go(let_go); }
  void apply(const SegmentFreed& freed, core::Time) { requests_.segment_freed(freed); }
  void apply(const JobFrozen& frozen, core::Time now);
  void apply(const EngineAbsent& absent, core::Time now);
  void apply(const EngineAtJoinPoint& at, core::Time now);
  void apply(const EngineAsksToStandIn& asks, core::Time now);
  void apply(const EngineCondemned& condemned, core::Time now);
  void apply(const EpochDiffers& differs, core::Time now);
  void apply(const PeerDataLost& lost, core::Time now);
  void apply(const NonfiniteFound& found, core::Time now);
  void apply(const RankLate& late, core::Time now);
  void apply(const OpsTimed& timed, core::Time now);
  void apply(const Pulse& pulse, core::Time now);
  void apply(const JobDescription& description, core::Time now);
  void apply(const ProbeEnded& ended, core::Time now);

  void erase_if_free(const Session& session);
  int read_clients(core::Time now);
  int read_descriptors(core::Time now);
  int tick_if_due(core::Time now);
  int flush_answers();

  void session_opened(const Session& session) override;
  // losses.cc
  void session_ended(SessionId session, const std::string& evidence) override;
  void trainer_failed(Session* session, const std::string& evidence) override;
  Failure lose(Session* session, const std::string& evidence, const std::string& device = "");
  void peer_up(const std::string& node) override;
  void peer_lost(const std::string& node, Cause cause, const std::string& evidence) override;
  void peer_stopped(const std::string& node) override;
  void part_with(const std::string& node, Cause cause, const std::string& evidence);
  void peer_away(const std::string& node, const std::string& evidence) override;
  void lane_lost(const std::string& node, const std::string& why) override;
  void peer_suspect(const std::string& node, bool suspected) override;
  void peer_message(const std::string& node, const wire::PeerMessage& message) override;

  // restore.cc
  void restore(const NodeMemory& memory);
  void restore(const wire::SessionRecord& record, core::Time now);
  Status restore(const core::JobRecord& job, core::Time now);
  Session* session_of(const core::JobRecord& job, const core::Submission& submission);

  // hardware.cc
  Status open_hardware();
  void read_ports(core::Time now);
  void read_gpus(core::Time now);
  void gpu_lost(SessionId id, const GpuHealth::Lost& lost);

  // lifecycle.cc
  Status open_signals();
  void read_signals(core::Time now);
  void reload();
  void make_way();
  void drain(std::optional<core::Time> timeout) override;
  void serve_again() override;
  DrainState drain_state() const override;
  void drain_by_signal(core::Time now);
  void start_draining(core::Time timeout, core::Time now);
  void set_draining(bool draining);
  void start_stopping(core::Time now);
  void advance_phase(core::Time now);
  void tell_systemd(const std::string& state) const;
  void feed_watchdog(core::Time now);

  const Setup setup_;
  const core::Time tick_interval_;
  ThreadOwner owner_;
  zmq::context_t context_;
  Epoll epoll_;
  Fd signals_;
  NodeLog node_log_;
  GpuOpener gpu_opener_;
  Sessions sessions_;
  ClientRouter router_;
  Clients clients_;
  Rings rings_;
  Peers peers_;
  Ports ports_;
  GpuHealth gpu_health_;
  Tunings tunings_;
  Jobs jobs_;
  core::Membership membership_;
  AttachServer attach_;
  Queries queries_;
  Requests requests_;
  Vitals vitals_;
  Seldom told_of_peers_;

  std::vector<zmq_pollitem_t> items_;  // of the last wait: descriptors, trainers, then peers
  std::vector<Event> taken_;           // kept for its capacity
  core::Time next_tick_ = 0;
  FreeMemory free_memory_;
  Phase phase_ = Phase::kServing;
  core::Time phase_deadline_ = 0;
  bool by_signal_ = false;  // so it drains
  struct {
    core::Time at = 0;
    bool by_parent = false;           // such as the keeper
  } signalled_;                       // the first of its signals
  std::vector<std::string> cut_off_;  // jobs that had not ended when it had drained
  core::Time watchdog_interval_ = 0;  // 0: nobody watches
  core::Time watchdog_fed_ = 0;
  uint64_t progress_ = 0;  // of the data thread, by its last pulse
  uint64_t progress_fed_ = 0;
};

SessionLimits session_limits_of(const Config& config);

}  // namespace gradring::daemon
