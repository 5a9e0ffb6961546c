#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/data/job_figures.h"
#include "daemon/data/op_stats.h"
#include "proto/verdict.h"

// What a daemon shows to those who watch it from afar, as plain numbers. The control thread makes
// one a second, and only while an endpoint is configured; nobody changes it afterwards. Labels are
// fit for Prometheus and bounded: see JobBook and PeerBook.
namespace gradring::daemon::metrics {

using CauseCounts = std::array<uint64_t, kCauseLast + 1>;  // by Cause

// A label that stands for all that have no series of their own.
inline constexpr const char* kOther = "other";

// Of something that is refused when it is at its limit.
struct Gauge {
  uint64_t used = 0;
  uint64_t limit = 0;
};

// A rank of this node in a job.
struct RankSeries {
  std::string label;
  uint64_t submitted = 0;
  uint64_t nonfinite = 0;
  core::StepTotals steps;
  std::optional<core::Time> quiet;  // since its last submission; of a rank that is there
};

// A job while it runs; of those that share a label sums, the longest time and the highest epoch,
// and the largest of what has a limit for each job.
struct LiveJob {
  uint64_t epoch = 0;
  uint32_t size = 0;   // ranks
  uint32_t local = 0;  // of these, that are or were of this node
  uint32_t nodes = 0;
  uint32_t ops_open = 0;
  core::Time oldest_open = 0;  // so long
  uint64_t staging_bytes = 0;
  uint64_t feedback_bytes = 0;
};

struct JobSeries {
  std::string label;
  OpStats ops;
  uint64_t slices_damaged = 0;
  uint64_t slices_resent = 0;
  std::vector<RankSeries> ranks;
  std::optional<LiveJob> live;
};

struct LaneSeries {
  std::string state;  // empty: of several peers, or of one that is not there
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t sends = 0;        // of payloads that were not copied
  core::Time send_time = 0;  // of all these together
  uint64_t path_rate = 0;    // bytes per second, LaneReport's; 0: not known, or of several peers
};

struct PeerSeries {
  std::string label;
  std::string state;                 // empty: of several
  std::optional<core::Time> silent;  // of one that was heard
  std::vector<LaneSeries> lanes;     // by number
  uint64_t dropped_frames = 0;
  uint64_t damaged = 0;
  uint64_t lane_losses = 0;  // of lanes that were in use, while others went on
  CauseCounts losses{};      // of the peer itself
};

// A port by which a lane goes; as many as are configured.
struct PortSeries {
  std::string device;
  uint32_t port = 0;  // 0: an interface
  bool active = false;
  std::vector<std::pair<std::string, uint64_t>> changes;
  std::vector<std::pair<std::string, uint64_t>> counters;  // none: it counts nothing
};

// A GPU, or a part of one, that is watched; as many as NVML shows.
struct GpuSeries {
  std::string gpu;
  bool unusable = false;
  std::vector<std::pair<std::string, uint64_t>> errors;  // by Xid; 32 kinds at most
};

// A thread's event loop.
struct LoopSeries {
  core::Time busy = 0;
  core::Time longest = 0;  // turn of the last minute
};

struct Snapshot {
  core::Time taken = 0;
  std::string node;
  std::string version;
  std::string transport;
  core::Time uptime = 0;
  bool draining = false;
  bool gpus_given_up = false;  // all of the node, until the daemon is started anew

  double cpu_seconds = 0;
  uint64_t rss_bytes = 0;
  Gauge open_files;
  Gauge sessions;
  Gauge segment_bytes;          // of the uid that holds most
  Gauge jobs;                   // that form or run
  uint64_t staging_limit = 0;   // bytes, of a job
  uint64_t feedback_limit = 0;  // likewise
  LoopSeries control_loop;
  LoopSeries data_loop;

  std::map<std::string, uint64_t> jobs_by_state;
  CauseCounts job_failures{};
  std::map<std::string, uint64_t> client_deaths;  // by how
  std::vector<JobSeries> job_series;

  std::map<std::string, uint64_t> peers_by_state;
  std::vector<PeerSeries> peer_series;
  std::vector<PortSeries> ports;
  std::vector<GpuSeries> gpu_series;

  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t payload_bytes_sent = 0;
  uint64_t payload_bytes_received = 0;
  uint64_t registrations = 0;
  uint64_t registered_bytes = 0;
  uint64_t bundles_sent = 0;
  uint64_t frames_bundled = 0;
  GpuTraffic gpus;
  std::map<std::string, uint64_t> frames_dropped;      // by why
  std::map<std::string, uint64_t> malformed_messages;  // by whom
};

}  // namespace gradring::daemon::metrics
