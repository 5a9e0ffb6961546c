#include <fmt/format.h>

#include <utility>

#include "client/src/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"

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
  auto outcome = take(inside.lock(), ticket, deadline);
  // Some of a GPU's memory may have been freed while this op named it.
  if (outcome && *outcome) {
    give_back_shares(inside.lock(), Clock::now() + kGpuFreeTime);
    let_leave(inside.lock());
  }
  return outcome;
}

tl::expected<std::optional<Outcome>, Status> Communicator::take(std::unique_lock<std::mutex>& lock,
                                                                uint64_t ticket,
                                                                TimePoint deadline) {
  auto found = wait_for_end(lock, ticket, deadline);
  if (!found) return tl::unexpected(found.error());
  if (*found == requests_.end()) return std::optional<Outcome>();

  Request request = std::move((*found)->second);
  requests_.erase(*found);
  if (request.outcome.good() && request.output.registered() && !request.delivered) {
    lock.unlock();
    const Status delivered = request.output.deliver(request.result());
    lock.lock();
    if (!delivered.ok()) return tl::unexpected(delivered);
  }
  return std::optional<Outcome>(std::move(request.outcome));
}

tl::expected<Requests::iterator, Status> Communicator::wait_for_end(
    std::unique_lock<std::mutex>& lock, uint64_t ticket, TimePoint deadline) {
  auto found = requests_.find(ticket);
  if (found != requests_.end()) asked_for(found->second);
  session_.wait_for_end(lock, deadline, [&] {
    // Looked up each time: another thread may wait for the same request and take it.
    found = requests_.find(ticket);
    return found == requests_.end() || found->second.outcome.ended() || session_.interrupted();
  });
  if (found == requests_.end()) return tl::unexpected(unknown(ticket));
  if (found->second.outcome.ended()) return found;
  if (session_.interrupted()) return tl::unexpected(session_.why_over());
  return requests_.end();
}

tl::expected<bool, Status> Communicator::wait_on_stream(uint64_t ticket, void* stream,
                                                        TimePoint deadline) {
  if (const auto far = far_request(ticket)) {
    return far->body->wait_on_stream(far->ticket, stream, deadline);
  }
  Inside inside(*this);
  auto found = requests_.find(ticket);
  if (found == requests_.end()) return tl::unexpected(unknown(ticket));
  if (!found->second.output.of_a_gpu()) {
    return tl::unexpected(
        invalid(fmt::format("request {}, {}, has no output on a GPU that a stream could wait "
                            "for; wait for it with gradring_wait",
                            ticket, describe(found->second))));
  }
  if (found->second.ended.any()) {
    const auto begun = deliver_on(inside.lock(), &found->second, ticket, stream);
    if (!begun || *begun) return begun;
  }
  // Then it has to be done here.
  const auto ended = wait_for_end(inside.lock(), ticket, deadline);
  if (!ended) return tl::unexpected(ended.error());
  if (*ended == requests_.end()) return false;
  Request& request = (*ended)->second;
  if (!request.outcome.good() || std::exchange(request.delivered, true)) return true;
  const auto [gpu, copy] = request.output.delivery(request.result());
  const Loan kept = request.output.again();
  inside.lock().unlock();  // nobody else waits for this copy
  Status delivered = gpu->deliver(copy);
  inside.lock().lock();
  const auto still_there = requests_.find(ticket);
  if (!delivered.ok() && still_there != requests_.end()) still_there->second.delivered = false;
  if (!delivered.ok()) return tl::unexpected(std::move(delivered));
  return true;
}

// A stream with much to do may keep whoever puts more on it waiting, so others must be able to go
// on.
tl::expected<bool, Status> Communicator::deliver_on(std::unique_lock<std::mutex>& lock,
                                                    Request* request, uint64_t ticket,
                                                    void* stream) {
  asked_for(*request);
  const Loan::Delivery way = request->output.delivery(request->result());
  // A stage must not be lent to the next op before its stream knows that this result is to leave
  // it.
  const Loan kept = request->output.again();
  const StreamWord ended = request->ended.word();
  const bool another_does = std::exchange(request->delivered, true);
  lock.unlock();
  if (another_does && !way.copy.in_place) {
    Status joined = way.gpu->join_delivery(stream);
    lock.lock();
    if (!joined.ok()) return tl::unexpected(std::move(joined));
    return true;
  }
  auto begun = way.gpu->deliver_on(stream, ended, way.copy);
  lock.lock();
  const auto still_there = requests_.find(ticket);
  const bool done = begun && *begun;
  if (!done && still_there != requests_.end()) still_there->second.delivered = false;
  return begun;
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
