#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/control/hardware/gpu_health.h"
#include "daemon/control/hardware/ports.h"
#include "daemon/control/jobs.h"
#include "daemon/control/peers/peers.h"
#include "daemon/control/queries/asker.h"
#include "daemon/control/queries/drain_queries.h"
#include "daemon/control/queries/far_queries.h"
#include "daemon/control/queries/flight_queries.h"
#include "daemon/control/queries/probe_queries.h"
#include "daemon/control/queries/within.h"
#include "daemon/control/sessions/clients.h"
#include "daemon/control/sessions/requests.h"
#include "daemon/control/tunings.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"
#include "daemon/event_ring.h"
#include "daemon/gpu_direct.h"
#include "daemon/notice.h"
#include "transport/machine/look_apart.h"

namespace gradring::daemon {

// What does not change while the daemon runs.
struct StandingFacts {
  struct Lane {
    std::string device;
    std::string reason;
    wire::GidReport gid;  // of an RDMA port: the address that is used; of other devices empty
    bool reaches_gpus = false;
  };
  std::string transport;
  std::string devices;
  std::string devices_reason;
  core::Time started = 0;
  std::vector<Lane> lanes;
  std::string gpu_sums_by;  // the GPUs that sum for ranks of this node; empty: none does
  std::string gpu_sums_reason;
  std::string gpu_sums_way;  // of several GPUs
  bool gpus_under_mps = false;
  GpuDirect gpu_direct;

  std::vector<std::string> device_names() const {
    std::vector<std::string> names;
    for (const Lane& lane : lanes) names.push_back(lane.device);
    return names;
  }
};

// Answers gradringctl: at once from what is known here, or, for one job, when the data thread and
// the other members have told their parts or half a second has passed. Control thread only.
class Queries final : public QuerySink {
 public:
  struct Parts {
    Sessions* sessions = nullptr;
    Clients* clients = nullptr;
    core::Membership* membership = nullptr;
    Jobs* jobs = nullptr;
    Peers* peers = nullptr;
    const Ports* ports = nullptr;
    const GpuHealth* gpu_health = nullptr;
    Requests* requests = nullptr;
    const Tunings* tunings = nullptr;
    CommandBox* commands = nullptr;
    FlightRecorder* recorder = nullptr;
    machine::LookApart* look = nullptr;
    Drainable* daemon = nullptr;
    const EventRing* happened = nullptr;
    const transport::Gpus* gpus = nullptr;  // null: they sum for nobody
  };
  Queries(const Config& config, const StandingFacts& facts) : config_(config), facts_(facts) {}
  // Once, before the first query: the parts know one another.
  void connect(const Parts& parts) {
    parts_ = parts;
    answers_.emplace(parts.clients, parts.peers);
    far_.emplace(*answers_, parts.peers);
    probes_.emplace(config_.node, facts_.device_names(), *answers_, parts.commands);
    flight_.emplace(config_, FlightQueries::Parts{parts.recorder, parts.membership, parts.jobs,
                                                  parts.commands});
    drain_.emplace(config_.node, *answers_, parts.daemon);
  }

  void query(const std::string& routing_id, const Credentials& who, uint64_t request,
             const wire::Query& query) override;

  // ---- what the answers are made of ----
  void on_pulse(const Pulse& pulse) { pulse_ = pulse; }
  void on_description(const JobDescription& description);
  void on_question(const std::string& node, const wire::Question& question);
  void on_reply(const std::string& node, const wire::Reply& reply);
  void peer_gone(const std::string& node, const std::string& evidence) {
    far_->peer_gone(node, evidence);
  }
  void on_probe_ended(const ProbeEnded& ended) { probes_->on_ended(ended); }
  void on_peer_query(const std::string& node, const wire::JobQuery& query);
  void on_peer_reply(const std::string& node, const wire::JobQueryReply& reply);
  void set_draining(bool draining) {
    draining_ = draining;
    probes_->refuse(draining);
  }
  void drain_over(core::Time now) { drain_->over(now); }
  bool owes_a_drains_end(core::Time now) const { return drain_->owes_its_end(now); }
  void set_config(const Config& config) { config_ = config; }

  // Sends what has waited long enough.
  void tick(core::Time now);
  core::Time next_deadline() const;

 private:
  struct Pending {
    Asker asker;
    bool part = false;   // a peer asks for our part of the job
    bool alone = false;  // a trainer does, and no peer is asked
    JobId job{};
    wire::JobReport report;
    bool awaits_data = false;
    std::set<std::string> awaited;  // nodes
    core::Time deadline = 0;
    std::optional<core::Time> nonfinite_at;  // of the report's first_nonfinite, by our clock
    Within within = {};
  };

  void answer(const Asker& asker, const wire::Query& query);
  void answer(const Asker& asker, FlightQueries::Answer answer);
  void query_job(const Asker& asker, const wire::Query& query);
  Status place_for_job_query(const Asker& asker) const;
  Status place_for_trace(const Asker& asker);
  void describe_next();
  void take_description(std::map<uint64_t, Pending>::iterator it,
                        const JobDescription& description);
  void finish_if_complete(std::map<uint64_t, Pending>::iterator it);
  void finish(std::map<uint64_t, Pending>::iterator it);
  void keep_first(const wire::NonfiniteReport& origin, Pending* pending);

  void follow_look(core::Time now);

  // topology_report.cc
  wire::TopologyReport topology_report() const;
  void add_rings(wire::TopologyReport* report) const;

  // event_report.cc
  wire::EventsReport events_report(uint64_t after) const;

  // settings.cc
  void set(const Asker& asker, const wire::Query& query);

  // reports.cc
  wire::StatusReport status_report() const;
  wire::JobsReport jobs_report() const;
  wire::JobSummary summary_of(const core::JobInfo& info) const;
  void add_missing_ranks(const core::JobInfo& info, wire::JobReport* report) const;
  void add_within(const JobId& job, Within* within) const;
  void add_own_part(const Jobs::Job& job, const JobDescription& description,
                    wire::JobReport* report) const;
  static void add_ranks_waited_for(const Jobs::Job& job, const JobDescription& description,
                                   wire::JobReport* report);

  Config config_;
  const StandingFacts facts_;
  Parts parts_;
  std::optional<Answers> answers_;
  std::optional<FarQueries> far_;
  std::optional<FlightQueries> flight_;
  std::optional<ProbeQueries> probes_;
  std::optional<DrainQueries> drain_;
  LinesOfUsers traces_;
  bool draining_ = false;
  Pulse pulse_;  // the latest
  std::map<uint64_t, Pending> pending_;
  uint64_t next_query_ = 1;
  std::optional<JobId> described_;  // by the data thread, now
};

}  // namespace gradring::daemon
