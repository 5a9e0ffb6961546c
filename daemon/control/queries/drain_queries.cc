#include "daemon/control/queries/drain_queries.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/control/door/rights.h"

namespace gradring::daemon {
namespace {

constexpr core::Time kAnswersWithin = 1 * core::kSecond;  // as query.proto says
constexpr core::Time kAsksAgainWithin = 500 * core::kMillisecond;

constexpr size_t kWaitingMax = 128;

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
  const DrainState::Phase phase = daemon_->drain_state().phase;
  switch (order.action()) {
    case wire::DrainOrder::START:
      spdlog::info("uid {} asks for a drain", asker.uid);
      // First: an idle daemon would be gone before it has told. Once it stops nobody puts that off.
      if (phase != DrainState::Phase::kStopping) expect_again(asker, now);
      daemon_->drain(order.timed() ? std::optional(static_cast<core::Time>(order.timeout_ms()) *
                                                   core::kMillisecond)
                                   : std::nullopt);
      break;
    case wire::DrainOrder::CANCEL:
      spdlog::info("uid {} cancels the drain", asker.uid);
      daemon_->serve_again();
      break;
    default:
      has_asked_again(asker);
      if (phase != DrainState::Phase::kDraining) break;
      waiting_.push_back({asker, now + kAnswersWithin});
      return;
  }
  tell(asker, now);
}

Status DrainQueries::fault_of(const Asker& asker, const wire::DrainOrder& order) const {
  if (order.action() == wire::DrainOrder::LOOK) {
    const auto own = std::ranges::count_if(
        waiting_, [&asker](const Waiting& one) { return one.asker.uid == asker.uid; });
    return place_for(asker, waiting_.size(), static_cast<size_t>(own), kWaitingMax);
  }
  if (!is_the_nodes(asker.uid)) {
    return {
        Code::kPermissionDenied,
        fmt::format("node {} is not uid {}'s to drain, which ends its daemon: drain it as root, "
                    "or as the daemon's user",
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
  answers_.give(asker, std::move(reply));
}

void DrainQueries::tell_first_waiting(core::Time now) {
  const Asker asker = std::move(waiting_.front().asker);
  waiting_.erase(waiting_.begin());
  tell(asker, now);
  if (daemon_->drain_state().phase != DrainState::Phase::kServing) expect_again(asker, now);
}

void DrainQueries::expect_again(const Asker& asker, core::Time now) {
  if (told_.size() == kWaitingMax) told_.erase(told_.begin());
  told_.push_back({asker, now + kAsksAgainWithin});
}

// Those who ask through one peer look alike; of them as many are expected as were told.
void DrainQueries::has_asked_again(const Asker& asker) {
  const auto same = [&asker](const Waiting& one) {
    return one.asker.routing_id == asker.routing_id && one.asker.node == asker.node;
  };
  const auto it = std::find_if(told_.begin(), told_.end(), same);
  if (it != told_.end()) told_.erase(it);
}

bool DrainQueries::owes_its_end(core::Time now) const {
  return !told_.empty() && now < told_.back().until;
}

void DrainQueries::over(core::Time now) {
  while (!waiting_.empty()) tell_first_waiting(now);
}

void DrainQueries::tick(core::Time now) {
  while (!waiting_.empty() && now >= waiting_.front().until) tell_first_waiting(now);
  std::erase_if(told_, [now](const Waiting& one) { return now >= one.until; });
}

core::Time DrainQueries::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  if (!waiting_.empty()) next = waiting_.front().until;
  if (!told_.empty()) next = std::min(next, told_.front().until);
  return next;
}

}  // namespace gradring::daemon
