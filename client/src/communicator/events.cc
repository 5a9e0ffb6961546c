#include <algorithm>
#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"

// What the daemon says unasked. Everything here runs with the mutex held.
namespace gradring::client {
namespace {

bool outcome_of(const wire::Completion& from, Outcome* to) {
  if (from.verdict() < static_cast<uint32_t>(Verdict::kOk) ||
      from.verdict() > static_cast<uint32_t>(Verdict::kFailed)) {
    return false;
  }
  const auto verdict = static_cast<Verdict>(from.verdict());
  if (verdict == Verdict::kFailed) {
    Failure failure;
    if (!gradring::from_wire(from.failure(), &failure)) return false;
    *to = failed(std::move(failure), from.message());
  }
  to->verdict = verdict;
  to->epoch = from.epoch();
  to->ranks_min = from.ranks_min();
  to->ranks_max = from.ranks_max();
  return true;
}

}  // namespace

bool Communicator::on_completed(const wire::Completed& completed) {
  for (const wire::Completion& completion : completed.completions()) {
    Outcome outcome;
    if (!outcome_of(completion, &outcome)) return false;
    // Why its job did not come about the answer to the join has said.
    if (job_failure_ && job_ == 0 && !outcome.good()) outcome = *job_failure_;
    seen_.prove(completion.ticket());
    if (!take_end(completion.ticket(), std::move(outcome))) return false;
  }
  return true;
}

bool Communicator::on_end(const RingEnd& entry) {
  if (entry.verdict != static_cast<uint32_t>(Verdict::kOk) &&
      entry.verdict != static_cast<uint32_t>(Verdict::kOkShrunk)) {
    return false;
  }
  // The news of its view comes as a message, and may be behind; that the job has failed comes in
  // its place.
  if (entry.epoch > views_.newest().epoch && !job_failure_) {
    early_ends_.push_back(entry);
    return true;
  }
  return take_end(entry);
}

bool Communicator::take_end(const RingEnd& entry) {
  Outcome outcome;
  outcome.verdict = static_cast<Verdict>(entry.verdict);
  outcome.epoch = entry.epoch;
  outcome.ranks_min = entry.ranks_min;
  outcome.ranks_max = entry.ranks_max;
  return take_end(entry.ticket, std::move(outcome));
}

// Those whose view is known now.
void Communicator::on_early_ends() {
  for (const RingEnd& entry : std::exchange(early_ends_, {})) on_end(entry);
}

bool Communicator::take_end(uint64_t ticket, Outcome outcome) {
  if (ticket == 0 || ticket > session_.last_number()) return false;
  const auto request = requests_.find(ticket);
  // An op ends once: a second completion, or one that comes after we gave the request up, is void.
  if (request == requests_.end() || request->second.outcome.ended()) return true;
  epoch_ = std::max(epoch_.load(), outcome.epoch);
  if (session_.resumable()) seen_.add(ticket);
  if (ticket == join_point_) {
    join_point_ = 0;
    newcomer_ = newcomer_ && !outcome.good();
  }
  if (ticket == join_) join_ = 0;
  end(request->second, std::move(outcome));
  return true;
}

void Communicator::on_refused(uint64_t number, const wire::Refused& refused) {
  const auto request = requests_.find(number);
  if (request == requests_.end() || request->second.outcome.ended()) return;
  Failure failure;
  failure.cause = Cause::kRefused;
  failure.blame.rank = settings_.rank;
  failure.blame.node = session_.place().node;
  if (number == join_point_) join_point_ = 0;
  if (number == join_) join_ = 0;
  end(request->second, failed(std::move(failure), refused.message()));
}

bool Communicator::on_job_closed(const wire::JobClosed& closed) {
  // Right behind the answer to the join it comes before we have seen our own handle in that.
  if (job_ != 0 && closed.job() != job_) return false;
  if (job_failure_) return true;
  Failure failure;
  if (!gradring::from_wire(closed.failure(), &failure)) failure.cause = Cause::kProtocol;
  job_failure_ = failed(std::move(failure), closed.message());
  last_words_ = job_failure_;
  on_early_ends();
  session_.set_alarm(Clock::now() + kJobClosedTime);
  return true;
}

void Communicator::on_lost(Cause cause, const Status& why) {
  Failure failure;
  failure.cause = cause;
  failure.blame.node = session_.place().node;
  // Why the job failed says more than that the daemon left after it.
  if (!last_words_) last_words_ = failed(std::move(failure), why.message());
  on_alarm();
}

void Communicator::on_alarm() {
  if (!last_words_) return;
  for (const RingEnd& entry : std::exchange(early_ends_, {})) take_end(entry);
  fail_pending(*last_words_);
}

void Communicator::fail_pending(const Outcome& outcome) {
  for (auto& [ticket, request] : requests_) {
    if (!request.outcome.ended()) end(request, outcome);
  }
}

void Communicator::end(Request& request, Outcome outcome) const {
  // What failed here, without the daemon's word, has no epoch of its own.
  outcome.size = (outcome.epoch == 0 ? views_.newest() : views_.at(outcome.epoch)).size();
  request.outcome = std::move(outcome);
  // A daemon that is gone, or has refused it, sets nothing, and a stream must not wait for ever.
  if (request.ended.any()) request.ended.word().set();
}

}  // namespace gradring::client
