#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "daemon/config.h"
#include "daemon/control/clients.h"
#include "daemon/control/jobs.h"
#include "daemon/control/peers.h"
#include "daemon/control/requests.h"
#include "daemon/control/tunings.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"

namespace gradring::daemon {

// What does not change while the daemon runs.
struct StandingFacts {
  std::string transport;
  std::string devices;
  std::string devices_reason;
  core::Time started = 0;
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
    Requests* requests = nullptr;
    const Tunings* tunings = nullptr;
    CommandBox* commands = nullptr;
  };
  Queries(const Config& config, const StandingFacts& facts) : config_(config), facts_(facts) {}
  // Once, before the first query: the parts know one another.
  void connect(const Parts& parts) { parts_ = parts; }

  void query(const std::string& routing_id, uint64_t request, const wire::Query& query) override;

  // ---- what the answers are made of ----
  void on_pulse(const Pulse& pulse) { pulse_ = pulse; }
  void on_description(const JobDescription& description);
  void on_peer_query(const std::string& node, const wire::JobQuery& query);
  void on_peer_reply(const std::string& node, const wire::JobQueryReply& reply);
  void set_draining() { draining_ = true; }
  void set_config(const Config& config) { config_ = config; }

  // Sends what has waited long enough.
  void tick(core::Time now);
  core::Time next_deadline() const;

 private:
  struct Pending {
    std::string routing_id;  // of the client; empty: a peer asks for our part
    uint64_t request = 0;    // the client's or the peer's own number
    std::string node;        // of the peer
    JobId job{};
    wire::JobReport report;
    bool awaits_data = false;
    std::set<std::string> awaited;  // nodes
    core::Time deadline = 0;
    std::optional<core::Time> nonfinite_at;  // of the report's first_nonfinite, by our clock
  };

  void answer(const std::string& routing_id, uint64_t request, wire::QueryReply reply);
  void query_job(const std::string& routing_id, uint64_t request, const std::string& name);
  void finish_if_complete(std::map<uint64_t, Pending>::iterator it);
  void finish(std::map<uint64_t, Pending>::iterator it);
  void keep_first(const wire::NonfiniteReport& origin, Pending* pending);

  // reports.cc
  wire::StatusReport status_report() const;
  wire::JobsReport jobs_report() const;
  wire::JobSummary summary_of(const core::JobInfo& info) const;
  void add_missing_ranks(const core::JobInfo& info, wire::JobReport* report) const;
  void add_own_part(const Jobs::Job& job, const JobDescription& description,
                    wire::JobReport* report) const;

  Config config_;
  const StandingFacts facts_;
  Parts parts_;
  bool draining_ = false;
  Pulse pulse_;  // the latest
  std::map<uint64_t, Pending> pending_;
  uint64_t next_query_ = 1;
};

}  // namespace gradring::daemon
