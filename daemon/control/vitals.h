#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "daemon/config.h"
#include "daemon/control/queries/queries.h"
#include "daemon/data/messages.h"
#include "daemon/loop_watch.h"
#include "daemon/metrics/board.h"
#include "daemon/metrics/job_book.h"
#include "daemon/metrics/peer_book.h"
#include "daemon/metrics/recent_max.h"

namespace gradring::daemon {

// Keeps what is shown to those who watch from afar, and hangs up a new snapshot whenever the data
// thread has sent its figures: once a second, and never where no endpoint is configured. Control
// thread only.
class Vitals {
 public:
  // `board` nullptr: nobody watches, and nothing here costs anything.
  Vitals(const Config& config, const StandingFacts& facts, metrics::Board* board)
      : config_(config), facts_(facts), board_(board) {}
  // Once, before the first pulse.
  void connect(const Queries::Parts& parts) { parts_ = parts; }

  // ---- what is counted as it happens ----
  void peer_lost(const std::string& node, Cause cause) { peers_.lost(node, cause); }
  void lane_lost(const std::string& node) { peers_.lane_lost(node); }
  void client_died(const std::string& evidence);
  void set_draining(bool draining) { draining_ = draining; }
  LoopWatch* loop() { return &loop_; }

  void on_pulse(const Pulse& pulse, core::Time now);

 private:
  void fill_process(metrics::Snapshot* to, core::Time now);
  void fill_limits(metrics::Snapshot* to) const;
  void fill_jobs(metrics::Snapshot* to) const;
  void fill_peers(metrics::Snapshot* to, core::Time now);
  void fill_traffic(metrics::Snapshot* to, const Pulse& pulse) const;

  const Config config_;
  const StandingFacts facts_;
  metrics::Board* const board_;
  Queries::Parts parts_;
  metrics::JobBook jobs_{metrics::JobBook::Bounds{}};
  metrics::PeerBook peers_;
  std::array<uint64_t, 3> deaths_{};  // by kHows
  bool draining_ = false;
  LoopWatch loop_;
  metrics::RecentMax longest_here_{60 * core::kSecond};
  metrics::RecentMax longest_there_{60 * core::kSecond};
};

}  // namespace gradring::daemon
