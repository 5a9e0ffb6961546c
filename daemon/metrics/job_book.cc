#include "daemon/metrics/job_book.h"

#include <algorithm>

#include "daemon/metrics/labels.h"

namespace gradring::daemon::metrics {

const std::string& JobBook::name_for(const JobFigures& job) {
  const auto known = label_of_.find(job.job);
  if (known != label_of_.end()) return known->second;
  std::string label = label_of(job.name);
  if (entries_.count(label) == 0) {
    const size_t own = entries_.size() - entries_.count(kOther);
    if (own >= bounds_.jobs) label = kOther;
  }
  return label_of_.emplace(job.job, std::move(label)).first->second;
}

void JobBook::keep_ranks(Entry* entry, const JobFigures& job) {
  for (const RankFigures& rank : job.ranks) {
    if (entry->ranks.count(rank.rank) > 0) continue;
    entry->full = entry->full || ranks_ >= bounds_.ranks;
    if (entry->full) continue;
    entry->ranks.insert(rank.rank);
    ++ranks_;
  }
}

void JobBook::see(const JobFigures& job, bool ended, core::Time now) {
  const std::string& label = name_for(job);
  Entry& entry = entries_[label];
  if (label != kOther) keep_ranks(&entry, job);
  entry.seen = now;
  if (!ended) {
    entry.live[job.job] = job;
    return;
  }
  // An elastic job that was over here takes this node in again under the same id, also between two
  // looks: what it counts then begins at 0.
  add(&entry.over, entry, job);
  entry.live.erase(job.job);
}

void JobBook::update(const DataFigures& figures, core::Time now) {
  for (const JobFigures& job : figures.ended) see(job, true, now);
  for (const JobFigures& job : figures.jobs) see(job, false, now);
  std::set<JobId> live;
  for (const JobFigures& job : figures.jobs) live.insert(job.job);
  std::erase_if(label_of_, [&live](const auto& known) { return live.count(known.first) == 0; });
  // Those of which no last word was heard have counted all they ever will.
  for (auto& [label, entry] : entries_) {
    for (auto it = entry.live.begin(); it != entry.live.end();) {
      if (live.count(it->first) > 0) {
        ++it;
        continue;
      }
      add(&entry.over, entry, it->second);
      it = entry.live.erase(it);
    }
  }
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Entry& entry = it->second;
    const bool gone = entry.live.empty() && now - entry.seen >= bounds_.linger;
    if (!gone || it->first == kOther) {
      ++it;
      continue;
    }
    ranks_ -= entry.ranks.size();
    it = entries_.erase(it);
  }
}

std::string JobBook::label_of_rank(const Entry& entry, uint32_t rank) {
  return entry.ranks.count(rank) > 0 ? std::to_string(rank) : kOther;
}

void JobBook::add(Totals* to, const Entry& entry, const JobFigures& job) {
  to->ops += job.ops;
  to->slices_damaged += job.slices_damaged;
  to->slices_resent += job.slices_resent;
  for (const RankFigures& rank : job.ranks) {
    RankTotals& totals = to->ranks[label_of_rank(entry, rank.rank)];
    totals.submitted += rank.submitted;
    totals.nonfinite += rank.nonfinite;
    totals.steps += rank.steps;
  }
}

std::vector<JobSeries> JobBook::series(core::Time now) const {
  std::vector<JobSeries> list;
  for (const auto& [label, entry] : entries_) {
    Totals totals = entry.over;
    std::map<std::string, core::Time> quiet;
    JobSeries& series = list.emplace_back();
    series.label = label;
    for (const auto& [id, job] : entry.live) {
      add(&totals, entry, job);
      if (!series.live) series.live.emplace();
      LiveJob& live = *series.live;
      live.epoch = std::max(live.epoch, job.epoch);
      live.size += job.size;
      live.local += static_cast<uint32_t>(job.ranks.size());
      live.nodes = std::max(live.nodes, job.nodes);
      live.ops_open += job.ops_open;
      live.staging_bytes = std::max(live.staging_bytes, job.staging_bytes);
      live.feedback_bytes = std::max(live.feedback_bytes, job.feedback_bytes);
      if (job.oldest_open != 0)
        live.oldest_open = std::max(live.oldest_open, now - job.oldest_open);
      for (const RankFigures& rank : job.ranks) {
        if (entry.ranks.count(rank.rank) == 0 || rank.last_submission == 0) continue;
        quiet[std::to_string(rank.rank)] = std::max<core::Time>(now - rank.last_submission, 0);
      }
    }
    series.ops = totals.ops;
    series.slices_damaged = totals.slices_damaged;
    series.slices_resent = totals.slices_resent;
    for (const auto& [rank, counted] : totals.ranks) {
      RankSeries& to = series.ranks.emplace_back();
      to.label = rank;
      to.submitted = counted.submitted;
      to.nonfinite = counted.nonfinite;
      to.steps = counted.steps;
      if (const auto it = quiet.find(rank); it != quiet.end()) to.quiet = it->second;
    }
  }
  return list;
}

}  // namespace gradring::daemon::metrics
