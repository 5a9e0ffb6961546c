#include "client/src/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/runtime_dir.h"
#include "proto/version.h"

namespace gradring::client {
Session::Session(Events& events, DaemonPlace place, AttachSocket attach, ControlSocket control)
    : events_(events),
      place_(std::move(place)),
      attach_(std::move(attach)),
      control_(std::move(control)),
      reader_(*this) {}

tl::expected<wire::DaemonMessage, Status> Session::call(std::unique_lock<std::mutex>& lock,
                                                        wire::ClientMessage message,
                                                        wire::DaemonMessage::BodyCase body,
                                                        TimePoint deadline) {
  if (Status room = wait_for_room(lock, deadline); !room.ok()) {
    return tl::unexpected(room);
  }
  const uint64_t number = next_number();
  message.set_request(number);
  // Entered before it is sent, because sending also reads, and the answer may be there at once.
  const auto call = control_calls_.emplace(number, std::nullopt).first;
  if (Status sent = send(std::move(message)); !sent.ok()) {
    control_calls_.erase(call);
    return tl::unexpected(sent);
  }
  wait_until(lock, deadline, [&] { return call->second.has_value() || over(); });
  const std::optional<wire::DaemonMessage> answer = std::move(call->second);
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
  return tl::unexpected(Status(
      Code::kDeadlineExceeded,
      fmt::format("the daemon on node {} did not answer in time; `gradringctl --runtime-dir {} "
                  "status` tells how it is",
                  place_.node, place_.runtime_dir)));
}

tl::expected<AttachPacket, Status> Session::allocate(std::unique_lock<std::mutex>& lock,
                                                     uint64_t bytes, TimePoint deadline) {
  if (over()) return tl::unexpected(why_over());
  const uint64_t number = next_number();
  wire::AttachRequest request;
  request.mutable_allocate()->set_request(number);
  request.mutable_allocate()->set_bytes(bytes);
  if (Status sent = attach_.send(request); !sent.ok()) {
    // Of the two reasons, a closed socket is the one that reading shows.
    wait_until(lock, deadline, [&] { return over() || attach_open_; });
    return tl::unexpected(lost_ ? *lost_ : sent);
  }

  const auto call = attach_calls_.emplace(number, std::nullopt).first;
  wait_until(lock, deadline, [&] { return call->second.has_value() || over(); });
  std::optional<AttachPacket> answer = std::move(call->second);
  attach_calls_.erase(call);

  if (answer && answer->reply.has_refused()) {
    return tl::unexpected(to_status(answer->reply.refused()));
  }
  if (answer) return std::move(*answer);
  if (over()) return tl::unexpected(why_over());
  return tl::unexpected(Status(
      Code::kDeadlineExceeded,
      fmt::format("the daemon on node {} did not make a segment of {} bytes in time; `gradringctl "
                  "--runtime-dir {} status` tells how it is",
                  place_.node, bytes, place_.runtime_dir)));
}

Status Session::wait_for_room(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  // Nothing more goes to a daemon that hung up: it only has its last words to say.
  const bool ready = wait_until(lock, std::min(deadline, Clock::now() + kSendTime),
                                [&] { return over() || (attach_open_ && control_.writable()); });
  if (over()) return why_over();
  if (ready) return {};
  return {Code::kUnavailable,
          fmt::format("the daemon on node {} does not take messages: it is stopped or overloaded; "
                      "`gradringctl --runtime-dir {} status` tells how it is",
                      place_.node, place_.runtime_dir)};
}

Status Session::send(wire::ClientMessage message) {
  if (lost_) return *lost_;
  message.set_protocol(kClientProtocol);
  Status sent = control_.send(message);
  reader_.take_in();
  return sent;
}

void Session::interrupt(Status why) {
  interruption_ = std::move(why);
  reader_.wake_all();
}

void Session::set_alarm(TimePoint when) { alarm_ = std::min(alarm_, when); }

void Session::close_in_child() {
  attach_.close();
  reader_.close();
}

bool Session::take_in() {
  // The control channel first: what a daemon said before it closed counts.
  bool changed = take_control();
  changed |= take_attach();
  if (Clock::now() >= gone_at_) {
    gone_at_ = kNever;
    lose(Cause::kPeerLost, Code::kUnavailable,
         fmt::format("the daemon on node {} went away; start it again with `{}` if nothing else "
                     "does, look at its log for the reason, and open the job anew",
                     place_.node, start_command(place_.runtime_dir)));
    changed = true;
  }
  if (Clock::now() >= alarm_) {
    alarm_ = kNever;
    events_.on_alarm();
    changed = true;
  }
  return changed;
}

bool Session::take_control() {
  bool changed = false;
  while (control_open_) {
    auto message = control_.receive();
    if (!message) {
      control_open_ = false;
      lose(Cause::kProtocol, message.error().code(), message.error().message());
      return true;
    }
    if (!message->has_value()) break;
    dispatch(std::move(**message));
    changed = true;
  }
  return changed;
}

bool Session::take_attach() {
  bool changed = false;
  while (attach_open_) {
    auto packet = attach_.receive();
    if (!packet) {
      attach_open_ = false;
      if (packet.error().code() == Code::kUnavailable) {
        gone_at_ = Clock::now() + kLastWordsTime;
        return changed;
      }
      lose(Cause::kProtocol, packet.error().code(), packet.error().message());
      return true;
    }
    if (!packet->has_value()) break;
    dispatch(std::move(**packet));
    changed = true;
  }
  return changed;
}

void Session::dispatch(wire::DaemonMessage message) {
  switch (message.body_case()) {
    case wire::DaemonMessage::kCompleted:
      if (!events_.on_completed(message.completed())) {
        lose(
            Cause::kProtocol, Code::kInternal,
            "the daemon sent a completion that makes no sense (unknown request, verdict or cause)");
      }
      return;
    case wire::DaemonMessage::kViewChanged:
      if (Status good = events_.on_view_changed(message.view_changed()); !good.ok()) {
        lose(Cause::kProtocol, Code::kInternal,
             "the daemon sent a view that makes no sense: " + good.message());
      }
      return;
    case wire::DaemonMessage::kClosed:
      events_.on_job_closed(message.closed());
      return;
    default:
      break;
  }
  const auto call = control_calls_.find(message.request());
  if (call != control_calls_.end()) {
    call->second = std::move(message);
  } else if (message.has_refused() && message.request() == 0) {
    const Status refusal = to_status(message.refused());
    lose(Cause::kRefused, refusal.code(), refusal.message());
  } else if (message.has_refused()) {
    events_.on_refused(message.request(), message.refused());
  }
  // Any other is the answer to a call that gave up, or news that only a later library knows.
}

void Session::dispatch(AttachPacket packet) {
  const uint64_t number = packet.reply.has_segment()   ? packet.reply.segment().request()
                          : packet.reply.has_refused() ? packet.reply.refused().request()
                                                       : 0;
  const auto call = attach_calls_.find(number);
  if (call != attach_calls_.end()) {
    call->second = std::move(packet);
  } else if (number == 0 && packet.reply.has_refused()) {
    const Status refusal = to_status(packet.reply.refused());
    lose(Cause::kRefused, refusal.code(), refusal.message());
  } else if (number == 0 || number > last_number_) {
    lose(Cause::kProtocol, Code::kInternal,
         "the daemon sent a packet on the attach socket that answers nothing");
  }
  // Else it came too late: the memfd is closed here, and the daemon frees the segment with the
  // session.
}

void Session::lose(Cause cause, Code code, std::string what) {
  if (lost_) return;
  lost_ = Status(code, std::move(what));
  events_.on_lost(cause, *lost_);
}

}  // namespace gradring::client
