#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/data/job_figures.h"
#include "daemon/metrics/snapshot.h"

namespace gradring::daemon::metrics {

// Which jobs and ranks have series of their own, and what these have counted. Whoever comes when
// all places are taken is counted under kOther, for good: a counter that moved from one series to
// another would go backwards. A job that was started again under its name counts on where the last
// one ended, and the series of a name go when it was not used for a while. Pure; one thread.
class JobBook {
 public:
  struct Bounds {
    size_t jobs = 32;
    size_t ranks = 256;  // of all jobs
    // After the end of the last job of a name: Prometheus itself looks back for so long.
    core::Time linger = 300 * core::kSecond;
  };
  explicit JobBook(const Bounds& bounds) : bounds_(bounds) {}

  void update(const DataFigures& figures, core::Time now);
  std::vector<JobSeries> series(core::Time now) const;

 private:
  struct RankTotals {
    uint64_t submitted = 0;
    uint64_t nonfinite = 0;
    core::StepTotals steps;
  };
  struct Totals {
    OpStats ops;
    uint64_t slices_damaged = 0;
    uint64_t slices_resent = 0;
    std::map<std::string, RankTotals> ranks;  // by label
  };
  struct Entry {
    Totals over;                       // of jobs that have ended
    std::map<JobId, JobFigures> live;  // as they were last
    std::set<uint32_t> ranks;          // with series of their own
    bool full = false;                 // a rank had no place: no other gets one any more
    core::Time seen = 0;
  };

  const std::string& name_for(const JobFigures& job);
  void see(const JobFigures& job, bool ended, core::Time now);
  void keep_ranks(Entry* entry, const JobFigures& job);
  static std::string label_of_rank(const Entry& entry, uint32_t rank);
  static void add(Totals* to, const Entry& entry, const JobFigures& job);

  const Bounds bounds_;
  std::map<std::string, Entry> entries_;   // by label
  std::map<JobId, std::string> label_of_;  // of live jobs
  size_t ranks_ = 0;                       // with series of their own
};

}  // namespace gradring::daemon::metrics
