#include <fmt/format.h>

#include <utility>

#include "client/src/communicator.h"

namespace gradring::client {
namespace {

Status unknown(uint64_t request) {
  return {Code::kNotFound,
          fmt::format("request {} does not exist: it was never submitted, or has been waited for",
                      request)};
}

}  // namespace

tl::expected<std::optional<Outcome>, Status> Communicator::wait(uint64_t ticket,
                                                                TimePoint deadline) {
  if (const auto far = far_request(ticket)) return wait_far(ticket, *far, deadline);
  Inside inside(*this);
  return take(inside.lock(), ticket, deadline);
}

tl::expected<std::optional<Outcome>, Status> Communicator::take(std::unique_lock<std::mutex>& lock,
                                                                uint64_t ticket,
                                                                TimePoint deadline) {
  auto found = requests_.find(ticket);
  if (found != requests_.end()) asked_for(found->second);
  session_.wait_for_end(lock, deadline, [&] {
    // Looked up each time: another thread may wait for the same request and take it.
    found = requests_.find(ticket);
    return found == requests_.end() || found->second.outcome.ended() || session_.interrupted();
  });
  if (found == requests_.end()) return tl::unexpected(unknown(ticket));
  if (!found->second.outcome.ended()) {
    if (session_.interrupted()) return tl::unexpected(session_.why_over());
    return std::optional<Outcome>();
  }

  Request request = std::move(found->second);
  requests_.erase(found);
  if (request.outcome.good() && request.output.registered()) {
    lock.unlock();
    const Status delivered = request.output.deliver(request.extent.output);
    lock.lock();
    if (!delivered.ok()) return tl::unexpected(delivered);
  }
  return std::optional<Outcome>(std::move(request.outcome));
}

// Also by a look that finds it under way: that this one is looked at before the others is what
// counts, and when it was done is the network's affair.
void Communicator::asked_for(Request& request) {
  if (request.step != 0) need_order_.needed(request.name, std::exchange(request.step, 0));
}

std::vector<NeedOrder::Learned> Communicator::learned_priorities() {
  Inside inside(*this);
  return need_order_.learned();
}

void Communicator::waited_for_input(uint64_t nanoseconds) {
  Inside inside(*this);
  session_.waited_for_input(nanoseconds);
}

Status Communicator::still_under_way(uint64_t ticket, int64_t timeout_ms) {
  if (const auto far = far_request(ticket)) {
    return far->body->still_under_way(far->ticket, timeout_ms);
  }
  Inside inside(*this);
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return unknown(ticket);
  return {Code::kDeadlineExceeded,
          fmt::format("request {}, {}, is still under way after {} ms; {}", ticket,
                      describe(found->second), timeout_ms,
                      session_.advice("job " + settings_.job, "who waits for whom"))};
}

}  // namespace gradring::client
