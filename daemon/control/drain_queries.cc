#include "daemon/control/drain_queries.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/control/rights.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kAnswersWithin = 1 * core::kSecond;  // as query.proto says
constexpr core::Time kAsksAgainWithin = 500 * core::kMillisecond;

constexpr size_t kWaitingMax = 64;

constexpr uint64_t kTimeoutMaxMs = 7ull * 24 * 3600 * 1000;  // keeps the sum with now in range

const char* name_of(DrainState::Phase phase) {
  switch (phase) {
    case DrainState::Phase::kServing:
      return "serving";
    case DrainState::Phase::kDraining:
      return "draining";
    case DrainState::Phase::kStopping:
      return "stopping";
  }
  return "";
}

}  // namespace

void DrainQueries::ask(const Asker& asker, const wire::DrainOrder& order, core::Time now) {
  if (Status fault = fault_of(asker, order); !fault.ok()) return answers_.refuse(asker, fault);
  const bool stops_already = daemon_->drain_state().phase == DrainState::Phase::kStopping;
  switch (order.action()) {
    case wire::DrainOrder::START:
      spdlog::info("uid {} asks for a drain", asker.uid);
      told_ = now;  // an idle daemon would be gone before it has told
      daemon_->drain(order.timed() ? std::optional(static_cast<core::Time>(order.timeout_ms()) *
                                                   core::kMillisecond)
                                   : std::nullopt);
      break;
    case wire::DrainOrder::CANCEL:
      spdlog::info("uid {} cancels the drain", asker.uid);
      daemon_->serve_again();
      break;
    default:
      if (daemon_->drain_state().phase != DrainState::Phase::kDraining) break;
      waiting_.push_back({asker, now + kAnswersWithin});
      return;
  }
  tell(asker, now);
  if (stops_already) told_ = 0;
}

Status DrainQueries::fault_of(const Asker& asker, const wire::DrainOrder& order) const {
  if (order.action() == wire::DrainOrder::LOOK) {
    if (waiting_.size() < kWaitingMax) return {};
    return {Code::kResourceExhausted, "too many queries at once; try again"};
  }
  if (!may_look_after(asker.uid, *membership_)) {
    return {Code::kPermissionDenied,
            fmt::format("node {} has jobs that are not uid {}'s: drain it as root, or as the "
                        "daemon's user",
                        node_, asker.uid)};
  }
  if (order.timeout_ms() > kTimeoutMaxMs) {
    return {Code::kInvalidArgument,
            fmt::format("a drain may take a week, {} s, at most", kTimeoutMaxMs / 1000)};
  }
  if (order.action() != wire::DrainOrder::CANCEL) return {};
  const DrainState state = daemon_->drain_state();
  if (state.phase == DrainState::Phase::kServing) {
    return {Code::kNotFound,
            fmt::format("node {} does not drain: there is nothing to cancel", node_)};
  }
  if (state.phase == DrainState::Phase::kStopping || state.by_signal) {
    return {Code::kAborted,
            fmt::format("node {} {}: that cannot be taken back", node_,
                        state.by_signal ? "was told to stop by a signal" : "stops already")};
  }
  return {};
}

void DrainQueries::tell(const Asker& asker, core::Time now) {
  const DrainState state = daemon_->drain_state();
  wire::QueryReply reply;
  wire::DrainReport& report = *reply.mutable_drain();
  report.set_node(node_);
  report.set_state(name_of(state.phase));
  for (const std::string& job : state.jobs) report.add_jobs(job);
  if (state.phase == DrainState::Phase::kDraining) {
    const core::Time left = std::max<core::Time>(state.deadline - now, 0);
    report.set_left_ms(static_cast<uint64_t>(left / core::kMillisecond));
  }
  report.set_by_signal(state.by_signal);
  told_ = state.phase == DrainState::Phase::kServing ? 0 : now;
  answers_.give(asker, std::move(reply));
}

bool DrainQueries::owes_its_end(core::Time now) const {
  return told_ != 0 && now - told_ < kAsksAgainWithin;
}

void DrainQueries::over(core::Time now) {
  for (const Waiting& one : std::exchange(waiting_, {})) tell(one.asker, now);
}

void DrainQueries::tick(core::Time now) {
  while (!waiting_.empty() && now >= waiting_.front().until) {
    tell(waiting_.front().asker, now);
    waiting_.erase(waiting_.begin());
  }
  if (!owes_its_end(now)) told_ = 0;
}

core::Time DrainQueries::next_deadline() const {
  if (!waiting_.empty()) return waiting_.front().until;
  if (told_ != 0) return told_ + kAsksAgainWithin;
  return std::numeric_limits<core::Time>::max();
}

}  // namespace gradring::daemon
