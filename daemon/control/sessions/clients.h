#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "daemon/control/door/client_router.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/core/job_engine.h"

namespace gradring::daemon {

// What goes to trainers, and to whoever asks. A client that does not read is waited for within
// bounds, and never by the control thread. Control thread only.
class Clients {
 public:
  Clients(ClientRouter* router, Sessions* sessions) : router_(router), sessions_(sessions) {}

  // To whoever asked. What waits for clients without a session is dropped where it is too much.
  void answer(const std::string& routing_id, wire::DaemonMessage message);
  void refuse(const std::string& routing_id, uint64_t request, const Status& why);
  // One that says nothing of this daemon's limits.
  void refuse_quietly(const std::string& routing_id, uint64_t request, const Status& why);

  // To a session; kept until it can be sent.
  void tell(Session& session, wire::DaemonMessage message);
  // The same, before all that waits: the first word on a new control connection, and of it alone.
  void tell_opened(Session& session, wire::DaemonMessage message);
  void complete(Session& session, uint64_t ticket, const core::Outcome& outcome);

  // Sends what has gathered; returns how many messages went. Sessions that have let too much pile
  // up are added to `hopeless`.
  int flush(std::set<SessionId>* hopeless);
  // Something waits for a client that does not read at the moment.
  bool waiting() const { return !dirty_.empty() || !guests_.empty(); }

 private:
  // Without a session, as gradringctl.
  struct Guest {
    std::deque<wire::DaemonMessage> answers;
    size_t bytes = 0;
  };

  bool flush(Session& session);
  int flush_guests();

  ClientRouter* const router_;
  Sessions* const sessions_;
  std::set<SessionId> dirty_;            // have something to be sent
  std::map<std::string, Guest> guests_;  // by routing id
  size_t guests_bytes_ = 0;
};

}  // namespace gradring::daemon
