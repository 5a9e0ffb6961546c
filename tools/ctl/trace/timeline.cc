#include "tools/ctl/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <tuple>

#include "proto/frame.h"
#include "proto/hash.h"
#include "tools/ctl/flight/words.h"

namespace gradring::tools {
namespace {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kPartial:
      return "partial";
    case Phase::kFinal:
      return "final";
    case Phase::kDirect:
      return "direct";
    case Phase::kRising:
      return "rising";
  }
  return "slice";
}

uint64_t flow_of(const FlightEvent& event) {
  const std::string words =
      fmt::format("{}/{}/{}", hex(event.job), event.key.space, event.key.sequence);
  return fnv1a(std::as_bytes(std::span(words)));
}

bool is_moment(FlightKind kind) {
  const bool of_an_op = kind >= FlightKind::kOpSubmitted && kind <= FlightKind::kGpuEnded;
  return !of_an_op || kind == FlightKind::kEngineFailed || kind == FlightKind::kSliceDamaged ||
         kind == FlightKind::kOpCondemned || kind == FlightKind::kMismatchReceived;
}

// Of one node.
class Reader {
 public:
  Reader(const NodeFlight& from, std::string job, Timeline* to)
      : from_(from), names_(from.life.entries), about_(std::move(job)), to_(to) {}

  void read() {
    for (const FlightEntry& entry : from_.life.entries) {
      if (entry.event.time < from_.since) continue;
      if (!about_.empty() && !names_.is_about(entry, about_)) continue;
      at_ = entry.event.time + from_.behind;
      take(entry);
    }
    for (auto& [key, op] : open_) to_->ops.push_back(std::move(op));
    // A trace goes on where the one before it ended: that may have been overwritten.
    const auto& entries = from_.life.entries;
    const bool whole = !entries.empty() && entries.front().event.time < from_.since;
    if (!whole) to_->lost += from_.life.overwritten;
  }

 private:
  using OpId = std::tuple<JobPrefix, uint64_t, uint64_t>;
  static OpId id_of(const FlightEvent& event) {
    return {event.job, event.key.space, event.key.sequence};
  }

  std::string job_of(const FlightEvent& event) const {
    const std::string name = names_.job(event.job);
    return name.empty() ? hex(event.job) : name;
  }

  OpSpan op_of(const FlightEvent& event) const {
    OpSpan op;
    op.job = job_of(event);
    op.node = from_.node;
    op.rank = event.rank;
    op.name = names_.op(event.job, event.key);
    op.flow = flow_of(event);
    return op;
  }

  void take(const FlightEntry& entry) {
    const FlightEvent& event = entry.event;
    switch (event.kind) {
      case FlightKind::kOpSubmitted: {
        OpSpan op = op_of(event);
        op.collective = gradring::name_of(static_cast<Collective>(event.code));
        op.bytes = event.value;
        op.submitted = at_;
        open_[{id_of(event), event.rank}] = std::move(op);
        return;
      }
      case FlightKind::kOpMoves:
        for (auto it = open_.lower_bound({id_of(event), 0});
             it != open_.end() && it->first.first == id_of(event); ++it) {
          it->second.moved = at_;
        }
        return;
      case FlightKind::kOpDone:
      case FlightKind::kOpFailed:
        return end(entry);
      case FlightKind::kSliceStarted:
        begin_slice(event, "start");
        return;
      case FlightKind::kSliceLanded:
        begin_slice(event, std::string(name_of(static_cast<Phase>(event.code))));
        return;
      case FlightKind::kSliceForwarded:
      case FlightKind::kSliceDelivered:
        return end_slice(event);
      case FlightKind::kGpuBegan:
        return begin_on_gpus(event);
      case FlightKind::kGpuEnded:
        return end_on_gpus(event);
      default:
        break;
    }
    if (!is_moment(event.kind)) return;
    const ToldEvent told = tell(entry, names_);
    std::string text = told.what;
    for (const std::string* part : {&told.op, &told.who, &told.detail}) {
      if (!part->empty()) text += (part == &told.detail ? ": " : " ") + *part;
    }
    to_->moments.push_back({told.job, from_.node, at_, text, told.bad});
  }

  void end(const FlightEntry& entry) {
    const FlightEvent& event = entry.event;
    const auto it = open_.find({id_of(event), event.rank});
    OpSpan op = it == open_.end() ? op_of(event) : std::move(it->second);
    if (it != open_.end()) open_.erase(it);
    op.ended = at_;
    op.failed = event.kind == FlightKind::kOpFailed;
    op.end = op.failed ? std::string(gradring::name_of(static_cast<Cause>(event.code)))
                       : std::string(gradring::name_of(static_cast<Verdict>(event.code)));
    to_->ops.push_back(std::move(op));
  }

  void begin_slice(const FlightEvent& event, std::string phase) {
    SliceSpan slice;
    slice.job = job_of(event);
    slice.node = from_.node;
    slice.lane = event.rank == kNoRank ? 0 : event.rank;
    slice.op = names_.op(event.job, event.key);
    slice.slice = event.index;
    slice.phase = std::move(phase);
    slice.hop = event.code == 0 ? 0 : event.value;
    slice.from = slice.to = at_;
    slice.flow = flow_of(event);
    slices_[{id_of(event), event.index}] = to_->slices.size();
    to_->slices.push_back(std::move(slice));
  }

  // A slice may be delivered and then go on: the later of both ends its stay.
  void end_slice(const FlightEvent& event) {
    const auto it = slices_.find({id_of(event), event.index});
    if (it != slices_.end()) to_->slices[it->second].to = at_;
  }

  void begin_on_gpus(const FlightEvent& event) {
    GpuSpan span;
    span.job = job_of(event);
    span.node = from_.node;
    span.op = names_.op(event.job, event.key);
    span.task = gradring::name_of(static_cast<GpuTask>(event.code));
    span.bytes = event.value;
    span.from = at_;
    span.flow = flow_of(event);
    on_gpus_[{event.job, event.index}] = to_->gpus.size();
    to_->gpus.push_back(std::move(span));
  }

  void end_on_gpus(const FlightEvent& event) {
    const auto it = on_gpus_.find({event.job, event.index});
    if (it == on_gpus_.end()) return;
    to_->gpus[it->second].to = at_;
    to_->gpus[it->second].failed = event.code != 0;
    on_gpus_.erase(it);
  }

  const NodeFlight& from_;
  const FlightNames names_;
  const std::string about_;
  Timeline* const to_;
  int64_t at_ = 0;
  std::map<std::pair<OpId, uint32_t>, OpSpan> open_;          // by rank
  std::map<std::pair<OpId, uint32_t>, size_t> slices_;        // by slice: its latest stay here
  std::map<std::pair<JobPrefix, uint32_t>, size_t> on_gpus_;  // by number: what is under way
};

}  // namespace

Status fault_of_job(const std::vector<NodeFlight>& nodes, const std::string& job) {
  std::vector<std::string> known;
  for (const NodeFlight& node : nodes) {
    const FlightNames names(node.life.entries);
    const auto of_it = [&](const FlightEntry& entry) { return names.is_about(entry, job); };
    if (std::ranges::any_of(node.life.entries, of_it)) return {};
    std::ranges::copy(names.jobs(), std::back_inserter(known));
  }
  return no_such_job(job, std::move(known));
}

Timeline timeline_of(const std::vector<NodeFlight>& nodes, const std::string& job) {
  Timeline timeline;
  for (const NodeFlight& node : nodes) Reader(node, job, &timeline).read();
  std::ranges::stable_sort(timeline.ops, {}, [](const OpSpan& op) {
    return op.submitted != 0 ? op.submitted : op.ended;
  });
  std::ranges::stable_sort(timeline.slices, {}, &SliceSpan::from);
  std::ranges::stable_sort(timeline.gpus, {}, &GpuSpan::from);
  std::ranges::stable_sort(timeline.moments, {}, &Moment::at);
  return timeline;
}

}  // namespace gradring::tools
