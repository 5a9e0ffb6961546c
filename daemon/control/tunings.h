#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client.pb.h"
#include "daemon/core/tuner.h"
#include "daemon/core/view.h"
#include "daemon/data/messages.h"
#include "daemon/records/tuning_store.h"

namespace gradring::daemon {

// Looks after the tables by which the sums of jobs go: says which one a job begins with, and, where
// this node hosts the lowest rank of a job and `tuning` is auto, looks for a better one and keeps
// what it finds. Asks for tables; whether a job gets them its members agree on. Control thread
// only.
class Tunings {
 public:
  struct Setup {
    std::string node;
    std::string tuning;  // the option: default, auto, or a table
    std::string file;
    std::string version;     // of gradring and its transport
    core::PlanOptions plan;  // of every job
  };
  // Lanes that carry slices, by the node that they lead to.
  using Lanes = std::unordered_map<std::string, uint32_t>;
  using LanesNow = std::function<Lanes()>;

  Tunings(const Setup& setup, LanesNow lanes_now);

  // ---- jobs ----
  core::Tuning first(const core::View& view, bool deterministic) const;
  // A view that this node is in has begun.
  void entered(const core::View& view);
  void ended(const JobId& job) { jobs_.erase(job); }

  // ---- times ----
  void measured(const OpsTimed& timed);
  // Jobs, and the tables that they should have instead of theirs. To be asked now and then.
  std::vector<std::pair<JobId, core::Tuning>> wanted();

  // Nothing where all goes by default and nobody looks for better, or another node does.
  std::optional<wire::TuningReport> report(const JobId& job) const;

 private:
  struct Job {
    core::View view;
    TunedFor on;                        // of the search
    std::optional<core::Tuning> first;  // that the job should have before anything else
    std::optional<KnownTable> known;    // from the file, or in it by now
    std::optional<core::Tuner> tuner;
    bool recalled = false;  // it had nothing to try: all was known
  };

  TunedFor tuned_for(const core::View& view, const Lanes& lanes) const;
  void begin_search(Job* job, TunedFor on) const;
  void begin_if_ready(Job* job) const;
  void keep_found(Job* job);

  const Setup setup_;
  const bool auto_;
  std::optional<core::Tuning> pinned_;
  const LanesNow lanes_now_;
  TuningStore store_;
  std::map<JobId, Job> jobs_;  // whose lowest rank is here
};

}  // namespace gradring::daemon
