#include "daemon/control/queries/probe_queries.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace gradring::daemon {
namespace {

constexpr uint64_t kMillisecondsLeast = 100;
constexpr uint64_t kMillisecondsMost = 60'000;

// For the way to the data thread and back.
constexpr core::Time kReplyPatience = 2 * core::kSecond;

// The data thread takes one and refuses the others at once, so that is never reached by people.
constexpr size_t kProbesPendingMax = 64;

core::Time measure_of(const wire::ProbeOrder& order) {
  const uint64_t milliseconds =
      std::clamp(order.measure_ms(), kMillisecondsLeast, kMillisecondsMost);
  return static_cast<core::Time>(milliseconds) * core::kMillisecond;
}

wire::QueryReply reply_of(const ProbeEnded& ended, const std::string& device) {
  wire::QueryReply reply;
  wire::ProbeReport& report = *reply.mutable_probe();
  const core::ProbeFigures& figures = ended.figures;
  report.set_device(device);
  report.set_message_bytes(ended.bytes);
  report.set_bytes(figures.bytes);
  report.set_jobs_bytes(figures.jobs_bytes);
  report.set_nanoseconds(static_cast<uint64_t>(figures.time));
  report.set_round_trips(figures.round_trips);
  report.set_min_ns(static_cast<uint64_t>(figures.min));
  report.set_median_ns(static_cast<uint64_t>(figures.median));
  report.set_p99_ns(static_cast<uint64_t>(figures.p99));
  return reply;
}

}  // namespace

ProbeQueries::ProbeQueries(std::string node, std::vector<std::string> devices,
                           const Answers& answers, CommandBox* commands)
    : node_(std::move(node)),
      devices_(std::move(devices)),
      answers_(answers),
      commands_(commands) {}

core::Time ProbeQueries::time_for(const wire::ProbeOrder& order) {
  const core::Time measure = measure_of(order);
  return kReplyPatience +
         core::probe_time_max(core::probe_plan(order.latency(), 0, measure, order.force()));
}

// It takes bandwidth from everybody's jobs.
Status ProbeQueries::objection_to(uint32_t uid, const wire::ProbeOrder& order) const {
  if (uid != 0 && uid != geteuid()) {
    return {Code::kPermissionDenied,
            fmt::format("uid {} may not measure the network of node {}: ask as root, or as the "
                        "daemon's user",
                        uid, node_)};
  }
  if (order.measure_ms() < kMillisecondsLeast || order.measure_ms() > kMillisecondsMost ||
      order.bytes() > kProbeBytesMax || order.lane() > UINT8_MAX || order.to().empty()) {
    return {Code::kInvalidArgument,
            fmt::format("a probe takes {} to {} ms, messages of up to {} bytes, a lane and a node",
                        kMillisecondsLeast, kMillisecondsMost, kProbeBytesMax)};
  }
  if (order.to() == node_) {
    return {Code::kInvalidArgument, fmt::format("node {} has no lane to itself", node_)};
  }
  if (pending_.size() >= kProbesPendingMax) {
    return {Code::kResourceExhausted, "too many probes at once; try again"};
  }
  return {};
}

void ProbeQueries::ask(const Asker& asker, const wire::ProbeOrder& order, core::Time now) {
  if (Status why = objection_to(asker.uid, order); !why.ok()) return answers_.refuse(asker, why);
  const uint64_t query = next_++;
  pending_[query] = {asker, now + time_for(order)};
  commands_->post(StartProbe{query, order.to(), static_cast<uint8_t>(order.lane()), order.latency(),
                             static_cast<uint32_t>(order.bytes()), measure_of(order), order.force(),
                             node_});
}

void ProbeQueries::on_ended(const ProbeEnded& ended) {
  const auto it = pending_.find(ended.query);
  if (it == pending_.end()) return;
  const Asker asker = std::move(it->second.asker);
  pending_.erase(it);
  if (!ended.status.ok()) return answers_.refuse_quietly(asker, ended.status);
  const std::string device = ended.lane < devices_.size() ? devices_[ended.lane] : "";
  answers_.give(asker, reply_of(ended, device));
}

void ProbeQueries::tick(core::Time now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (now < it->second.deadline) {
      ++it;
      continue;
    }
    answers_.refuse(it->second.asker,
                    {Code::kDeadlineExceeded,
                     fmt::format("the data thread of node {} did not end the probe in time: it is "
                                 "busy, or stopped",
                                 node_)});
    it = pending_.erase(it);
  }
}

core::Time ProbeQueries::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  for (const auto& [query, pending] : pending_) next = std::min(next, pending.deadline);
  return next;
}

}  // namespace gradring::daemon
