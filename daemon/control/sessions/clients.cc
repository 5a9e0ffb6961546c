#include "daemon/control/sessions/clients.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// Answers that may wait for one session. Each answers a request, so a client that reads none of so
// many is not waiting for them.
constexpr size_t kAnswersMax = 4096;
constexpr size_t kAnswerBytesMax = 16 << 20;
// And ends of ops, in messages of many: twice those of as many as may be open.
constexpr size_t kEndsMax = 2 * 65536;
// Each of an op that failed says why, in a trainer's words perhaps.
constexpr size_t kEndBytesMax = 64 << 20;

// For all who have no session together, such as gradringctl, which asks of all nodes at once.
constexpr size_t kGuestsBytesMax = 16 << 20;

// Keeps a message of completions some ten kilobytes long.
constexpr int kCompletionsPerMessage = 256;

bool reads_nothing(const Session& session) {
  size_t ends = 0;
  for (const wire::DaemonMessage& message : session.answers) {
    ends += static_cast<size_t>(message.completed().completions_size());
  }
  return session.answers.size() > kAnswersMax || session.answer_bytes > kAnswerBytesMax ||
         ends > kEndsMax || session.end_bytes > kEndBytesMax;
}

size_t end_bytes_of(const wire::DaemonMessage& message) {
  size_t bytes = 0;
  for (const wire::Completion& end : message.completed().completions()) bytes += end.ByteSizeLong();
  return bytes;
}

// Completions have a bound of their own.
size_t bytes_of(const wire::DaemonMessage& message) {
  return message.has_completed() ? 0 : message.ByteSizeLong();
}

}  // namespace

void Clients::answer(const std::string& routing_id, wire::DaemonMessage message) {
  Session* session = sessions_->find_by_route(routing_id);
  if (session != nullptr) return tell(*session, std::move(message));
  if (guests_.count(routing_id) == 0 &&
      router_->send(routing_id, message) != ClientRouter::Sent::kFull) {
    return;
  }
  const size_t bytes = message.ByteSizeLong();
  Guest& guest = guests_[routing_id];
  guest.answers.push_back(std::move(message));
  guest.bytes += bytes;
  guests_bytes_ += bytes;
  if (guests_bytes_ <= kGuestsBytesMax) return;
  // Whoever reads has little waiting.
  const auto most = std::max_element(
      guests_.begin(), guests_.end(),
      [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  guests_bytes_ -= most->second.bytes;
  guests_.erase(most);
}

void Clients::refuse(const std::string& routing_id, uint64_t request, const Status& why) {
  tell_limit(why);
  refuse_quietly(routing_id, request, why);
}

void Clients::refuse_quietly(const std::string& routing_id, uint64_t request, const Status& why) {
  wire::DaemonMessage message;
  message.set_request(request);
  message.mutable_refused()->set_request(request);
  message.mutable_refused()->set_code(static_cast<uint32_t>(why.code()));
  message.mutable_refused()->set_message(why.message());
  answer(routing_id, std::move(message));
}

void Clients::tell(Session& session, wire::DaemonMessage message) {
  if (session.gone) return;
  session.answer_bytes += bytes_of(message);
  session.answers.push_back(std::move(message));
  dirty_.insert(session.id);
}

void Clients::tell_opened(Session& session, wire::DaemonMessage message) {
  // Of a connection that was given up meanwhile: on this one its number is that of a question yet
  // to come.
  while (!session.answers.empty() && session.answers.front().has_opened()) {
    session.answer_bytes -= bytes_of(session.answers.front());
    session.answers.pop_front();
  }
  session.answer_bytes += bytes_of(message);
  session.answers.push_front(std::move(message));
  dirty_.insert(session.id);
}

void Clients::complete(Session& session, uint64_t ticket, const core::Outcome& outcome) {
  if (session.gone) return;
  wire::Completion* completion = session.completions.add_completions();
  completion->set_ticket(ticket);
  completion->set_verdict(static_cast<uint32_t>(outcome.verdict));
  completion->set_epoch(outcome.epoch);
  completion->set_ranks_min(outcome.ranks_min);
  completion->set_ranks_max(outcome.ranks_max);
  if (outcome.verdict == Verdict::kFailed) {
    to_wire(outcome.failure, completion->mutable_failure());
    completion->set_message(describe(outcome.failure));
  }
  session.end_bytes += completion->ByteSizeLong();
  dirty_.insert(session.id);
  if (session.completions.completions_size() >= kCompletionsPerMessage) {
    wire::DaemonMessage message;
    *message.mutable_completed() = std::exchange(session.completions, {});
    session.answers.push_back(std::move(message));
  }
}

int Clients::flush(std::set<SessionId>* hopeless) {
  int sent = flush_guests();
  for (auto it = dirty_.begin(); it != dirty_.end();) {
    Session* session = sessions_->find(*it);
    if (session != nullptr && !session->gone) {
      const size_t before = session->answers.size();
      if (!flush(*session)) {
        if (reads_nothing(*session)) hopeless->insert(session->id);
        ++it;
        continue;
      }
      // Nobody is there to read them.
      if (reads_nothing(*session)) hopeless->insert(session->id);
      sent += static_cast<int>(before) + 1;
    }
    it = dirty_.erase(it);
  }
  return sent;
}

int Clients::flush_guests() {
  int sent = 0;
  for (auto it = guests_.begin(); it != guests_.end();) {
    auto& [routing_id, guest] = *it;
    auto how = ClientRouter::Sent::kYes;
    while (!guest.answers.empty()) {
      how = router_->send(routing_id, guest.answers.front());
      if (how == ClientRouter::Sent::kFull) break;
      const size_t bytes = guest.answers.front().ByteSizeLong();
      guest.bytes -= bytes;
      guests_bytes_ -= bytes;
      guest.answers.pop_front();  // of one who is gone, all go the same way
      ++sent;
    }
    it = how == ClientRouter::Sent::kFull ? std::next(it) : guests_.erase(it);
  }
  return sent;
}

// False when the client does not read at the moment.
bool Clients::flush(Session& session) {
  while (true) {
    if (session.answers.empty()) {
      if (session.completions.completions_size() == 0) return true;
      wire::DaemonMessage message;
      *message.mutable_completed() = std::exchange(session.completions, {});
      session.answers.push_back(std::move(message));
    }
    if (session.routing_id.empty())
      return true;  // goes on when it opens a control connection again
    switch (router_->send(session.routing_id, session.answers.front())) {
      case ClientRouter::Sent::kYes:
        session.answer_bytes -= bytes_of(session.answers.front());
        session.end_bytes -= end_bytes_of(session.answers.front());
        session.answers.pop_front();
        break;
      case ClientRouter::Sent::kFull:
        return false;
      case ClientRouter::Sent::kGone:
        sessions_->unbind_route(session);
        return true;
    }
  }
}

}  // namespace gradring::daemon
