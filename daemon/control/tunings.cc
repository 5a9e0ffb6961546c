#include "daemon/control/tunings.h"

#include <utility>

#include "daemon/tuning_text.h"

namespace gradring::daemon {
namespace {

core::Tuning settled_of(const core::Tuning& tuning) {
  core::Tuning settled;
  for (const core::TunedClass& entry : tuning.classes) {
    settled.set({entry.size_class, entry.settled, {}});
  }
  return settled;
}

wire::TunedSize size_report_of(const core::TunedFinding& finding) {
  wire::TunedSize size;
  const bool endless = finding.size_class + 1 == core::kSizeClasses;
  size.set_up_to_bytes(endless ? 0 : core::size_class_end(finding.size_class));
  size.set_way(to_text(finding.settled));
  if (finding.before) size.set_before(to_text(*finding.before));
  size.set_gain(finding.gain);
  size.set_samples(finding.samples);
  if (finding.tried) size.set_tried(to_text(*finding.tried));
  size.set_left(finding.left);
  return size;
}

}  // namespace

Tunings::Tunings(const Setup& setup, LanesNow lanes_now)
    : setup_(setup),
      auto_(setup.tuning == "auto"),
      lanes_now_(std::move(lanes_now)),
      store_(setup.file) {
  if (auto_ || setup.tuning == "default") return;
  if (auto table = parse_tuning(setup.tuning)) {
    table->fixed = true;
    pinned_ = std::move(*table);
  }
}

core::Tuning Tunings::first(const core::View& view, bool deterministic) const {
  if (pinned_) return *pinned_;
  core::Tuning table;
  table.fixed = deterministic;
  if (!auto_ || deterministic || view.members.size() < 2) return table;
  const auto known = store_.find(tuned_for(view, lanes_now_()));
  return known ? known->table : table;
}

TunedFor Tunings::tuned_for(const core::View& view, const Lanes& lanes) const {
  TunedFor on{{}, setup_.plan.slice_bytes_max, setup_.version};
  for (const core::Member& member : view.members) {
    const auto way = lanes.find(member.node);  // there is none to this node itself
    on.nodes.push_back({member.node, static_cast<uint32_t>(member.ranks.size()),
                        way != lanes.end() ? way->second : 0});
  }
  return on;
}

void Tunings::entered(const core::View& view) {
  const bool ours = view.members.size() > 1 && view.members.front().node == setup_.node;
  if (!ours || view.closed) return ended(view.incarnation);
  Job& job = jobs_[view.incarnation];
  job.view = view;
  if (pinned_) {
    job.first = *pinned_;
  } else if (!auto_ || view.tuning.fixed) {
    job.tuner.reset();
  } else if (TunedFor on = tuned_for(view, lanes_now_()); on != job.on) {
    begin_search(&job, std::move(on));
  } else if (job.tuner) {
    job.tuner->entered(view.tuning);
  } else {
    begin_if_ready(&job);
  }
}

// From what is known of these nodes and lanes, else from the table as it is.
void Tunings::begin_search(Job* job, TunedFor on) const {
  job->tuner.reset();
  job->on = std::move(on);
  job->known = store_.find(job->on);
  job->first = job->known ? job->known->table : settled_of(job->view.tuning);
  begin_if_ready(job);
}

void Tunings::begin_if_ready(Job* job) const {
  if (!job->first || job->view.tuning != *job->first) return;
  core::TunerOptions options;
  options.plan = setup_.plan;
  options.members = static_cast<uint32_t>(job->view.members.size());
  job->tuner.emplace(options, *job->first,
                     job->known ? job->known->searched : std::set<uint32_t>());
  job->recalled = job->tuner->over();
  job->first.reset();
}

void Tunings::measured(const OpsTimed& timed) {
  const auto it = jobs_.find(timed.job);
  if (it == jobs_.end() || !it->second.tuner || it->second.view.epoch != timed.epoch) return;
  for (const core::OpTime& time : timed.times) it->second.tuner->add(time);
}

void Tunings::keep_found(Job* job) {
  KnownTable found{job->tuner->found(), job->tuner->searched()};
  if (found == job->known.value_or(KnownTable{})) return;
  if (store_.keep(job->on, found)) job->known = std::move(found);
}

std::vector<std::pair<JobId, core::Tuning>> Tunings::wanted() {
  std::vector<std::pair<JobId, core::Tuning>> wanted;
  const Lanes lanes = auto_ && !jobs_.empty() ? lanes_now_() : Lanes();
  for (auto& [id, job] : jobs_) {
    if (job.tuner) {  // a lane came or went: what was the best need not be it any more
      TunedFor on = tuned_for(job.view, lanes);
      if (on != job.on) begin_search(&job, std::move(on));
    }
    if (job.first && *job.first != job.view.tuning) {
      wanted.emplace_back(id, *job.first);
    } else if (job.tuner) {
      if (const auto table = job.tuner->wanted()) wanted.emplace_back(id, *table);
      job.recalled = job.recalled && job.tuner->over();
      keep_found(&job);
    }
  }
  return wanted;
}

std::optional<wire::TuningReport> Tunings::report(const JobId& id) const {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return std::nullopt;
  const Job& job = it->second;
  const core::Tuning& table = job.view.tuning;
  if (!table.fixed && !job.tuner && !job.first) return std::nullopt;
  wire::TuningReport report;
  report.set_table(to_text(table));
  report.set_state(table.fixed ? "fixed" : "searching");
  if (!job.tuner) return report;
  for (const core::TunedFinding& finding : job.tuner->findings()) {
    *report.add_sizes() = size_report_of(finding);
  }
  if (job.tuner->over()) report.set_state(job.recalled ? "found before" : "searched");
  return report;
}

}  // namespace gradring::daemon
