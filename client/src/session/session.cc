#include "client/src/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "proto/version.h"

// The part of the session that reads: the two channels, and what becomes of them.
namespace gradring::client {

Session::Session(Events& events, DaemonPlace place, Connection connection)
    : events_(events),
      place_(std::move(place)),
      reader_(*this),
      connection_(std::make_unique<Connection>(std::move(connection))) {}

bool Session::take_in() {
  // The control channel first: what a daemon said before it closed counts.
  bool changed = take_ends();
  changed |= take_control();
  changed |= take_attach();
  changed |= take_resumption();
  if (leaving_ && Clock::now() >= leave_at_) {
    leave_at_ = kNever;
    lose(*std::exchange(leaving_, std::nullopt));
    changed = true;
  }
  if (Clock::now() >= alarm_) {
    alarm_ = kNever;
    events_.on_alarm();
    changed = true;
  }
  return changed;
}

int Session::control_fd() const {
  const int coming = resumption_ ? resumption_->control_fd() : -1;
  if (coming >= 0) return coming;
  return control_open_ ? connection_->control.fd() : -1;
}

int Session::attach_fd() const {
  if (resumption_) return resumption_->attach_fd();
  return attach_open_ ? connection_->attach.fd() : -1;
}

bool Session::attach_full() const { return attach_full_ && attach_open_ && !resumption_; }

TimePoint Session::alarm() const {
  return std::min({alarm_, leave_at_, resumption_ ? resumption_->alarm() : kNever});
}

bool Session::take_ends() {
  bool changed = false;
  while (rings_ && !lost_ && rings_->any()) {
    changed = true;
    if (!rings_->broken() && events_.on_end(rings_->take())) continue;
    lose({Cause::kProtocol, {Code::kInternal, "the daemon wrote nonsense into the ring of ends"}});
  }
  return changed;
}

void Session::ask_for_rings() {
  if (connection_->welcome.ring_layout() != kRingLayout || !attach_open_) return;
  wire::AttachRequest request;
  rings_request_ = next_number();
  request.mutable_rings()->set_request(rings_request_);
  // If it cannot be sent, the daemon hung up, or messages have to do.
  static_cast<void>(connection_->attach.send(request));
}

bool Session::take_control() {
  bool changed = false;
  while (control_open_) {
    auto message = connection_->control.receive();
    if (!message) {
      control_open_ = false;
      lose({Cause::kProtocol, message.error()});
      return true;
    }
    if (message->has_value()) {
      dispatch(std::move(**message));
      changed = true;
    } else if (!post_next()) {
      break;
    }
  }
  return changed;
}

// True if something was sent, and so there may be more to read.
bool Session::post_next() {
  if (outbox_.empty() || !attach_open_ || !connection_->control.writable()) return false;
  const Status sent = connection_->control.send(outbox_.front());
  if (sent.code() == Code::kResourceExhausted) return false;
  outbox_.pop_front();
  if (!sent.ok()) lose({Cause::kProtocol, sent});
  return true;
}

// Sends the calls that are still to be sent, the oldest first, as far as there is room. True if one
// of them cannot be, which is its failure unless the socket is closed: then whoever reads sees that
// as well, if a moment later, and decides what comes of all calls.
bool Session::post_attach() {
  attach_full_ = false;
  bool failed = false;
  for (auto& [number, call] : attach_calls_) {
    if (call.sent || call.answer) continue;
    Status sent = connection_->attach.send(call.request, call.fd);
    attach_full_ = sent.code() == Code::kResourceExhausted;
    if (attach_full_) break;
    failed |= !sent.ok();
    if (sent.code() == Code::kUnavailable) break;
    call.sent = std::move(sent);
  }
  return failed;
}

bool Session::take_attach() {
  bool changed = attach_full() && post_attach();
  while (attach_open_) {
    auto packet = connection_->attach.receive();
    if (!packet) {
      attach_open_ = false;
      if (packet.error().code() == Code::kUnavailable) {
        hung_up();
      } else {
        lose({Cause::kProtocol, packet.error()});
      }
      return true;
    }
    if (!packet->has_value()) break;
    dispatch(std::move(**packet));
    changed = true;
  }
  return changed;
}

bool Session::take_resumption() {
  if (!resumption_) return false;
  const bool changed = resumption_->advance();
  if (resumption_->open()) {
    come_back();
  } else if (const auto failure = resumption_->failure()) {
    // The daemon may have said on the old control channel why it does not know us any more.
    leave_at(std::max(Clock::now(), last_words_until_), *failure);
  }
  return changed;
}

void Session::dispatch(wire::DaemonMessage message) {
  switch (message.body_case()) {
    case wire::DaemonMessage::kCompleted:
      if (!events_.on_completed(message.completed())) {
        lose({Cause::kProtocol,
              {Code::kInternal,
               "the daemon sent a completion that makes no sense (unknown request, verdict or "
               "cause)"}});
      }
      return;
    case wire::DaemonMessage::kViewChanged:
      if (Status good = events_.on_view_changed(message.view_changed()); !good.ok()) {
        lose({Cause::kProtocol,
              {Code::kInternal, "the daemon sent a view that makes no sense: " + good.message()}});
      }
      return;
    case wire::DaemonMessage::kStandIn:
      return events_.on_stand_in(message.stand_in());
    case wire::DaemonMessage::kClosed:
      job_closed_ |= events_.on_job_closed(message.closed());
      // Nothing is left to come back for.
      if (job_closed_ && away()) leave_at(last_words_until_, {Cause::kPeerLost, went_away(place_)});
      return;
    default:
      break;
  }
  const uint64_t number = message.request();
  if (message.has_refused() && number != 0 && superseded()) return;
  const auto call = control_calls_.find(number);
  if (call != control_calls_.end() && call->second.later) {
    control_calls_.erase(call);
    events_.on_answer(message);
  } else if (call != control_calls_.end()) {
    call->second.answer = std::move(message);
  } else if (message.has_refused() && (number == 0 || number == resubmission_)) {
    lose({Cause::kRefused, to_status(message.refused())});
  } else if (message.has_refused()) {
    events_.on_refused(number, message.refused());
  }
  // Any other is the answer to a call that gave up, or news that only a later library knows.
}

// The control channel finds the daemon's next life by itself, with what lay in it unsent. That life
// does not know the channel and refuses it all, which says nothing: it is sent again on a new one.
bool Session::superseded() const {
  return resumable() && !job_closed_ && (away() || connection_->attach.closed_there());
}

void Session::dispatch(AttachPacket packet) {
  if (packet.reply.has_rings() && packet.reply.rings().request() == rings_request_) {
    auto rings = Rings::of(std::move(packet));
    if (rings) rings_ = std::move(*rings);  // else messages have to do
    return;
  }
  const uint64_t number = packet.reply.has_segment()   ? packet.reply.segment().request()
                          : packet.reply.has_offered() ? packet.reply.offered().request()
                          : packet.reply.has_refused() ? packet.reply.refused().request()
                                                       : 0;
  const auto call = attach_calls_.find(number);
  if (call != attach_calls_.end()) {
    call->second.answer = std::move(packet);
  } else if (number == 0 && packet.reply.has_refused()) {
    lose({Cause::kRefused, to_status(packet.reply.refused())});
  } else if (number == 0 || number > last_number_) {
    lose({Cause::kProtocol,
          {Code::kInternal, "the daemon sent a packet on the attach socket that answers nothing"}});
  }
  // Else it came too late: the memfd is closed here, and the daemon frees the segment with the
  // session.
}

void Session::hang_up() {
  job_closed_ = true;  // nothing is left to come back for
  if (away()) return leave_at(Clock::now(), {Cause::kPeerLost, went_away(place_)});
  if (!attach_open_) return;
  connection_->attach.hang_up();
  reader_.take_in();
}

void Session::hung_up() {
  connection_->attach.close();
  take_ends();  // what it wrote before it went counts
  rings_.reset();
  if (lost()) return;
  last_words_until_ = Clock::now() + kLastWordsTime;
  if (!resumable() || job_closed_) {
    return leave_at(last_words_until_, {Cause::kPeerLost, went_away(place_)});
  }
  // All of it is a call or a submission, and will be sent again as such.
  outbox_.clear();
  resumption_.emplace(place_, connection_->welcome);
}

void Session::come_back() {
  connection_ = std::make_unique<Connection>(resumption_->take());
  resumption_.reset();
  ++life_;
  attach_open_ = control_open_ = true;
  resubmission_ = next_number();
  // The join comes before the ops of its job, and those before all other calls: a trainer that
  // leaves has submitted before it.
  for (const auto& [number, call] : control_calls_) {
    if (call.later) outbox_.push_back(call.message);
  }
  for (wire::ClientMessage& message : events_.unfinished(resubmission_)) {
    outbox_.push_back(std::move(message));
  }
  for (const auto& [number, call] : control_calls_) {
    if (!call.later && !call.answer) outbox_.push_back(call.message);
  }
  for (wire::ClientMessage& message : outbox_) {
    message.set_protocol(connection_->welcome.protocol());
  }
  if (asked_for_rings()) ask_for_rings();  // while there is room
  for (auto& [number, call] : attach_calls_) call.sent.reset();
  post_attach();  // what cannot be sent finds the daemon gone again
  take_control();
}

void Session::leave_at(TimePoint when, Ending why) {
  resumption_.reset();
  leave_at_ = when;
  leaving_ = std::move(why);
}

void Session::lose(Ending why) {
  if (lost_) return;
  resumption_.reset();
  outbox_.clear();
  lost_ = std::move(why.why);
  events_.on_lost(why.cause, *lost_);
}

void Session::close_in_child() {
  connection_->attach.close();
  if (rings_) rings_->close_in_child();
  if (resumption_) resumption_->close_in_child();
  reader_.close();
}

void Session::abandon_in_child() {
  connection_->control.abandon();
  if (resumption_) resumption_->abandon_in_child();
}

}  // namespace gradring::client
