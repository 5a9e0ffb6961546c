#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/peers/peers.h"
#include "daemon/control/sessions/clients.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/control/tunings.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"
#include "daemon/flight/ring.h"
#include "daemon/records/job_memory.h"
#include "daemon/records/node_log.h"

namespace gradring::daemon {

// Carries out what membership decides: tells trainers, peers and the data thread. Calls nobody
// back. Control thread only.
class Jobs final : public core::MembershipActions {
 public:
  struct Job {
    core::View view;
    std::optional<Failure> failure;
    std::map<uint32_t, std::string> ranks_over;      // "left" or "dead", of our own
    std::optional<NonfiniteOrigin> first_nonfinite;  // of this node
    uint32_t weight = 1;                             // on this node
  };

  // Where the jobs' memory outlives the daemon; `log` and `store` may remember nothing.
  struct Records {
    NodeLog* log = nullptr;
    FdStore* store = nullptr;
    JobMemory::Sizes sizes;
  };

  struct Parts {
    Sessions* sessions = nullptr;
    Clients* clients = nullptr;
    Peers* peers = nullptr;
    CommandBox* commands = nullptr;
    Tunings* tunings = nullptr;
  };

  Jobs(std::string node, const Parts& parts, FlightRing* flight, const Records& records)
      : node_(std::move(node)),
        sessions_(parts.sessions),
        clients_(parts.clients),
        peers_(parts.peers),
        commands_(parts.commands),
        tunings_(parts.tunings),
        flight_(flight),
        records_(records) {}

  // Whether the data planes of jobs that begin from now on are written down, so that another life
  // of this daemon can go on with them. That has its price (docs/upgrade.md).
  void outlive_restarts(bool they_do) { data_outlives_ = they_do; }

  const Job* find(const JobId& id) const;
  // Empty if it is not there.
  std::string name_of(const JobId& id) const;
  // Its share of a wire that several jobs want. The job is there.
  void set_weight(const JobId& id, uint32_t weight);
  // Who is in which job, into the flight recorder: a trace begins where this is long past.
  void record_all() const;
  // Jobs that failed here since the daemon began, by Cause.
  const std::array<uint64_t, kCauseLast + 1>& failures() const { return failures_; }
  // One that the last life of the daemon had.
  void restore(const core::View& view, InstallJob install);
  void reserve_handle(uint64_t handle) { next_handle_ = std::max(next_handle_, handle + 1); }
  // To a trainer that has attached again: how its job stands.
  void tell_again(Session& session);
  // The answer to a join that was answered before the restart.
  // After a restart: it is in the job, which the last daemon had written down, although that daemon
  // ended before it wrote the same of the session. Its trainer will ask again.
  void readmit(Session& session, const JobId& job, uint32_t rank);
  void tell_joined(Session& session, uint64_t request);
  // For those who ask: this session's rank has left, or is dead.
  void mark_over(const Session& session, const char* how);
  void close(SessionId session, const JobId& job, const Failure& failure) override;
  void refuse(SessionId session, const Status& why) override;
  // And tells the log, where whoever looks after the node finds it when the job is gone.
  void mark_nonfinite(const NonfiniteFound& found);
  // What the last life had told.
  void recall_nonfinite(const JobId& id, const NonfiniteOrigin& origin);
  // That others wait for a rank of this node, or do not any more.
  void tell_late(const RankLate& late) const;

 private:
  // Slices will go to its members; and they have made ready for that as well.
  void connect_members(const core::View& view);
  void watch_members(const core::View& view);
  void note_failed(const JobId& id, const Failure& failure);
  bool all_are_over_here(const Job& job) const;

  void send(const std::string& node, const core::JobMessage& message) override;
  void install(const core::View& view, const std::vector<SessionId>& sessions) override;
  void admit(SessionId session, const core::View& view) override;
  void leave_engine(const JobId& job, uint32_t rank, const Failure& why) override;
  void fail_engine(const JobId& job, const Failure& failure) override;
  void member_gone(const JobId& job, uint32_t member, const Failure& failure) override;
  void freeze_engine(const JobId& job, uint64_t epoch) override;
  void adopt_engine(const JobId& job, const core::Proposal& proposal,
                    const std::vector<SessionId>& sessions) override;
  void set_grows(const JobId& job, bool grows) override;
  core::Tuning tuning_for(const core::View& view, bool deterministic) override;
  void record(const core::JobRecord& job) override;
  bool keeps_records() const override { return records_.log->on(); }
  void forget(const JobId& job) override;
  void view_changed(SessionId session, const core::View& view) override;
  void remove(const JobId& job) override;
  std::string unreachable_peers() const override;

  const std::string node_;
  Sessions* const sessions_;
  Clients* const clients_;
  Peers* const peers_;
  CommandBox* const commands_;
  Tunings* const tunings_;
  FlightRing* const flight_;
  const Records records_;
  bool data_outlives_ = false;
  std::map<JobId, Job> jobs_;  // installed and not yet removed
  uint64_t next_handle_ = 1;
  std::array<uint64_t, kCauseLast + 1> failures_{};
};

}  // namespace gradring::daemon
