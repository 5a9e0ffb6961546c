#include "daemon/core/probe_sender.h"

#include <algorithm>
#include <cmath>

namespace gradring::core {
namespace {

// For an answer to kAsk, and for what is under way to come back. Longer than a peer that died needs
// to be found dead.
constexpr Time kAskPatience = 2 * kSecond;
constexpr Time kEmptyPatience = 5 * kSecond;

// TCP takes some tens of round trips until a connection that was idle is at its full rate.
constexpr Time kWarmUpLeast = 100 * kMillisecond;

constexpr Time kTrain = 100 * kMillisecond;
constexpr Time kTrainWarmUp = 20 * kMillisecond;
constexpr Time kTrainEvery = 1 * kSecond;
constexpr Time kPingEvery = 1 * kMillisecond;  // beside jobs

// 100 Gbit/s for five milliseconds: more than lies on any cable between two nodes of a cluster.
constexpr uint64_t kUnderWayMost = 64 << 20;
constexpr uint64_t kMessagesMost = 1024;
constexpr uint32_t kWindowLeast = 2;  // with one, nothing would go while its echo comes back

constexpr size_t kRoundTripsMost = 200'000;

Time at_rank(const std::vector<Time>& sorted, double share) {
  const auto rank =
      static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)));
  return sorted[std::min(rank, sorted.size() - 1)];
}

}  // namespace

ProbePlan probe_plan(bool latency, uint32_t bytes, Time measure, bool beside_jobs) {
  const Time warm_up = std::max(kWarmUpLeast, measure / 5);
  if (!beside_jobs) return {latency, bytes, warm_up, measure, 0, 1};
  if (latency) return {latency, bytes, kTrainWarmUp, measure, kPingEvery, 1};
  const auto trains = static_cast<uint32_t>(std::max<Time>(2, measure / kTrainEvery));
  return {latency, bytes, kTrainWarmUp, kTrain, kTrainEvery - kTrain, trains};
}

Time probe_time_max(const ProbePlan& plan) {
  const Time one = plan.warm_up + plan.train + kEmptyPatience + plan.pause;
  return kAskPatience + plan.trains * one;
}

ProbeSender::ProbeSender(const ProbePlan& plan, Time now)
    : plan_(plan),
      window_most_(static_cast<uint32_t>(std::clamp<uint64_t>(
          kUnderWayMost / std::max<uint32_t>(plan.bytes, 1), kWindowLeast, kMessagesMost))),
      due_(now + kAskPatience),
      trains_left_(plan.trains) {}

void ProbeSender::fail(const std::string& why) {
  if (over()) return;
  fault_ = why;
  phase_ = Phase::kOver;
}

void ProbeSender::granted(Time now) {
  if (phase_ == Phase::kAsking) begin_train(now);
}

void ProbeSender::begin_train(Time now) {
  --trains_left_;
  phase_ = Phase::kSending;
  counts_from_ = now + plan_.warm_up;
  due_ = counts_from_ + plan_.train;
  any_ = false;
}

void ProbeSender::tick(Time now) {
  if (over() || now < due_) return;
  switch (phase_) {
    case Phase::kAsking:
      return fail("it did not answer");
    case Phase::kSending:
      phase_ = Phase::kEmptying;
      due_ = now + kEmptyPatience;
      if (under_way_.empty()) end_train(now);
      return;
    case Phase::kEmptying:
      return fail("what was sent did not arrive");
    case Phase::kPausing:
      return begin_train(now);
    case Phase::kOver:
      return;
  }
}

bool ProbeSender::may_send(Time now) const {
  if (phase_ != Phase::kSending || now >= due_) return false;
  if (plan_.latency) return under_way_.empty() && now >= next_at_;
  return under_way_.size() < window_;
}

uint64_t ProbeSender::sent(Time now) {
  under_way_.push_back(now);
  return ++sent_;
}

void ProbeSender::echoed(const ProbeBody& echo, Time now) {
  const bool counts = phase_ == Phase::kSending || phase_ == Phase::kEmptying;
  if (!counts || under_way_.empty()) return;
  const Time took = now - under_way_.front();
  under_way_.pop_front();
  if (plan_.latency) {
    next_at_ = now + plan_.pause;
    if (now >= counts_from_) round_trips_.push_back(took);
    if (round_trips_.size() >= kRoundTripsMost) due_ = now;
  } else {
    widen_or_narrow(took);
    if (now >= counts_from_) {
      if (!any_) first_ = echo;
      any_ = true;
      last_ = echo;
    }
  }
  if (phase_ == Phase::kEmptying && under_way_.empty()) end_train(now);
}

void ProbeSender::widen_or_narrow(Time took) {
  least_ = least_ == 0 ? took : std::min(least_, took);
  if (took <= least_ + kQueue) {
    window_ = std::min(window_ + 1, window_most_);
  } else if (took > least_ + 2 * kQueue) {
    window_ = std::max(window_ - 1, kWindowLeast);
  }
}

void ProbeSender::end_train(Time now) {
  if (any_ && last_.count > first_.count && last_.at > first_.at) {
    sums_.bytes += (last_.count - first_.count) * plan_.bytes;
    sums_.time += static_cast<Time>(last_.at - first_.at);
    sums_.jobs_bytes += last_.jobs_bytes - std::min(last_.jobs_bytes, first_.jobs_bytes);
  }
  if (trains_left_ > 0) {
    phase_ = Phase::kPausing;
    due_ = now + plan_.pause;
    return;
  }
  phase_ = Phase::kOver;
  if (plan_.latency ? round_trips_.empty() : sums_.time == 0) {
    fault_ =
        "too little came through in that time to tell: measure for longer, or smaller messages";
  }
}

Time ProbeSender::next_deadline() const {
  if (phase_ == Phase::kSending && plan_.latency && under_way_.empty()) {
    return std::min(due_, next_at_);
  }
  return due_;
}

ProbeFigures ProbeSender::figures() const {
  ProbeFigures figures = sums_;
  std::vector<Time> sorted = round_trips_;
  std::sort(sorted.begin(), sorted.end());
  figures.round_trips = sorted.size();
  if (sorted.empty()) return figures;
  figures.min = sorted.front();
  figures.median = at_rank(sorted, 0.5);
  figures.p99 = at_rank(sorted, 0.99);
  return figures;
}

}  // namespace gradring::core
