#include <fmt/format.h>

#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "proto/shell_word.h"

namespace gradring::client {
namespace {

Status overdue(uint64_t ticket, const std::string& what, int64_t timeout_ms,
               const std::string& advice) {
  return {Code::kDeadlineExceeded, fmt::format("request {}, {}, is still under way after {} ms; {}",
                                               ticket, what, timeout_ms, advice)};
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
  if (request.outcome.good() && request.output.registered() && !request.left_to_others()) {
    Bringing* const state = request.bringing.get();
    if (state != nullptr) state->state = Bringing::State::kBegins;
    lock.unlock();
    const Status delivered = request.output.deliver(request.result());
    lock.lock();
    if (state != nullptr) end_bringing(state, delivered.ok());
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
  if (found == requests_.end()) return tl::unexpected(unknown_request(ticket));
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
  if (found == requests_.end()) return tl::unexpected(unknown_request(ticket));
  if (!found->second.output.of_a_gpu()) {
    return tl::unexpected(
        invalid(fmt::format("request {}, {}, has no output on a GPU that a stream could wait "
                            "for; wait for it with gradring_wait",
                            ticket, describe(found->second))));
  }
  const ToBring result = to_bring(&found->second);
  if (found->second.ended.any()) {
    asked_for(found->second);
    const StreamWord ended = found->second.ended.word();
    const auto begun = deliver_on(inside.lock(), result, ended, stream, deadline);
    if (!begun || *begun) return begun;
  }
  // Then it has to be done here; also for whoever has taken the request while this was about to.
  if (requests_.find(ticket) != requests_.end()) {
    const auto ended = wait_for_end(inside.lock(), ticket, deadline);
    if (!ended) return tl::unexpected(ended.error());
    if (*ended == requests_.end()) return false;
    if (!(*ended)->second.outcome.good()) return true;
  }
  return deliver_here(inside.lock(), result, stream, deadline);
}

Communicator::ToBring Communicator::to_bring(Request* request) {
  if (request->bringing == nullptr) request->bringing = std::make_shared<Bringing>();
  return {request->output.delivery(request->result()), request->output.again(), request->bringing};
}

// Before it is on a stream there is nothing to come behind.
tl::expected<std::optional<bool>, Status> Communicator::behind_another(
    std::unique_lock<std::mutex>& lock, const ToBring& result, void* stream, TimePoint deadline) {
  using State = Bringing::State;
  Bringing& bringing = *result.state;
  if (bringing.state == State::kBegins) {
    ++bringing.awaited_by;
    session_.wait_until(lock, deadline, [this, &bringing] {
      return bringing.state != State::kBegins || session_.interrupted();
    });
    --bringing.awaited_by;
  }
  if (bringing.state == State::kNotYet) {
    bringing.state = State::kBegins;
    return std::nullopt;
  }
  if (bringing.state == State::kBegins) {
    if (session_.interrupted()) return tl::unexpected(session_.why_over());
    return std::optional(false);
  }
  lock.unlock();
  Status joined = result.way.gpu->join_delivery(stream);
  lock.lock();
  if (!joined.ok()) return tl::unexpected(std::move(joined));
  return std::optional(true);
}

void Communicator::end_bringing(Bringing* state, bool done) {
  state->state = done ? Bringing::State::kDone : Bringing::State::kNotYet;
  if (state->awaited_by > 0) session_.wake_all();
}

// A stream with much to do may keep whoever puts more on it waiting, so others must be able to go
// on. Where nothing is copied each stream waits for the op itself.
tl::expected<bool, Status> Communicator::deliver_on(std::unique_lock<std::mutex>& lock,
                                                    const ToBring& result, const StreamWord& ended,
                                                    void* stream, TimePoint deadline) {
  if (!result.way.copy.in_place) {
    const auto by_another = behind_another(lock, result, stream, deadline);
    if (!by_another) return tl::unexpected(by_another.error());
    if (*by_another) return **by_another;
  }
  lock.unlock();
  auto begun = result.way.gpu->deliver_on(stream, ended, result.way.copy);
  lock.lock();
  end_bringing(result.state.get(), begun && *begun);
  return begun;
}

tl::expected<bool, Status> Communicator::deliver_here(std::unique_lock<std::mutex>& lock,
                                                      const ToBring& result, void* stream,
                                                      TimePoint deadline) {
  const auto by_another = behind_another(lock, result, stream, deadline);
  if (!by_another) return tl::unexpected(by_another.error());
  if (*by_another) return **by_another;
  lock.unlock();  // nobody else needs to wait for this copy
  Status delivered = result.way.gpu->deliver(result.way.copy);
  lock.lock();
  end_bringing(result.state.get(), delivered.ok());
  if (!delivered.ok()) return tl::unexpected(std::move(delivered));
  return true;
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
  const auto advice = [](Communicator& of) {
    return of.session_.advice("job " + shell_word(of.settings_.job), "who waits for whom");
  };
  if (const auto far = far_request(ticket)) {
    Inside inside(*far->body);
    if (far->body->requests_.count(far->ticket) == 0) return unknown_request(ticket);
    return overdue(ticket, what_it_is(*far), timeout_ms, advice(*far->body));
  }
  Inside inside(*this);
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return unknown_request(ticket);
  return overdue(ticket, describe(found->second), timeout_ms, advice(*this));
}

}  // namespace gradring::client
