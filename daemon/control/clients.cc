#include "daemon/control/clients.h"

#include <utility>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// Answers that may wait for one session. Each answers a request, so a client that reads none of so
// many is not waiting for them.
constexpr size_t kAnswersMax = 4096;
// And ends of ops, in messages of many: twice those of as many as may be open.
constexpr size_t kEndsMax = 2 * 65536;

// Keeps a message of completions some ten kilobytes long.
constexpr int kCompletionsPerMessage = 256;

bool reads_nothing(const Session& session) {
  size_t ends = 0;
  for (const wire::DaemonMessage& message : session.answers) {
    ends += static_cast<size_t>(message.completed().completions_size());
  }
  return session.answers.size() > kAnswersMax || ends > kEndsMax;
}

}  // namespace

void Clients::answer(const std::string& routing_id, wire::DaemonMessage message) {
  Session* session = sessions_->find_by_route(routing_id);
  if (session != nullptr) return tell(*session, std::move(message));
  router_->send(routing_id, message);
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
  session.answers.push_back(std::move(message));
  dirty_.insert(session.id);
}

void Clients::tell_first(Session& session, wire::DaemonMessage message) {
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
  dirty_.insert(session.id);
  if (session.completions.completions_size() >= kCompletionsPerMessage) {
    wire::DaemonMessage message;
    *message.mutable_completed() = std::exchange(session.completions, {});
    session.answers.push_back(std::move(message));
  }
}

int Clients::flush(std::set<SessionId>* hopeless) {
  int sent = 0;
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
