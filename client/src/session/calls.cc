#include <fmt/format.h>

#include <algorithm>

#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/session/session.h"
#include "proto/shell_word.h"
#include "proto/version.h"

// The part of the session that waits for the daemon: room for a message, the answer to a call.
namespace gradring::client {

std::string Session::advice(std::string_view command, std::string_view tells) const {
  if (away()) {
    return fmt::format("the daemon on node {} went away and may come back within {:g} s",
                       place_.node,
                       static_cast<double>(connection_->welcome.restart_grace_ms()) / 1000);
  }
  return fmt::format("`gradringctl --runtime-dir {} {}` tells {}", shell_word(place_.runtime_dir),
                     command, tells);
}

tl::expected<wire::DaemonMessage, Status> Session::call(std::unique_lock<std::mutex>& lock,
                                                        wire::ClientMessage message,
                                                        wire::DaemonMessage::BodyCase body,
                                                        TimePoint deadline, Meanwhile meanwhile) {
  if (Status room = wait_for_room(lock, deadline); !room.ok()) {
    return tl::unexpected(room);
  }
  const uint64_t number = next_number();
  message.set_request(number);
  // Entered before it is sent, because sending also reads, and the answer may be there at once.
  const auto call = control_calls_.emplace(number, Call{std::move(message), {}, false}).first;
  send(call->second.message);
  const auto ended = [&] { return call->second.answer.has_value() || over(); };
  while (!wait_until(lock, std::min(deadline, meanwhile.at), ended) && Clock::now() < deadline) {
    meanwhile.at = meanwhile.act();
  }
  const std::optional<wire::DaemonMessage> answer = std::move(call->second.answer);
  control_calls_.erase(call);

  if (answer && answer->body_case() == body) return *answer;
  if (answer && answer->has_refused()) return tl::unexpected(to_status(answer->refused()));
  if (answer) {
    return tl::unexpected(Status(
        Code::kInternal, fmt::format("the daemon on node {} answered with a message that does "
                                     "not fit the question",
                                     place_.node)));
  }
  if (over()) return tl::unexpected(why_over());
  return tl::unexpected(Status(Code::kDeadlineExceeded,
                               fmt::format("the daemon on node {} did not answer in time; {}",
                                           place_.node, advice("status", "how it is"))));
}

void Session::call_later(wire::ClientMessage message) {
  const uint64_t number = next_number();
  message.set_request(number);
  const auto call = control_calls_.emplace(number, Call{std::move(message), std::nullopt, true});
  send(call.first->second.message);
}

tl::expected<AttachPacket, Status> Session::allocate(std::unique_lock<std::mutex>& lock,
                                                     uint64_t bytes, TimePoint deadline) {
  const uint64_t number = next_number();
  wire::AttachRequest request;
  request.mutable_allocate()->set_request(number);
  request.mutable_allocate()->set_bytes(bytes);
  return ask(lock, {request}, number, deadline);
}

tl::expected<AttachPacket, Status> Session::borrow(std::unique_lock<std::mutex>& lock,
                                                   const wire::BorrowSegment& segment,
                                                   TimePoint deadline) {
  const uint64_t number = next_number();
  wire::AttachRequest request;
  *request.mutable_borrow() = segment;
  request.mutable_borrow()->set_request(number);
  return ask(lock, {request}, number, deadline);
}

tl::expected<uint64_t, Status> Session::offer(std::unique_lock<std::mutex>& lock,
                                              const UniqueFd& descriptor, TimePoint deadline) {
  const uint64_t number = next_number();
  wire::AttachRequest request;
  request.mutable_offer()->set_request(number);
  const auto taken = ask(lock, {request, descriptor.get()}, number, deadline);
  if (!taken) return tl::unexpected(taken.error());
  return number;
}

tl::expected<AttachPacket, Status> Session::ask(std::unique_lock<std::mutex>& lock,
                                                AttachCall&& asked, uint64_t number,
                                                TimePoint deadline) {
  if (over()) return tl::unexpected(why_over());
  const auto call = attach_calls_.try_emplace(number, std::move(asked)).first;
  if (attach_open_ && !attach_full_) {
    const bool any_failed = post_attach();
    // Whoever reads already looks for room as well from now on.
    if (any_failed || attach_full_) reader_.wake_all();
  }
  const auto failed = [&] { return attach_open_ && call->second.sent && !call->second.sent->ok(); };
  wait_until(lock, deadline, [&] { return call->second.answer.has_value() || failed() || over(); });
  std::optional<AttachPacket> answer = std::move(call->second.answer);
  const Status fault = failed() ? *call->second.sent : Status();
  attach_calls_.erase(call);

  if (answer && answer->reply.has_refused()) {
    return tl::unexpected(to_status(answer->reply.refused()));
  }
  if (answer) return std::move(*answer);
  if (over()) return tl::unexpected(why_over());
  if (!fault.ok()) return tl::unexpected(fault);
  return tl::unexpected(Status(Code::kDeadlineExceeded,
                               fmt::format("the daemon on node {} did not answer in time; {}",
                                           place_.node, advice("status", "how it is"))));
}

Status Session::wait_for_room(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  // Nothing more goes to a daemon that hung up for good: it only has its last words to say.
  const auto has_room = [this] {
    return attach_open_ && outbox_.empty() && connection_->control.writable();
  };
  const bool ready = wait_until(lock, std::min(deadline, Clock::now() + kSendTime),
                                [&] { return over() || away() || has_room(); });
  if (over()) return why_over();
  if (ready) return {};
  return {Code::kUnavailable,
          fmt::format("the daemon on node {} does not take messages: it is stopped or overloaded; "
                      "`gradringctl --runtime-dir {} status` tells how it is",
                      place_.node, shell_word(place_.runtime_dir))};
}

void Session::send(wire::ClientMessage message) {
  if (lost() || away()) return;
  message.set_protocol(connection_->welcome.protocol());
  outbox_.push_back(std::move(message));
  reader_.take_in();
}

void Session::interrupt(Status why) {
  interruption_ = std::move(why);
  reader_.wake_all();
}

}  // namespace gradring::client
