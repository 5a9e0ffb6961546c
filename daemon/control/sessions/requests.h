#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/control/door/client_router.h"
#include "daemon/control/hardware/gpu_health.h"
#include "daemon/control/jobs.h"
#include "daemon/control/sessions/attach.h"
#include "daemon/control/sessions/clients.h"
#include "daemon/control/sessions/gpu_opener.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/core/membership.h"
#include "daemon/flight/ring.h"
#include "daemon/notice.h"

namespace gradring::daemon {

// Where queries are answered; see queries.h.
class QuerySink {
 public:
  virtual ~QuerySink() = default;
  virtual void query(const std::string& routing_id, const Credentials& who, uint64_t request,
                     const wire::Query& query) = 0;
};

// What trainers ask for on the control socket. Believes nothing: neither that bytes are a message,
// nor that a message fits the session, nor that a session is the sender's. Control thread only.
class Requests {
 public:
  struct Parts {
    Sessions* sessions = nullptr;
    Clients* clients = nullptr;
    core::Membership* membership = nullptr;
    Jobs* jobs = nullptr;
    CommandBox* commands = nullptr;
    EventBox* events = nullptr;
    Rings* rings = nullptr;
    QuerySink* queries = nullptr;
    SessionEvents* session_events = nullptr;
    FlightRing* flight = FlightRing::off();
    GpuOpener* opener = nullptr;
    const GpuHealth* gpu_health = nullptr;
  };
  Requests(const Config& config, const Parts& parts) : config_(config), parts_(parts) {}

  void handle(const ClientRouter::Received& received, core::Time now);
  // Once a turn, at its end: what was submitted before its job came about.
  int submit_early();
  // The data thread's answer, of a session that is there.
  void taken_back(Session& session, const SegmentTakenBack& back);
  // The opener's, of one that was there when it was asked.
  void gpu_opened(GpuMemoryOpened& opened);
  void gpu_let_go(const GpuMemoryLetGo& let_go);
  void segment_freed(const SegmentFreed& freed);
  // Joins are refused in words from now on.
  void set_draining(bool draining) { draining_ = draining; }

  uint64_t malformed() const { return malformed_; }

 private:
  struct Asked {
    const std::string& routing_id;
    const Credentials& who;
    uint64_t request;
  };
  void malformed(const ClientRouter::Received& received);
  void open(const Asked& asked, const wire::OpenSession& open);
  void join(const Asked& asked, Session& session, const wire::Join& join, core::Time now);
  void leave(const Asked& asked, Session& session, const wire::Leave& leave);
  void free(const Asked& asked, Session& session, const wire::FreeSegment& free);
  void free_now(Session& session, uint64_t request, uint64_t segment);
  // Has SegmentFreed posted when all that was let go of until it is called is free. Any thread.
  std::function<void()> once_free(SessionId session, uint64_t request) const;
  void tell_freed(Session& session, uint64_t request);
  // share_gpu.cc
  void share_gpu(const Asked& asked, Session& session, const wire::ShareGpuMemory& share);
  void refuse_share(const Session& session, uint64_t request, const Status& why);
  void close_gpu(Session& session, uint64_t request,
                 const std::shared_ptr<const SharedGpuMemory>& memory);
  // submit.cc
  void keep_early(Session& session, const wire::Operation& operation);
  void submit(Session& session, const wire::Submit& submit);
  void submit(Session& session, const wire::Operation& operation, std::vector<uint64_t> seen);
  void refuse_submission(Session& session, uint64_t ticket, const std::string& why);
  std::string fault_of_handle(const Session& session, uint64_t handle) const;

  const Config config_;
  const Parts parts_;
  Seldom told_shares_;
  std::set<SessionId> early_;  // sessions with such
  bool draining_ = false;
  uint64_t malformed_ = 0;
};

}  // namespace gradring::daemon
