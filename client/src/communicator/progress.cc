// What an op that is under way waits for: the client knows of itself, the daemon of the others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/src/communicator/awaiting.h"
#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"

namespace gradring::client {

tl::expected<Progress, Status> Communicator::progress(uint64_t ticket) {
  if (const auto far = far_request(ticket)) return far_progress(*far);
  Inside inside(*this);
  return progress(inside.lock(), ticket);
}

tl::expected<Progress, Status> Communicator::progress(std::unique_lock<std::mutex>& lock,
                                                      uint64_t ticket) {
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return tl::unexpected(unknown_request(ticket));
  const Request& request = found->second;
  Progress progress{describe(request), {}, {}, {}};
  if (request.outcome.ended()) {
    progress.what = "has ended";
  } else if (request.reached.any() && !request.reached.word().has_come()) {
    progress.what = "waits for this rank's own stream on its GPU, which has not come to it";
  } else if (session_.away()) {
    progress.what = "is under way; " + session_.advice("status", "how it is");
  } else {
    auto awaiting = ask_for(lock, request.key);  // the request may be gone then
    if (!awaiting) return tl::unexpected(awaiting.error());
    progress.awaiting = std::move(*awaiting);
    progress.what = describe(progress.awaiting);
    if (progress.what.empty()) progress.what = "is still under way";
  }
  if (!views_.empty()) {
    for (const uint32_t rank : views_.newest().ranks) {
      if (progress.awaiting.may_miss(rank)) continue;
      progress.first = rank;
      break;
    }
  }
  return progress;
}

tl::expected<Awaiting, Status> Communicator::ask_for(std::unique_lock<std::mutex>& lock,
                                                     OpKey key) {
  wire::ClientMessage message;
  wire::Query& query = *message.mutable_query();
  query.set_what(wire::Query::JOB);
  query.set_own_part(true);
  JobId incarnation{};
  const bool formed =
      !views_.empty() && gradring::from_wire(views_.newest().incarnation, &incarnation);
  query.set_job(formed ? hex(incarnation) : settings_.job);
  const auto answer = session_.call(lock, std::move(message), wire::DaemonMessage::kReply,
                                    Clock::now() + kProgressTime);
  if (!answer) return tl::unexpected(answer.error());
  return awaiting_from(answer->reply().job(), key);
}

}  // namespace gradring::client
